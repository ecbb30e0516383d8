//! `gpux new`: a folder to begin with.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::Exit;
use crate::interrupt;
use crate::load_arguments::LoadArguments;
use crate::printer::{Printer, pretty};
use crate::progress::ProgressLine;
use gpux_author::{
    Language, ModelPipelineError, ModelPipelineReport, ModelPipelineRequest, ScaffoldError, ScaffoldKind,
    ScaffoldReport, Task,
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A pipeline that runs as it is, with a test and a sample: ready for a model, or around one
    Pipeline {
        #[command(flatten)]
        place: FolderArguments,

        #[command(flatten)]
        model: Box<ModelArguments>,
    },
    /// A step of your own, as a WebAssembly component: source, options, test
    Step {
        /// The language to write it in
        #[arg(long, value_parser = language_parser())]
        lang: Language,

        #[command(flatten)]
        place: FolderArguments,
    },
}

/// What the pipeline is around.
#[derive(Debug, Args)]
struct ModelArguments {
    /// A model (.onnx), which is copied; the steps around it are guessed from its inputs and from what it gives
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// What the model takes [default: guessed from its inputs; `tensor` if they are not those of another]
    #[arg(long, value_name = "TASK", value_parser = task_parser(), requires = "model")]
    task: Option<Task>,

    /// The names of the model's classes, one a line [default: those of its metadata]
    #[arg(long, value_name = "FILE", requires = "model")]
    labels: Option<PathBuf>,

    /// A table (.csv) whose header names the columns that the model takes, in its order [default: `feature_names_in_`
    /// of the model's metadata]
    #[arg(long, value_name = "FILE", requires = "model")]
    columns: Option<PathBuf>,

    /// The tokenizer.json of a model of text [default: that beside the model]
    #[arg(long, value_name = "FILE", requires = "model")]
    tokenizer: Option<PathBuf>,

    #[command(flatten)]
    load: LoadArguments,
}

#[derive(Debug, Args)]
struct FolderArguments {
    /// The new folder; its last part is the name: small letters, digits, hyphens
    #[arg(value_name = "NAME")]
    path: PathBuf,

    /// The result as JSON
    #[arg(long)]
    json: bool,
}

/// A parser of `--lang` that lists every language in the help.
fn language_parser() -> impl TypedValueParser<Value = Language> {
    PossibleValuesParser::new(Language::ALL.map(Language::name))
        .try_map(|name| Language::ALL.into_iter().find(|language| language.name() == name).ok_or("no such language"))
}

fn task_parser() -> impl TypedValueParser<Value = Task> {
    PossibleValuesParser::new(Task::ALL.map(Task::name)).try_map(|name| name.parse::<Task>())
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    if let Command::Pipeline { place, model: arguments } = &arguments.command
        && let Some(model) = &arguments.model
    {
        return around_model(place, model, arguments);
    }
    let (kind, place) = match &arguments.command {
        Command::Pipeline { place, .. } => (ScaffoldKind::Pipeline, place),
        Command::Step { lang, place } => (ScaffoldKind::Step(*lang), place),
    };
    let printer = crate::printer(place.json, false);
    match gpux_author::scaffold(kind, &place.path) {
        Ok(made) => report(kind, &made, printer),
        Err(error) => scaffold_error(&error, printer),
    }
}

fn around_model(place: &FolderArguments, model: &Path, arguments: &ModelArguments) -> Exit {
    let printer = crate::printer(place.json, false);
    let load_options = match arguments.load.options() {
        Ok(load_options) => load_options,
        Err(error) => return printer.error(&error),
    };
    let request = ModelPipelineRequest {
        folder: &place.path,
        model,
        task: arguments.task,
        labels: arguments.labels.as_deref(),
        columns: arguments.columns.as_deref(),
        tokenizer: arguments.tokenizer.as_deref(),
        load_options: &load_options,
    };
    for_model(&request, printer)
}

fn scaffold_error(error: &ScaffoldError, printer: Printer) -> Exit {
    match error {
        ScaffoldError::Io { .. } => printer.fail("OutputError", &error.to_string(), Exit::Failed),
        error => printer.usage(error),
    }
}

