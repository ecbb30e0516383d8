//! Exit codes.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::error::Fault;

/// How the program ended.
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
    /// stopped by ctrl-C, what was done kept
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Environment => 3,
            Exit::Interrupted => 130,
        })
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
