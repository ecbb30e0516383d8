//! Runs this command line in a child process, so that native code which crashes ends the child alone.

#[cfg(unix)]
mod child;
#[cfg(unix)]
mod command;
#[cfg_attr(not(unix), path = "no_server.rs")]
mod server;

#[cfg(unix)]
pub(super) use command::run_in_child;
#[cfg(unix)]
pub(super) use server::{ServerEnd, end_by_signal};
pub(super) use server::{SupervisorLink, supervise};
