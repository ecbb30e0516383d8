//! Admission to a lane: its limits, the reasons to reject a request, the job of an admitted one.

use std::sync::Arc;
use std::time::Duration;

use gpux_core::WaitObserver;

/// The job of a request: runs it, or reports its rejection.
pub(crate) type Job = Box<dyn FnOnce(Result<Arc<dyn WaitObserver>, Rejection>) + Send>;

/// Limits of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneOptions {
    /// how many requests may run at once
    pub concurrency: usize,
    /// how many requests may wait
    pub queue: usize,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// too many wait
    #[error("{waiting} requests wait already; try again in a moment")]
    Full {
        /// how many
        waiting: usize,
        /// when there may be room
        retry_after: Duration,
    },
    /// it would start too late
    #[error("the request would wait about {wait:?}, which is more than its timeout allows; try again in a moment")]
    Late {
        /// how long it would wait
        wait: Duration,
    },
    /// its timeout passed before its execution came
    #[error("the request's timeout passed before it could run")]
    Expired,
    /// the bodies of other requests take what there is
    #[error("the requests that are here already hold as much as is allowed; try again in a moment")]
    Memory,
    /// the server ends
    #[error("the server is about to end")]
    Closing,
}

impl Rejection {
    /// When the client may try again; at least a second, which is the finest that HTTP can say.
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
