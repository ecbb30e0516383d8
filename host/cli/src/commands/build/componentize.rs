//! `gpux build STEP.wasm`: a check, and a core module made a component.

use std::path::Path;

use serde_json::json;

use super::Arguments;
use crate::exit::Exit;
use crate::load_arguments::{component_error, read_component};
use crate::printer::{Printer, pretty, size};
use gpux_sandbox::SandboxError;

pub(super) fn main(path: &Path, arguments: &Arguments, printer: Printer) -> Exit {
    match build(path, arguments, printer) {
        Ok(text) => printer.print_result(&text),
        Err(exit) => exit,
    }
}

fn build(path: &Path, arguments: &Arguments, printer: Printer) -> Result<String, Exit> {
    let wrong = |why: String| printer.fail("ConfigurationError", &format!("{}: {why}", path.display()), Exit::Usage);
    let no_step = |error: SandboxError| component_error(path, error, printer);
    let operator = arguments.load.options().map_err(|error| printer.error(&error))?;
    let bytes = read_component(path, &operator, printer)?;
    let sandbox = operator.sandbox().map_err(no_step)?;
    let inspect = |bytes: &[u8]| match sandbox.inspect(bytes, None).map_err(no_step)?.problem {
        Some(problem) => Err(wrong(problem)),
        None => Ok(()),
    };
    // First of all, since it holds to the limits: nothing is done here to what exceeds them.
    inspect(&bytes)?;
    let mut component = gpux_sandbox::componentize(&bytes).map_err(no_step)?.into_owned();
    if let Some(output) = &arguments.output {
        if !arguments.no_strip {
            component = gpux_author::strip(&component).map_err(|error| wrong(error.to_string()))?;
        }
        if component != bytes {
            inspect(&component)?;
        }
        let saved = gpux_author::write_file(output, &component);
        saved.map_err(|error| printer.fail("OutputError", &error.to_string(), Exit::Failed))?;
    }
    let written = arguments.output.as_ref().map(|output| output.display().to_string());
    Ok(if arguments.json {
        pretty(&json!({ "component": path.display().to_string(), "bytes": component.len(), "written": written }))
    } else {
        let written = written.map(|written| format!(", written to {written}")).unwrap_or_default();
        format!("{} is a step: a component of {}{written}", path.display(), size(component.len() as u64))
    })
}
