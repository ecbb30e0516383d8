//! Runs a pipeline for the server, in the server's process or in one of its own.

#![forbid(unsafe_code)]

mod model_statistics;
mod trace;
mod warm_up;

pub use model_statistics::ModelStatistics;
pub use trace::Trace;
pub use warm_up::{WarmUpReport, synthetic_inputs, warm_up};
