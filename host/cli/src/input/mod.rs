//! The requests of a command: `--input` and `--file`.

mod requests;
mod sources;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::printer::Printer;
use gpux::Pipeline;
use gpux_core::files::is_same;
use gpux_core::{Plan, TableOptions};

pub(super) use requests::{RequestItem, Requests};
pub(super) use sources::{UsageError, extension, is_pattern};

/// The flags that name requests.
#[derive(Debug, Args)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Header {
    Present,
    Absent,
}

/// Columns of a table that no input takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExtraColumns {
    Error,
    Ignore,
}

impl InputArguments {
    /// As if these files were named.
    pub(super) fn of_files(files: &[String]) -> Self {
        Self { input: Vec::new(), file: files.to_vec(), header: None, extra_columns: None }
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

    /// These flags for the command line of a child process.
    pub(super) fn to_flags(&self) -> Vec<OsString> {
        let flag = |flag: &'static str| move |value: &String| OsString::from(format!("{flag}={value}"));
        let header = self.header.and_then(|header| header.to_possible_value());
        let extra = self.extra_columns.and_then(|extra| extra.to_possible_value());
        let named = [("--header", header), ("--extra-columns", extra)];
        let named = named.into_iter().filter_map(|(flag, value)| Some(format!("{flag}={}", value?.get_name()).into()));
        let own = self.input.iter().map(flag("--input")).chain(self.file.iter().map(flag("--file")));
        own.chain(named).collect()
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
