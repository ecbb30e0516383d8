//! The `gpux` program.

/// Keeps ONNX Runtime from reporting to its makers, if set before its library is loaded. Since
/// 1.29 its official builds report from Linux and macOS too; the call that turns this off needs an
/// environment, and making one has already written an identifier to disk and queued the first
/// report. See docs/decisions/009-no-telemetry.md.
const NO_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

fn main() {
    // Who sets it, to whatever value, has decided.
    if std::env::var_os(NO_TELEMETRY).is_none() {
        #[expect(unsafe_code, reason = "the library reads it from the environment and nowhere else")]
        // SAFETY: this is the first thing that the program does; no other thread exists.
        unsafe {
            std::env::set_var(NO_TELEMETRY, "1");
        }
    }
    gpux::cli::main()
}
