//! Exit codes.

use serde::{Deserialize, Serialize};

use gpux::Fault;

/// Exit statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Exit {
    /// everything that was asked for was done
    Done,
    /// the run, or an item of a batch, failed
    Failed,
    /// the command line or a file is wrong
    Usage,
    /// the machine lacks an engine or a provider
    Environment,
    /// stopped by ctrl-C; finished results are kept
    Interrupted,
}

impl Exit {
    /// The exit code of the process.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Environment => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<Fault> for Exit {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Request | Fault::Run => Self::Failed,
            Fault::Configuration => Self::Usage,
            Fault::Environment => Self::Environment,
        }
    }
}
