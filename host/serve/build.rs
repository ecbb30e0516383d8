//! Makes Rust of the messages in `proto/`.

#![allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]

use std::path::{Path, PathBuf};
use std::{env, io};

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    protocol(&here.join("proto"))
}

/// The messages and calls of the Open Inference Protocol. Clients of it are made for tests only.
fn protocol(folder: &Path) -> io::Result<()> {
    let file = folder.join("open_inference.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    let described = protox::compile([&file], [folder]).map_err(io::Error::other)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .client_mod_attribute(".", "#[cfg(test)]")
        .compile_fds(described)
}