/// Makes a pipeline around a model.
fn for_model(request: &ModelPipelineRequest<'_>, printer: Printer) -> Exit {
    // Ctrl-C removes what is half made.
    interrupt::install_handler();
    let line = ProgressLine::on_terminal(printer, "running the model on a sample");
    let made = gpux_author::pipeline_for_model(request);
    drop(line);
    match made {
        Ok(report) => model_report(&report, printer),
        Err(ModelPipelineError::Scaffold(error)) => scaffold_error(&error, printer),
        Err(ModelPipelineError::Gpux(error)) => printer.error(&error),
        Err(error @ ModelPipelineError::Copy { .. }) => printer.fail("OutputError", &error.to_string(), Exit::Failed),
        Err(error) => printer.usage(&error),
    }
}

fn model_report(report: &ModelPipelineReport, printer: Printer) -> Exit {
    let ModelPipelineReport { made, task, failure } = report;
    let folder = made.folder.display();
    let text = if printer.json {
        let json = json!({
            "name": made.name, "folder": folder.to_string(), "files": made.files, "task": task.name(), "failure": failure.as_ref().map(|failure| &failure.message),
        });
        pretty(&json)
    } else {
        let files: Vec<_> = shown(&made.files).iter().map(|file| format!("  {folder}/{file}")).collect();
        let next = format!(
            "  gpux test {folder}     runs it on its sample and compares\n  \
               gpux serve {folder}    answers on HTTP, with a page to try it"
        );
        format!("{folder} is made, for {task}:\n{}\n\nNext:\n{next}", files.join("\n"))
    };
    let written = printer.print_result(&text);
    let Some(failure) = failure else { return written };
    let (change, exit) = if failure.is_environment {
        (String::new(), Exit::Environment)
    } else {
        (format!("change {folder}/gpux.yml, or the sample in {folder}/tests/sample; "), Exit::Failed)
    };
    let message = format!(
        "its test does not run yet: {}\nthe folder stays: {change}then `gpux test {folder} --bless` keeps what comes out",
        failure.message
    );
    printer.fail("StepError", &message, exit)
}

fn report(kind: ScaffoldKind, made: &ScaffoldReport, printer: Printer) -> Exit {
    let folder = made.folder.display();
    let text = if printer.json {
        pretty(&json!({ "name": made.name, "folder": folder.to_string(), "files": made.files }))
    } else {
        let files: Vec<_> = shown(&made.files).iter().map(|file| format!("  {folder}/{file}")).collect();
        let next = match kind {
            ScaffoldKind::Pipeline => next_for_pipeline(&made.folder),
            ScaffoldKind::Step(language) => next_for_step(made, language),
        };
        format!("{folder} is made:\n{}\n\nNext:\n{next}", files.join("\n"))
    };
    printer.print_result(&text)
}

/// The files for display, a folder with many files as one line.
fn shown(files: &[String]) -> Vec<String> {
    const MANY: usize = 6;
    let mut lines: Vec<String> = Vec::new();
    let mut rest = files;
    while let Some(file) = rest.first() {
        let folder = file.split_once('/').map_or(file.as_str(), |(folder, _)| folder);
        let inside = rest.iter().take_while(|other| other.split('/').next() == Some(folder)).count();
        let (here, after) = rest.split_at(inside.max(1));
        if inside > MANY {
            lines.push(format!("{folder}/ ({inside} files)"));
        } else {
            lines.extend(here.iter().cloned());
        }
        rest = after;
    }
    lines
}

fn next_for_pipeline(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "  gpux test {folder}       runs it on its sample and compares\n  \
           gpux inspect {folder}    shows what each step gives\n  \
           {folder}/README.md says how to add a model"
    )
}

fn next_for_step(made: &ScaffoldReport, language: Language) -> String {
    let (folder, name) = (made.folder.display(), &made.name);
    let tools: Vec<_> = language.tools().iter().map(|tool| tool.name).collect();
    let installed = language.tools().iter().all(|tool| tool.package.is_some());
    let installed = if installed { "; gpux installs what is missing in its cache" } else { "" };
    format!(
        "  gpux build {folder}    makes {folder}/{name}.wasm (needs {}{installed})\n  \
           gpux test {folder}     builds it, runs its cases and compares; --watch: after each change\n  \
           {folder}/README.md says how it is used in a pipeline",
        tools.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_large_folders_on_one_line() {
        let many = (0..7).map(|number| format!("sdk/src/{number}.rs"));
        let files: Vec<_> = ["a.txt".to_owned(), "b/c".to_owned()].into_iter().chain(many).collect();
        assert_eq!(shown(&files), ["a.txt", "b/c", "sdk/ (7 files)"]);
    }
}
