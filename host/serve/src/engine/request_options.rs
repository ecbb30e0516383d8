//! Timeout, priority and size of a request.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

/// Priority of a request among those of its pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// after all others
    Low = -1,
    /// as usual
    #[default]
    Normal = 0,
    /// before all others
    High = 1,
}

/// Options of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions {
    /// its timeout; the pipeline's own timeout applies if shorter
    pub timeout: Option<Duration>,
    /// its priority
    pub priority: Priority,
    /// size of the body; `None` if it is unknown, or if the request must not run on the I/O thread
    pub body_bytes: Option<usize>,
}
