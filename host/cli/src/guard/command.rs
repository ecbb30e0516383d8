//! Commands that run native code once: a crash of it becomes an error message and exit code 1.

use rustix::process::Pid;
#[cfg(target_os = "linux")]
use rustix::process::{Signal, set_parent_process_death_signal};

use super::child::{ChildEnd, SignalForwarder, is_child, same_command};
use crate::exit::Exit;
use crate::printer::{LogLevel, Printer};
use gpux::error::ModelCrash;

/// What a shell adds to the signal that ended a process.
const ENDED_BY_SIGNAL: u8 = 128;

/// Runs this command line in a child and returns its exit code; `None` if this process is that child, or cannot start
/// one.
pub(crate) fn run_in_child(json: bool) -> Option<u8> {
    if is_child() {
        #[cfg(target_os = "linux")]
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
        return None;
    }
    let child = same_command().ok()?.spawn().ok()?;
    let wait = || SignalForwarder::new()?.wait(Pid::from_child(&child), || {});
    Some(match wait() {
        Ok(ChildEnd::Exit(code)) => code,
        Ok(ChildEnd::Signal(signal)) => {
            u8::try_from(signal).map_or(Exit::Interrupted.code(), |signal| ENDED_BY_SIGNAL + signal)
        }
        Ok(ChildEnd::Crash(reason)) => {
            Printer { json, level: LogLevel::Info }.error(&ModelCrash { reason, step: None }.into()).code()
        }
        Err(_) => Exit::Failed.code(),
    })
}
