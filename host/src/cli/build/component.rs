//! `gpux build STEP.wasm`: a check, and a core module made a component.

use std::path::Path;

use serde_json::json;

use super::Arguments;
use crate::author;
use crate::cli::exit::Exit;
use crate::cli::printer::{Printer, pretty, size};
use crate::sandbox::{self, ComponentInfo};

pub(super) fn main(path: &Path, arguments: &Arguments, printer: Printer) -> Exit {
    let usage = |message: String| printer.fail("UsageError", &message, Exit::Usage);
    let wrong = |why: String| printer.fail("ConfigurationError", &format!("{}: {why}", path.display()), Exit::Usage);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return usage(format!("cannot read `{}`: {error}", path.display())),
    };
    let operator = match arguments.operator.operator() {
        Ok(operator) => operator,
        Err(error) => return printer.error(&error),
    };
    let component = match sandbox::componentize(&bytes) {
        Ok(component) => component,
        Err(error) => return wrong(error.to_string()),
    };
    // Without --output the file itself is checked, as a pipeline would load it.
    let component = match &arguments.output {
        Some(_) if !arguments.no_strip => match author::strip(&component) {
            Ok(stripped) => stripped,
            Err(error) => return wrong(error.to_string()),
        },
        _ => component.into_owned(),
    };
    let info: ComponentInfo = match operator.sandbox().and_then(|sandbox| sandbox.inspect(&component, None)) {
        Ok(info) => info,
        Err(error) => return wrong(error.to_string()),
    };
    if let Some(problem) = info.problem {
        return wrong(problem);
    }
    if let Some(output) = &arguments.output
        && let Err(error) = author::save(output, &component)
    {
        return printer.fail("OutputError", &error.to_string(), Exit::Failed);
    }
    let written = arguments.output.as_ref().map(|output| output.display().to_string());
    let text = if arguments.json {
        pretty(&json!({ "component": path.display().to_string(), "bytes": component.len(), "written": written }))
    } else {
        let written = written.map(|written| format!(", written to {written}")).unwrap_or_default();
        format!("{} is a step: a component of {}{written}", path.display(), size(component.len() as u64))
    };
    let _ = printer.result(&text);
    Exit::Done
}
