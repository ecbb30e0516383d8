//! The `gpux` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpux::cli::main()
}
