//! The same functions as `system_calls.rs` on processors whose system calls are not listed there.

use std::io;

const LACK: &str = "gpux has no seccomp filter for this processor";

/// Nothing, and says so.
pub(crate) fn restrict(_forbid_programs: bool, _accelerators: bool) -> Result<(), String> {
    Err(LACK.to_owned())
}

/// Nothing, and says so.
pub(crate) fn forbid_new_processes() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, LACK))
}
