//! Writes the C bindings of the contract, `wit/pipeline.wit`, into `guest-sdk/c/`; with `--check`,
//! only says whether those that are there are what it would write.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

/// Short names in C for the interfaces of the contract.
const NAMES: [(&str, &str); 5] = [
    ("gpux:pipeline/types@0.1.1", "gpux"),
    ("gpux:pipeline/log@0.1.1", "gpux_log"),
    ("gpux:pipeline/builtins@0.1.1", "gpux_builtins"),
    ("gpux:pipeline/models@0.1.1", "gpux_models"),
    ("gpux:pipeline/step@0.1.1", "step"),
];

fn main() -> Result<()> {
    let check = std::env::args().nth(1).as_deref() == Some("--check");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let into = root.join("guest-sdk/c");
    let files = bindings(&root.join("wit"))?;
    for (name, contents) in files.iter() {
        let path = into.join(name);
        if check {
            let there = fs::read(&path).with_context(|| path.display().to_string())?;
            ensure!(there == contents, "{name} is not what the contract says; run `cargo run -p c-bindings`");
        } else {
            fs::write(&path, contents).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// The generated files, by name.
fn bindings(wit: &Path) -> Result<Files> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], Some("pipeline-step"))?;
    let rename = NAMES.map(|(from, to)| (from.to_owned(), to.to_owned())).to_vec();
    let options = wit_bindgen_c::Opts { rename, ..wit_bindgen_c::Opts::default() };
    let mut files = Files::default();
    options.build().generate(&mut resolve, world, &mut files)?;
    Ok(files)
}
