//! A child process with the same command line.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, WaitOptions, getppid, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;
use gpux_core::child_process::{describe_exit, own_program};

/// Tells the child that this process waits for it.
const VARIABLE: &str = "GPUX_GUARDED_BY";

/// Signals of people and service managers, which the child is to handle.
const FORWARDED: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Whether another process waits for this one and handles its crash.
pub(super) fn is_child() -> bool {
    let Ok(guard) = std::env::var(VARIABLE) else { return false };
    // A parent outside of this process's namespace has no number here.
    getppid().is_none_or(|parent| parent.as_raw_nonzero().to_string() == guard)
}

/// This command line, for a child.
pub(super) fn same_command() -> std::io::Result<Command> {
    let mut command = Command::new(own_program()?);
    command.args(std::env::args_os().skip(1)).env(VARIABLE, std::process::id().to_string());
    Ok(command)
}

/// Signals that are handed to a child, from now on. A process without a child lets them do what they do.
pub(super) struct SignalForwarder(Signals);

impl SignalForwarder {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self(Signals::new(FORWARDED.into_iter().chain([SIGCHLD]))?))
    }

    /// Waits for the end of the child. Calls `on_end` when a signal asks the child to end.
    pub(super) fn wait(&mut self, child: Pid, mut on_end: impl FnMut()) -> std::io::Result<ChildEnd> {
        // It may have ended before there was a handler.
        for signal in [SIGCHLD].into_iter().chain(self.0.forever()) {
            if is_end(signal) {
                on_end();
            }
            if let Some(status) = reap(child)? {
                return Ok(status.into());
            }
            if let Some(signal) = Signal::from_named_raw(signal).filter(|_| signal != SIGCHLD) {
                // It has not been waited for, so the id is its own.
                let _ = kill_process(child, signal);
            }
        }
        Err(std::io::Error::other("no signals arrive"))
    }

    /// Whether a signal has asked for the end since the last call.
    pub(super) fn is_end_pending(&mut self) -> bool {
        self.0.pending().any(is_end)
    }
}

const fn is_end(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT | SIGTERM)
}

/// How the child ended, if it has. Takes note of every other process that has ended: the first process of a container
/// inherits those that others left behind.
fn reap(child: Pid) -> std::io::Result<Option<ExitStatus>> {
    while let Some((ended, status)) = rustix::process::wait(WaitOptions::NOHANG)? {
        if ended == child {
            return Ok(Some(ExitStatus::from_raw(status.as_raw())));
        }
    }
    Ok(None)
}

/// How a child ended.
pub(super) enum ChildEnd {
    /// with this exit code
    Exit(u8),
    /// by this signal, which people and service managers send
    Signal(i32),
    /// it was killed, or crashed; in words
    Crash(String),
}

impl From<ExitStatus> for ChildEnd {
    fn from(status: ExitStatus) -> Self {
        let signal = match (status.code(), status.signal()) {
            (Some(code), _) => return Self::Exit(u8::try_from(code).unwrap_or(Exit::Failed.code())),
            (None, Some(signal)) if FORWARDED.contains(&signal) => return Self::Signal(signal),
            (None, signal) => signal,
        };
        let mut reason = describe_exit(status);
        if signal == Some(SIGKILL) {
            reason += ", perhaps by the system for lack of memory";
        }
        Self::Crash(reason)
    }
}
