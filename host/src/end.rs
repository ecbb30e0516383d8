//! The end of the process.

/// Ends the process without the exit handlers of native libraries: they take down what a driver's
/// threads may still be at, and the process would end with a crash. Any thread may call it, at any
/// time: it waits for nobody, not even for whoever is writing to standard output.
pub(crate) fn end(code: u8) -> ! {
    signal_hook::low_level::exit(code.into())
}
