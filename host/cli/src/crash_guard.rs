//! Runs a command in a child process, so that native code which crashes ends with an error message and exit code 1.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, getppid, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::Exit;
use super::printer::{LogLevel, Printer};
use gpux::ModelCrash;
use gpux_core::child_process::describe_exit;

/// Tells the child that this process waits for it.
const VARIABLE: &str = "GPUX_GUARDED_BY";

/// Signals of people and service managers, which the child is to handle.
const FORWARDED: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// What a shell adds to the signal that ended a process.
const ENDED_BY_SIGNAL: u8 = 128;

/// Runs this command line in a child and returns its exit code; `None` if this process is that child, or cannot start
/// one.
pub(super) fn run_in_child(json: bool) -> Option<u8> {
    let parent = getppid().map(|parent| parent.as_raw_nonzero().to_string());
    if parent.is_some() && parent == std::env::var(VARIABLE).ok() {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
        return None;
    }
    let mut command = Command::new(std::env::current_exe().ok()?);
    let child = command.args(std::env::args_os().skip(1)).env(VARIABLE, std::process::id().to_string()).spawn().ok()?;
    let Ok(status) = wait(child) else { return Some(Exit::Failed.code()) };
    Some(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or_else(|| report(status, json)))
}

/// Waits for the child and hands it the signals that this process gets.
fn wait(mut child: Child) -> std::io::Result<ExitStatus> {
    // Only now: without a child, signals are to do what they do. It may have ended already.
    let mut signals = Signals::new(FORWARDED.into_iter().chain([SIGCHLD]))?;
    for signal in [SIGCHLD].into_iter().chain(signals.forever()) {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(signal) = Signal::from_named_raw(signal).filter(|_| signal != SIGCHLD) {
            // It has not been waited for, so the id is its own.
            let _ = kill_process(Pid::from_child(&child), signal);
        }
    }
    child.wait()
}

/// Says how the child ended, unless somebody wanted that.
fn report(status: ExitStatus, json: bool) -> u8 {
    let signal = status.signal().unwrap_or_default();
    if FORWARDED.contains(&signal) {
        return u8::try_from(signal).map_or(Exit::Interrupted.code(), |signal| ENDED_BY_SIGNAL.saturating_add(signal));
    }
    let mut reason = describe_exit(status);
    if signal == SIGKILL {
        reason += ", perhaps by the system for lack of memory";
    }
    Printer { json, level: LogLevel::Info }.error(&ModelCrash { reason, step: None }.into()).code()
}
