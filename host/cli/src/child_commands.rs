//! Hidden commands that gpux runs in child processes, because they may crash.

#[cfg(target_os = "linux")]
use std::path::Path;
use std::path::PathBuf;

use clap::Subcommand;
use serde::de::DeserializeOwned;

use super::exit::Exit;
use super::{measure, precision};
use gpux_core::child_process;

/// Called by gpux itself; each prints one line of JSON.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Load a model and run it once
    #[command(name = "__vet-model", hide = true)]
    VetModel { request: String },
    /// Compile and configure a component
    #[command(name = "__prepare-component", hide = true)]
    PrepareComponent { folder: PathBuf },
    /// Load an engine library and say what it offers
    #[command(name = "__engine-probe", hide = true)]
    EngineProbe { library: PathBuf, plugins: String },
    /// Optimize a model's graph
    #[command(name = "__optimize-model", hide = true)]
    OptimizeModel { request: String },
    /// Run a model once and write down what its nodes did
    #[command(name = "__run-nodes", hide = true)]
    RunNodes { request: String },
    /// Run a pipeline on one engine and provider
    #[command(name = "__measure", hide = true)]
    Measure,
    /// Run the requests of one pipeline for a server
    #[cfg(target_os = "linux")]
    #[command(name = "__worker", hide = true)]
    Worker { pipeline: PathBuf },
    /// Copy this process for each worker of a server
    #[cfg(target_os = "linux")]
    #[command(name = "__template", hide = true)]
    Template {
        /// the engine library, if any, before space for command lines
        #[arg(num_args = 1..=2)]
        words: Vec<PathBuf>,
    },
    /// Measure what `precision: auto` comes to
    #[command(name = "__choose-precision", hide = true)]
    ChoosePrecision,
}

pub(super) fn main(command: Command) -> Exit {
    let answer = match command {
        #[cfg(target_os = "linux")]
        Command::Worker { pipeline } => return worker(&pipeline),
        #[cfg(target_os = "linux")]
        Command::Template { words } => return template(&words),
        Command::PrepareComponent { folder } => gpux_sandbox::prepare_answer(&folder, input(), gpux::builtins()),
        Command::Measure => measure::answer(input()),
        Command::ChoosePrecision => precision::answer(child_process::read_parent_input()),
        Command::VetModel { request } => end_with_parent(|| gpux_inference::validation_child(&request)),
        Command::EngineProbe { library, plugins } => {
            end_with_parent(|| gpux_inference::probe_child(&library, &plugins))
        }
        Command::OptimizeModel { request } => end_with_parent(|| gpux_inference::optimization_child(&request)),
        Command::RunNodes { request } => end_with_parent(|| gpux_inference::node_placement_child(&request)),
    };
    // Without a reader there is nobody to tell.
    let _ = crate::printer(true, false).result(&answer);
    Exit::Done
}

/// What the parent tells, before the silence that lasts as long as it does.
fn input<T: DeserializeOwned>() -> std::io::Result<T> {
    let told = child_process::read_parent_input();
    end_with_parent(|| told)
}

/// Works in a process that ends with its parent.
fn end_with_parent<T>(work: impl FnOnce() -> T) -> T {
    // Without the watching thread the work is bounded by its limits, and by the parent's patience.
    let _ = child_process::exit_with_parent();
    work()
}

/// Ends without its destructors: the server is gone, or kills the process anyway.
#[cfg(target_os = "linux")]
fn worker(pipeline: &Path) -> Exit {
    ended(gpux_worker::run_worker(pipeline, gpux_author::first_case_request))
}

#[cfg(target_os = "linux")]
fn template(words: &[PathBuf]) -> Exit {
    let library = words.split_last().and_then(|(_, library)| library.first());
    ended(gpux_worker::run_template(library.map(PathBuf::as_path), gpux_author::first_case_request))
}

#[cfg(target_os = "linux")]
fn ended(result: std::io::Result<()>) -> Exit {
    match result {
        Ok(()) => Exit::Done,
        Err(error) => crate::printer(false, false).environment(&error),
    }
}
