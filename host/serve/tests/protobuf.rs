//! Checks that `proto/inference.rs` (the generated messages) matches `proto/open_inference.proto`.

use std::path::Path;
use std::{env, fs};

/// `GPUX_BLESS=1` writes the file instead.
#[test]
fn generated_messages_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let out = tempfile::tempdir().unwrap();
    let files = protox::compile([folder.join("open_inference.proto")], [&folder]).unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(out.path())
        .compile_fds(files)
        .unwrap();
    let generated = fs::read_to_string(out.path().join("inference.rs")).unwrap();
    let kept = folder.join("inference.rs");
    if env::var_os("GPUX_BLESS").is_some_and(|value| value == "1") {
        fs::write(kept, generated).unwrap();
    } else {
        assert!(generated == fs::read_to_string(&kept).unwrap(), "{} is not current: bless it", kept.display());
    }
}
