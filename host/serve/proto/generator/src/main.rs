//! Writes the messages of `open_inference.proto` in Rust, `inference.rs`; with `--check`, only says whether that file
//! is what it would write.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

fn main() -> Result<()> {
    let check = std::env::args().nth(1).as_deref() == Some("--check");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = tempfile::tempdir()?;
    let files = protox::compile([folder.join("open_inference.proto")], [&folder])?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(out.path())
        .compile_fds(files)?;
    let generated = fs::read(out.path().join("inference.rs"))?;
    let kept = folder.join("inference.rs");
    if check {
        let hint = "inference.rs is not what the protocol says; run `cargo run -p protobuf-messages`";
        ensure!(generated == fs::read(kept)?, hint);
    } else {
        fs::write(kept, generated)?;
    }
    Ok(())
}
