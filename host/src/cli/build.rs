//! `gpux build`: everything that can be done before the first request.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::operator::{OperatorArguments, PipelineArguments};
use super::printer::{duration, pretty, size};
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
    if let Some(component) = arguments.pipeline.component() {
        return wrap(&component, arguments, printer);
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
