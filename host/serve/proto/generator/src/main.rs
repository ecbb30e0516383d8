//! Writes the messages of `open_inference.proto` in Rust, `inference.rs`, and its descriptors for reflection,
//! `inference.binpb`; with `--check`, only says whether those files are what it would write.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use protox::prost::Message as _;

fn main() -> Result<()> {
    let check = std::env::args().nth(1).as_deref() == Some("--check");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = tempfile::tempdir()?;
    let files = protox::compile([folder.join("open_inference.proto")], [&folder])?;
    let mut described = files.clone();
    // Comments and places are not for clients.
    described.file.iter_mut().for_each(|file| file.source_code_info = None);
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(out.path())
        .compile_fds(files)?;
    let generated =
        [("inference.rs", fs::read(out.path().join("inference.rs"))?), ("inference.binpb", described.encode_to_vec())];
    for (name, bytes) in generated {
        let kept = folder.join(name);
        if check {
            let hint = format!("{name} is not what the protocol says; run `cargo run -p protobuf-messages`");
            ensure!(bytes == fs::read(kept)?, hint);
        } else {
            fs::write(kept, bytes)?;
        }
    }
    Ok(())
}
