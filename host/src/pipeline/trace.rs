//! What each step of one run did.

use std::time::Duration;

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// one entry a step, in order
    pub steps: Vec<StepTrace>,
}

/// The record of one step.
#[derive(Clone, Debug)]
pub struct StepTrace {
    /// its name
    pub name: String,
    /// time from its inputs to its outputs
    pub time: Duration,
    /// size of its inputs, in bytes
    pub bytes_in: u64,
    /// size of its outputs, in bytes
    pub bytes_out: u64,
    /// highest memory of its sandbox, in bytes, if it ran in one
    pub memory_peak: Option<u64>,
    /// what it gave, described
    pub gave: Vec<String>,
    /// what it logged
    pub log: Vec<String>,
}
