//! The sockets of a server, and the supervisor that holds them.

use std::time::Duration;

use super::events::EventLogger;
use crate::exit::Exit;
use crate::guard::supervise;
#[cfg(unix)]
use crate::guard::{ServerEnd, end_by_signal};
use crate::printer::Printer;
#[cfg(unix)]
use gpux_core::process_exit::exit;
use gpux_serve::{ListenError, Listeners, Settings};

/// Binds the sockets and becomes the supervisor of a child, which serves; ends as the child does. Returns the sockets if
/// this process has to serve itself.
pub(super) fn supervise_server(
    printer: Printer,
    settings: &Settings,
    start_log: impl Fn() -> std::io::Result<EventLogger>,
) -> Result<Listeners, Exit> {
    let warn = |text: &str| {
        if let Ok(log) = start_log() {
            log.warning(text);
        }
    };
    let on_crash = |what: &str, pause: Duration| {
        let pause = if pause.is_zero() { String::new() } else { format!(" in {} s", pause.as_secs_f32()) };
        warn(&format!("the server {what}; it is started again{pause}"));
    };
    let bound = Listeners::bind(settings);
    if bound.is_err() {
        // Of two, the first may have been bound.
        Listeners::remove_sockets(settings);
    }
    let listeners = bound.map_err(|error| report(printer, error))?;
    let supervised = supervise(listeners, on_crash);
    if supervised.is_ok() {
        Listeners::remove_sockets(settings);
    }
    match supervised {
        Err((listeners, reason)) => {
            if let Some(reason) = reason {
                warn(&format!("the server has no supervisor, which would start it again after a crash: {reason}"));
            }
            Ok(listeners)
        }
        #[cfg(unix)]
        Ok(ServerEnd::Exit(code)) => exit(code),
        #[cfg(unix)]
        Ok(ServerEnd::Signal(signal)) => {
            end_by_signal(signal);
            Err(Exit::Interrupted)
        }
        #[cfg(unix)]
        Ok(ServerEnd::Crash(what)) => Err(printer.fail("ModelCrashError", &format!("the server {what}"), Exit::Failed)),
    }
}

/// Prints why the server does not start, or has ended.
pub(super) fn report(printer: Printer, error: ListenError) -> Exit {
    match error {
        ListenError::Pipeline(error) => printer.error(&error),
        ListenError::Keys(error) => printer.error(&error.into()),
        ListenError::Tls(_) | ListenError::Telemetry(_) | ListenError::ModelControl(_) => {
            printer.fail("UsageError", &error.to_string(), Exit::Usage)
        }
        ListenError::Bind { .. } | ListenError::Socket { .. } | ListenError::Start(_) | ListenError::Isolation(_) => {
            printer.environment(&error)
        }
    }
}
