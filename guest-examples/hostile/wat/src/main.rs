//! Makes components of the attacks that only WebAssembly's text can say.
//!
//! `hostile-wat FOLDER` writes one core module with its contract for each file in `attacks/`: the
//! fields of `step.wat`, which is an honest step, with the file's own after them.

use std::error::Error;
use std::fs;
use std::path::Path;

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

fn main() -> Result<(), Box<dyn Error>> {
    let into = std::env::args().nth(1).ok_or("where to? hostile-wat FOLDER")?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(here.join("../../../wit"))?;
    let world = resolve.select_world(&[package], Some("pipeline-step"))?;
    let step = fs::read_to_string(here.join("step.wat"))?;
    for attack in fs::read_dir(here.join("attacks"))? {
        let attack = attack?.path();
        let name = attack.file_stem().and_then(|name| name.to_str()).ok_or("a name that is not UTF-8")?;
        let text = format!("(module\n{}\n{step})", fs::read_to_string(&attack)?);
        let mut module = wat::parse_str(&text).map_err(|error| format!("{name}: {error}"))?;
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)?;
        fs::write(Path::new(&into).join(name).with_extension("wasm"), module)?;
    }
    Ok(())
}
