//! Hidden commands that gpux runs in child processes, because they may crash.

#[cfg(target_os = "linux")]
use std::path::Path;
use std::path::PathBuf;

use clap::Subcommand;

use super::exit::Exit;
#[cfg(target_os = "linux")]
use super::load_arguments::LoadArguments;
use super::{measure, precision};
#[cfg(target_os = "linux")]
use gpux_worker::WorkerOptions;

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
    Measure(Box<measure::Arguments>),
    /// Run the requests of one pipeline for a server
    #[cfg(target_os = "linux")]
    #[command(name = "__worker", hide = true)]
    Worker {
        #[command(flatten)]
        load: Box<LoadArguments>,
        /// Fail where the kernel cannot confine this process in everything
        #[arg(long)]
        isolation_strict: bool,
        pipeline: PathBuf,
    },
    /// Measure what `precision: auto` comes to
    #[command(name = "__choose-precision", hide = true)]
    ChoosePrecision(Box<precision::Arguments>),
}

pub(super) fn main(command: Command) -> Exit {
    #[cfg(target_os = "linux")]
    match &command {
        Command::Worker { load, isolation_strict, pipeline } => return worker(load, *isolation_strict, pipeline),
        // While this is the only thread.
        Command::ChoosePrecision(arguments) => arguments.confine(),
        _ => {}
    }
    // What is told comes before the silence that lasts as long as the parent does.
    let told = matches!(command, Command::PrepareComponent { .. }).then(gpux_core::child_process::read_parent_input);
    // Without the watching thread the work is bounded by its limits, and by the parent's patience.
    let _ = gpux_core::child_process::exit_with_parent();
    let answer = match command {
        Command::VetModel { request } => gpux_inference::validation_child(&request),
        Command::PrepareComponent { folder } => {
            let told = told.unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()));
            gpux_sandbox::prepare_answer(&folder, told, gpux::builtins())
        }
        Command::EngineProbe { library, plugins } => gpux_inference::probe_child(&library, &plugins),
        Command::OptimizeModel { request } => gpux_inference::optimization_child(&request),
        Command::RunNodes { request } => gpux_inference::node_placement_child(&request),
        #[cfg(target_os = "linux")]
        Command::Worker { .. } => return Exit::Usage,
        Command::Measure(arguments) => measure::answer(&arguments),
        Command::ChoosePrecision(arguments) => precision::answer(&arguments),
    };
    // Without a reader there is nobody to tell.
    let _ = crate::printer(true, false).result(&answer);
    Exit::Done
}

/// Ends without its destructors: the server is gone, or kills the process anyway.
#[cfg(target_os = "linux")]
fn worker(load: &LoadArguments, must_be_confined: bool, pipeline: &Path) -> Exit {
    let printer = crate::printer(false, false);
    let load_options = match load.options() {
        Ok(load_options) => gpux::LoadOptions { serving: true, ..load_options },
        Err(error) => return printer.error(&error),
    };
    let options = WorkerOptions { load_options, must_be_confined, golden_case: gpux_author::first_case_request };
    match gpux_worker::run_worker(pipeline, options) {
        Ok(()) => Exit::Done,
        Err(error) => printer.environment(&error),
    }
}
