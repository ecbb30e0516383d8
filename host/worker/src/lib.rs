//! Runs a pipeline for the server, in the server's process or, on Linux, in one of its own.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod command;
#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod control_group;
#[cfg(target_os = "linux")]
mod engine_threads;
#[cfg(target_os = "linux")]
mod foreign_folder;
#[cfg(target_os = "linux")]
mod memory_watch;
#[cfg(target_os = "linux")]
mod messages;
mod model_statistics;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod request_threads;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(target_os = "linux")]
mod template;
#[cfg(target_os = "linux")]
mod templates;
mod trace;
#[cfg(target_os = "linux")]
mod transfer;
mod warm_up;
#[cfg(target_os = "linux")]
mod worker_process;

#[cfg(target_os = "linux")]
pub use channel::{BRIEFLY, CallOptions, Reply, StepTime};
#[cfg(target_os = "linux")]
pub use command::{PipelineEnvironment, TemporaryFiles, WorkerCommand};
#[cfg(target_os = "linux")]
pub use confine::{ConfinementLacks, confine};
#[cfg(target_os = "linux")]
pub use control_group::remove_control_groups;
#[cfg(target_os = "linux")]
pub use memory_watch::{MemoryLimits, MemoryWatch};
pub use model_statistics::ModelStatistics;
#[cfg(target_os = "linux")]
pub use process::{WorkerOptions, run_worker};
#[cfg(target_os = "linux")]
pub use supervisor::{IsolatedPipeline, OnWorkerEvent, PendingCall, SmallAnswer, WorkerError, WorkerEvent};
#[cfg(target_os = "linux")]
pub use template::run_template;
#[cfg(target_os = "linux")]
pub use templates::Templates;
pub use trace::{Trace, run_observed};
pub use warm_up::{GoldenCase, WarmUpReport, warm_up};

use gpux::error::ReportedError;
use gpux::{ErrorCategory, GpuxError};

/// The machine's fault.
pub fn environment_error(message: String) -> GpuxError {
    ReportedError::new(ErrorCategory::Environment, message).into()
}

/// The fault of the pipeline's files.
pub fn configuration_error(message: String) -> GpuxError {
    ReportedError::new(ErrorCategory::Configuration, message).into()
}

/// The failure of a request before or between its steps.
#[cfg(target_os = "linux")]
fn step_failure(message: String) -> gpux_core::RunError {
    let failure = gpux_core::StepFailure::Failed(message);
    Box::new(gpux_core::StepError::of_pipeline(failure)).into()
}
