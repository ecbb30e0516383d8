//! Commands that run native code once: a crash of it becomes an error message and exit code 1.

use rustix::process::{Pid, Signal};

use super::child::{ChildEnd, SignalForwarder, is_child, same_command};
use crate::exit::Exit;
use crate::printer::{LogLevel, Printer};
use gpux::ModelCrash;

/// Runs this command line in a child and returns its exit code; `None` if this process is that child, or cannot start
/// one.
pub(crate) fn run_in_child(json: bool) -> Option<u8> {
    if is_child() {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
        return None;
    }
    let child = same_command().ok()?.spawn().ok()?;
    let wait = || SignalForwarder::new()?.wait(Pid::from_child(&child), || {});
    let Ok(status) = wait() else { return Some(Exit::Failed.code()) };
    Some(match ChildEnd::from(status) {
        ChildEnd::Exit(code) => code,
        ChildEnd::Crash(reason) => {
            Printer { json, level: LogLevel::Info }.error(&ModelCrash { reason, step: None }.into()).code()
        }
    })
}
