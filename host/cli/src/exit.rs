//! Exit codes.

use serde::{Deserialize, Serialize};

use gpux::ErrorCategory;

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

impl From<ErrorCategory> for Exit {
    fn from(category: ErrorCategory) -> Self {
        match category {
            ErrorCategory::Request | ErrorCategory::Run => Self::Failed,
            ErrorCategory::Configuration => Self::Usage,
            ErrorCategory::Environment => Self::Environment,
        }
    }
}
