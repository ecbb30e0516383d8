//! The sockets of a server, and the supervisor that holds them.

use std::time::Duration;

use super::events::EventLogger;
use crate::exit::Exit;
use crate::guard::{ServerEnd, supervise};
use crate::printer::Printer;
use gpux::ModelCrash;
use gpux_core::process_exit::exit;
use gpux_serve::{ListenError, Listeners, RepositoryError, Settings};

/// Binds the sockets and becomes the supervisor of a child, which serves; ends as the child does. Returns the sockets if
/// this process has to serve itself.
pub(super) fn supervise_server(
    printer: Printer,
    settings: &Settings,
    start_log: impl Fn() -> std::io::Result<EventLogger>,
) -> Result<Listeners, Exit> {
    let listeners = Listeners::bind(settings).map_err(|error| report(printer, error))?;
    let on_crash = |reason: &str, pause: Duration| {
        if let Ok(log) = start_log() {
            let pause = if pause.is_zero() { String::new() } else { format!(" in {} s", pause.as_secs_f32()) };
            log.warning(&format!("the server ended: {reason}; it is started again{pause}"));
        }
    };
    match supervise(listeners, on_crash) {
        Err(listeners) => Ok(listeners),
        #[cfg(unix)]
        Ok(ServerEnd::Exit(code)) => exit(code),
        #[cfg(unix)]
        Ok(ServerEnd::Crash(reason)) => Err(printer.error(&ModelCrash { reason, step: None }.into())),
    }
}

/// Prints why the server does not start, or has ended.
pub(super) fn report(printer: Printer, error: ListenError) -> Exit {
    match error {
        ListenError::Repository(RepositoryError::Pipeline(error)) => printer.error(&error),
        ListenError::Keys(error) => printer.error(&error.into()),
        ListenError::Repository(_) | ListenError::Tls(_) | ListenError::Telemetry(_) | ListenError::ModelControl(_) => {
            printer.fail("UsageError", &error.to_string(), Exit::Usage)
        }
        ListenError::Bind { .. } | ListenError::Start(_) => printer.environment(&error),
    }
}
