//! The end of the process.

use std::io::Write as _;

/// Ends the process without the exit handlers of native libraries: they take down what a driver's
/// threads may still be at, and the process would end with a crash. Output that was written is kept.
pub(crate) fn end(code: u8) -> ! {
    // There is nobody left to tell.
    let _ = std::io::stdout().flush();
    signal_hook::low_level::exit(code.into())
}
