//! Admission to a lane: its limits, the reasons to reject a request, the job of an admitted one.

use std::sync::Arc;
use std::time::Duration;

use gpux_core::WaitObserver;

/// The job of a request: runs it, or reports its rejection.
pub(crate) type Job = Box<dyn FnOnce(Result<Arc<dyn WaitObserver>, Rejection>) -> JobOutcome + Send>;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobOutcome {
    /// it has its answer, be it an error
    Answered,
    /// its deadline passed, or would have
    TimedOut,
}

/// Limits of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneOptions {
    /// the threads that run plans
    pub workers: usize,
    /// the most requests that run concurrently
    pub concurrency: usize,
    /// the most requests that wait
    pub queue: usize,
    /// whether requests run in a process of their pipeline, which holds back what it cannot run yet
    pub is_isolated: bool,
}

/// The reason that a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// the queue is full
    #[error("{waiting} requests wait already; try again in a moment")]
    Full {
        /// the number of waiting requests
        waiting: usize,
        /// the estimated time until the queue has room
        retry_after: Duration,
    },
    /// it would start too late
    #[error("the request would wait about {wait:?}, which is more than its timeout allows; try again in a moment")]
    Late {
        /// the estimated wait
        wait: Duration,
    },
    /// its timeout passed while it was queued, or left no time to run it
    #[error("the request's timeout passed before it could run")]
    Expired,
    /// the memory budget of bodies is used up
    #[error("the requests that are here already hold as much as is allowed; try again in a moment")]
    Memory,
    /// the server shuts down
    #[error("the server is about to end")]
    Closing,
}

impl Rejection {
    /// When the client may retry: at least a second, the resolution of `Retry-After`, and at most a minute.
    pub fn retry_after(&self) -> Duration {
        let wait = match self {
            Self::Full { retry_after, .. } => *retry_after,
            Self::Late { wait } => *wait,
            Self::Expired | Self::Memory | Self::Closing => Duration::ZERO,
        };
        wait.clamp(Duration::from_secs(1), Duration::from_mins(1))
    }
}

/// Waiting and running requests of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// requests that wait
    pub waiting: usize,
    /// requests that run
    pub running: usize,
}
