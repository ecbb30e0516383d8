//! Makes a core module with a contract section a component: `componentize IN.wasm OUT.wasm`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = paths.as_slice() else { return Err("usage: componentize IN.wasm OUT.wasm".into()) };
    let component = gpux::sandbox::componentize(&std::fs::read(from)?)?;
    std::fs::write(to, component)?;
    Ok(())
}
