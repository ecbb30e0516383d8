//! The flags of `gpux run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::record_replay::RecordArguments;
use super::result_writer::Format;
use crate::hub_pipeline::PullArguments;
use crate::input::InputArguments;
use crate::load_arguments::{LoadArguments, PipelineArguments};

/// Examples:
///   gpux run photo.jpg
///   gpux run my-model --input '{"data": [1, 2, 3]}'
///   gpux run . --input text='a sentence' --input top=3
///   gpux run . --file 'photos/*.jpg' --output results.csv
///   gpux run ocr page.jpg --only text --format text
///   gpux run model.onnx --input image=@image.npy --format npy --output results
///   gpux run hf:OWNER/NAME --input text='a sentence'
///   gpux run . --file photo.jpg --benchmark --runs 1000
///   gpux run . --file photo.jpg --benchmark --provider cuda,openvino,cpu
///   gpux run . --file 'photos/*.jpg' --record recorded
///   gpux run . --replay recorded --step center-ink.wasm
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) pipeline: PipelineArguments,

    /// Files to run on, as after `--file`. If the first argument is one itself, the pipeline is this folder's
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<String>,

    #[command(flatten)]
    pub(super) input: InputArguments,

    /// Write results to this file (with `--format npy`, folder) instead of standard output
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,

    /// Only these of the pipeline's outputs, in this order; with `--format text`, a single one without its name
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "benchmark")]
    pub(super) only: Vec<String>,

    /// How to write results [default: by the ending of --output; text on a terminal; else JSON]
    #[arg(long)]
    pub(super) format: Option<Format>,

    #[command(flatten)]
    pub(super) pull: PullArguments,

    /// Results, errors and traces as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Seconds that one request may take [default: the pipeline's `runtime.timeout`]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,

    /// Show what each step did: time, bytes in and out, memory of its sandbox
    #[arg(long)]
    pub(super) trace: bool,

    /// Time the pipeline on the first request instead of printing its result; without one, on a golden case, a
    /// warm-up request, or made-up numbers and text
    #[arg(long, conflicts_with_all = ["trace", "format", "record"])]
    pub(super) benchmark: bool,

    /// How many runs to time
    #[arg(long, value_name = "N", default_value_t = 100, requires = "benchmark", value_parser = at_least_one)]
    pub(super) runs: usize,

    /// How many runs to make before timing
    #[arg(long, value_name = "N", default_value_t = 10, requires = "benchmark")]
    pub(super) warmup: usize,

    #[command(flatten)]
    pub(super) records: RecordArguments,

    #[command(flatten)]
    pub(super) load: LoadArguments,

    /// Say more: engine, provider, where files were found
    #[arg(long)]
    pub(super) verbose: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if seconds <= 0.0 {
        return Err("must be more than 0".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number from 1".to_owned())
}
