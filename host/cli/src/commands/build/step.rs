//! `gpux build FOLDER` for the folder of a step.

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::Arguments;
use crate::build_log::BuildLog;
use crate::exit::Exit;
use crate::printer::{Printer, duration, pretty, size};
use gpux::LoadOptions;
use gpux_author::{BuildOptions, BuildOutput, BuildRequest, StepFile};

pub(super) fn main(folder: &Path, arguments: &Arguments, printer: Printer) -> Exit {
    let start = Instant::now();
    let step = match StepFile::load(folder) {
        Ok(step) => step,
        Err(error) => return printer.error(&error.into()),
    };
    let load_options = match arguments.load.options() {
        Ok(load_options) => load_options,
        Err(error) => return printer.error(&error),
    };
    let options = BuildOptions { strip: !arguments.no_strip, force: arguments.force, describe: true };
    let built = match build_step(&step, options, &load_options, printer) {
        Ok(built) => built,
        Err(exit) => return exit,
    };
    let text = if printer.json { pretty(&to_json(&step, &built)) } else { summary(&step, &built, start) };
    printer.print_result(&text)
}

/// Builds a step; an error is printed.
pub(crate) fn build_step(
    step: &StepFile,
    options: BuildOptions,
    load_options: &LoadOptions,
    printer: Printer,
) -> Result<BuildOutput, Exit> {
    let mut load_options = load_options.clone();
    if let Some(warning) = load_options.drop_unusable_cache() {
        printer.warning(&warning);
    }
    let sandbox = load_options.sandbox().map_err(|error| printer.error(&error.into()))?;
    let request = BuildRequest { step, options, sandbox: &sandbox, cache: load_options.cache.as_ref() };
    gpux_author::build(request, &mut BuildLog::new(printer)).map_err(|error| {
        let exit = if error.is_environment() { Exit::Environment } else { Exit::Failed };
        printer.fail("BuildError", &format!("{}: {error}", step.folder.display()), exit)
    })
}

fn summary(step: &StepFile, built: &BuildOutput, start: Instant) -> String {
    let Some(info) = &built.info else { return String::new() };
    let how = if built.is_fresh { "nothing has changed, checked in" } else { "built in" };
    let before = if built.size_before == info.size {
        String::new()
    } else {
        format!(" ({} before it was stripped)", size(built.size_before as u64))
    };
    format!(
        "{}: {} of {}{before}, {how} {}\nsha256  {}\n{}",
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
        "bytes": built.info.as_ref().map(|info| info.size),
        "bytes_before": built.size_before,
        "fresh": built.is_fresh,
        "component": built.info,
    })
}
