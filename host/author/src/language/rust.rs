//! Rust: `cargo build` for `wasm32-unknown-unknown`, which has no WASI.

use std::path::PathBuf;

use serde::Deserialize;

use crate::build_error::BuildError;
use crate::tool::Tool;
use crate::workspace::Workspace;

const TARGET: &str = "wasm32-unknown-unknown";

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "cargo",
        checks: &[&["cargo", "--version"]],
        by_hand: "install Rust as https://rustup.rs says",
        package: None,
    },
    Tool {
        name: "the target wasm32-unknown-unknown",
        // Without the target's library, the compiler does not know what `core` is there.
        checks: &[&["rustc", "--target", TARGET, "--print", "target-libdir"]],
        by_hand: "run `rustup target add wasm32-unknown-unknown`",
        package: None,
    },
];

/// A message of cargo about an artifact; its other messages have no `filenames`.
#[derive(Deserialize)]
struct Artifact {
    target: Target,
    filenames: Vec<PathBuf>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    let mut cargo = workspace.command("cargo");
    cargo
        .args(["build", "--release", "--target", TARGET, "--message-format", "json-render-diagnostics"])
        // SIMD of 128 bits is in every engine since 2021; loops over pixels need it.
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", "-C target-feature=+simd128");
    let printed = workspace.run(&mut cargo)?;
    let manifest = workspace.folder().join("Cargo.toml").canonicalize().ok();
    let module = printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.manifest_path.canonicalize().ok() == manifest)
        .filter(|artifact| artifact.target.kind.iter().any(|kind| kind == "cdylib"))
        .find_map(|artifact| artifact.filenames.into_iter().find(|path| path.extension().is_some_and(|e| e == "wasm")));
    let Some(module) = module else {
        let why = "cargo built no module; Cargo.toml needs `[lib]` with `crate-type = [\"cdylib\", \"rlib\"]`";
        return Err(BuildError::NoModule(why.to_owned()));
    };
    workspace.read(&module)
}
