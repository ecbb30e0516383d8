//! `gpux new`: a folder to begin with.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::Exit;
use crate::printer::{Printer, pretty};
use gpux_author::{Language, ScaffoldError, ScaffoldKind, ScaffoldReport};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A pipeline that runs as it is, with a test and a sample, ready for a model
    Pipeline {
        #[command(flatten)]
        place: FolderArguments,
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

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let (kind, place) = match &arguments.command {
        Command::Pipeline { place } => (ScaffoldKind::Pipeline, place),
        Command::Step { lang, place } => (ScaffoldKind::Step(*lang), place),
    };
    let printer = crate::printer(place.json, false);
    match gpux_author::scaffold(kind, &place.path) {
        Ok(made) => report(kind, &made, printer),
        Err(error @ ScaffoldError::Io { .. }) => printer.fail("OutputError", &error.to_string(), Exit::Failed),
        Err(error) => printer.usage(&error),
    }
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
