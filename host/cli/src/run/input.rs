//! What to run on, as the command line says it.

use std::ffi::OsString;

use clap::Args;

use super::requests::Requests;
use super::sources::UsageError;
use gpux_core::Plan;

/// The requests.
#[derive(Debug, Args)]
pub(crate) struct InputArguments {
    /// Input: JSON, `@file.json`, `name=value` or `name=@path` (a tensor as .npy, .pb or .json); may be
    /// repeated
    #[arg(short, long, value_name = "INPUT")]
    pub(super) input: Vec<String>,

    /// File to run on: JSON (a list is a batch), JSON lines, an image, a sound, a text, a tensor
    /// (.npy, .pb), `-` for standard input; several files or a pattern in quotes are a batch
    #[arg(short, long, value_name = "PATH", num_args = 1..)]
    pub(super) file: Vec<String>,
}

impl InputArguments {
    /// Whether there is any.
    pub(crate) const fn is_given(&self) -> bool {
        !self.input.is_empty() || !self.file.is_empty()
    }

    /// Whether it comes from standard input, which can be read only once.
    pub(crate) fn is_streamed(&self) -> bool {
        self.file.iter().any(|file| file == "-") || self.input.iter().any(|input| input.ends_with("@-"))
    }

    /// The requests for this plan.
    pub(crate) fn requests<'a>(&self, plan: &'a Plan) -> Result<Requests<'a>, UsageError> {
        Requests::new(plan, &self.input, &self.file)
    }

    /// The same on another command line.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let flag = |flag: &'static str| move |value: &String| OsString::from(format!("{flag}={value}"));
        self.input.iter().map(flag("--input")).chain(self.file.iter().map(flag("--file"))).collect()
    }
}
