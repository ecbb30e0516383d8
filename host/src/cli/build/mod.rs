//! `gpux build`: everything that can be done before the first request.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::operator::{OperatorArguments, PipelineArguments};
use super::printer::{Printer, duration, pretty, size};
use crate::sandbox;

/// Check a pipeline: the file, its models, its components, and that every step fits the next.
/// Compiles the components and tries the models, so that the first run finds both ready.
///
/// With a .wasm file, checks that it is a step and, with --output, writes it as a component.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// Where to write the component, when a .wasm file is built
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// The result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    operator: OperatorArguments,

    /// Say more
    #[arg(long)]
    verbose: bool,
}

pub(super) fn main(arguments: &Arguments) -> Exit {
    let printer = super::printer(arguments.json, arguments.verbose);
    if let Some(component) = arguments.pipeline.file_ending("wasm") {
        return wrap(&component, arguments, printer);
    }
    if arguments.output.is_some() {
        let message = "--output goes with a .wasm file; a pipeline is built into the cache";
        return printer.fail("UsageError", message, Exit::Usage);
    }
    let start = Instant::now();
    let pipeline = match arguments.pipeline.open(&arguments.operator, printer) {
        Ok(pipeline) => pipeline,
        Err(error) => return printer.error(&error),
    };
    let report = pipeline.to_json();
    let text = if arguments.json {
        pretty(&report)
    } else {
        let spec = pipeline.spec();
        let steps = pipeline.plan().steps().len();
        format!(
            "{} {}: {steps} steps, {}; ready in {}",
            spec.name.value,
            spec.version.value,
            pipeline.engine(),
            duration(start.elapsed())
        )
    };
    // A reader that has gone needs no more.
    let _ = printer.result(&text);
    Exit::Done
}

/// Checks a .wasm file and writes it as a component.
fn wrap(path: &Path, arguments: &Arguments, printer: Printer) -> Exit {
    let usage = |message: String| printer.fail("UsageError", &message, Exit::Usage);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return usage(format!("cannot read `{}`: {error}", path.display())),
    };
    let operator = match arguments.operator.operator() {
        Ok(operator) => operator,
        Err(error) => return printer.error(&error),
    };
    let checked = operator.sandbox().and_then(|sandbox| {
        let info = sandbox.inspect(&bytes, None)?;
        Ok((info, sandbox::componentize(&bytes)?))
    });
    let (info, component) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            return printer.fail("ConfigurationError", &format!("{}: {error}", path.display()), Exit::Usage);
        }
    };
    if let Some(problem) = &info.problem {
        return printer.fail("ConfigurationError", &format!("{}: {problem}", path.display()), Exit::Usage);
    }
    if let Some(output) = &arguments.output
        && let Err(error) = std::fs::write(output, &component)
    {
        return printer.fail("OutputError", &format!("cannot write `{}`: {error}", output.display()), Exit::Failed);
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
