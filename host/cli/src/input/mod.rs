//! The requests of a command: `--input` and `--file`.

mod requests;
mod sources;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::printer::Printer;
use gpux::Pipeline;
use gpux_core::files::is_same;
use gpux_core::{Plan, TableOptions};

pub(super) use requests::{RequestItem, Requests};
pub(super) use sources::{UsageError, extension, is_pattern};

/// The flags that name requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
pub(super) struct InputArguments {
    /// Input: JSON, `@file.json`, `name=value` or `name=@path` (a tensor as .npy, .pb or .json); may be
    /// repeated
    #[arg(short, long, value_name = "INPUT")]
    input: Vec<String>,

    /// File to run on: JSON (a list is a batch), JSON lines, a table (.csv, .tsv: a request a row), an image, a
    /// sound, a text, a tensor (.npy, .pb), `-` for standard input; several files or a pattern in quotes are a batch
    #[arg(short, long, value_name = "PATH", num_args = 1..)]
    file: Vec<String>,

    /// Whether the first row of a table names its columns [default: by its cells, where they leave no doubt]
    #[arg(long, value_name = "HEADER")]
    header: Option<Header>,

    /// Columns of a table that no input takes [default: an error, unless gpux.yml says `extra: ignore`]
    #[arg(long, value_name = "WHAT")]
    extra_columns: Option<ExtraColumns>,
}

/// The header of a table, as RFC 4180 names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Header {
    Present,
    Absent,
}

/// Columns of a table that no input takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum ExtraColumns {
    Error,
    Ignore,
}

impl InputArguments {
    /// As if these files were named.
    pub(super) fn of_files(files: &[String]) -> Self {
        Self { file: files.to_vec(), ..Self::default() }
    }

    /// Adds files before those of `--file`.
    pub(super) fn add_files(&mut self, files: impl IntoIterator<Item = String>) {
        self.file.splice(..0, files);
    }

    /// Whether the command line names a request.
    pub(super) const fn is_given(&self) -> bool {
        !self.input.is_empty() || !self.file.is_empty()
    }

    /// Whether a request comes from standard input, which can be read only once.
    pub(super) fn is_streamed(&self) -> bool {
        self.file.iter().any(|file| file == "-") || self.input.iter().any(|input| input.ends_with("@-"))
    }

    /// The requests for this plan.
    pub(super) fn requests<'a>(&self, plan: &'a Plan, printer: Printer) -> Result<Requests<'a>, UsageError> {
        let table = TableOptions {
            delimiter: None,
            has_header: self.header.map(|header| header == Header::Present),
            ignores_extra: self.extra_columns == Some(ExtraColumns::Ignore),
        };
        Requests::new(plan, &self.input, &self.file, table, printer)
    }
}

/// Rejects outputs that the pipeline or its requests are read from.
pub(super) fn reject_overwrites<'a>(
    pipeline: &'a Pipeline,
    sources: impl Iterator<Item = &'a Path>,
    outputs: &[PathBuf],
) -> Result<(), UsageError> {
    let own = pipeline.files().keys().map(PathBuf::as_path).filter(|path| path.is_file());
    match own.chain(sources).find(|path| outputs.iter().any(|output| is_same(path, output))) {
        Some(path) => Err(UsageError::Overwrites(path.display().to_string())),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn every_flag_reaches_a_child() {
        let values = [("input", "x=1"), ("file", "a.csv"), ("header", "absent"), ("extra-columns", "ignore")];
        let command = || InputArguments::augment_args(clap::Command::new("gpux"));
        for flag in command().get_arguments().filter_map(clap::Arg::get_long) {
            let (_, value) =
                values.iter().find(|(name, _)| *name == flag).unwrap_or_else(|| panic!("--{flag}: no value"));
            let matches = command().get_matches_from(["gpux", &format!("--{flag}={value}")]);
            let given = InputArguments::from_arg_matches(&matches).unwrap();
            assert_ne!(given, InputArguments::default(), "--{flag}");
            let json = serde_json::to_string(&given).unwrap();
            assert_eq!(serde_json::from_str::<InputArguments>(&json).unwrap(), given, "--{flag}");
        }
    }
}
