//! `gpux build FOLDER` for the folder of a step.

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::Arguments;
use crate::exit::Exit;
use crate::printer::{Printer, duration, pretty, size};
use gpux_author::{BuildOutput, BuildRequest, Progress, StepFile};
use gpux_sandbox::Sandbox;

/// The lines of a build: shown as they come with `--verbose`, else kept for an error.
struct BuildLog(Printer);

impl Progress for BuildLog {
    fn command(&mut self, command: &str) {
        self.0.detail(&format!("$ {command}"));
    }

    fn line(&mut self, line: &str) {
        self.0.detail(line);
    }

    fn shows_lines(&self) -> bool {
        self.0.is_verbose() && !self.0.json
    }
}

pub(super) fn main(folder: &Path, arguments: &Arguments, printer: Printer) -> Exit {
    let start = Instant::now();
    let step = match StepFile::load(folder) {
        Ok(step) => step,
        Err(error) => return printer.error(&error.into()),
    };
    let sandbox = match arguments.load.options().and_then(|operator| Ok(operator.sandbox()?)) {
        Ok(sandbox) => sandbox,
        Err(error) => return printer.error(&error),
    };
    let built = match build_step(&step, !arguments.no_strip, &sandbox, printer) {
        Ok(built) => built,
        Err(exit) => return exit,
    };
    let text = if printer.json { pretty(&to_json(&step, &built)) } else { summary(&step, &built, start) };
    printer.print_result(&text)
}

/// Builds a step; an error is printed.
pub(crate) fn build_step(
    step: &StepFile,
    strip: bool,
    sandbox: &Sandbox,
    printer: Printer,
) -> Result<BuildOutput, Exit> {
    gpux_author::build(BuildRequest { step, strip }, sandbox, &mut BuildLog(printer)).map_err(|error| {
        let exit = if error.is_environment() { Exit::Environment } else { Exit::Failed };
        printer.fail("BuildError", &format!("{}: {error}", step.folder.display()), exit)
    })
}

fn summary(step: &StepFile, built: &BuildOutput, start: Instant) -> String {
    let info = &built.info;
    let before = if built.size_before == info.size {
        String::new()
    } else {
        format!(" ({} before it was stripped)", size(built.size_before as u64))
    };
    format!(
        "{}: {} of {}{before}, built in {}\nsha256  {}\n{}",
        step.name,
        built.path.display(),
        size(info.size as u64),
        duration(start.elapsed()),
        info.digest,
        info.capabilities(),
    )
}

fn to_json(step: &StepFile, built: &BuildOutput) -> serde_json::Value {
    json!({
        "name": step.name,
        "written": built.path.display().to_string(),
        "bytes": built.info.size,
        "bytes_before": built.size_before,
        "component": built.info,
    })
}
