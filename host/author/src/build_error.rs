//! The errors of building a step, and of installing the tools for it.

use std::io;
use std::path::PathBuf;

use gpux_sandbox::SandboxError;

/// A step cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// a tool is not installed
    #[error("{name} is needed to build this step, and is not there; {}{instructions}", reason(.why.as_deref()))]
    Tool {
        /// its name
        name: String,
        /// how to get it by hand
        instructions: String,
        /// why gpux could not install it, if it can be installed
        why: Option<Box<InstallError>>,
    },
    /// a command of the build did not succeed
    #[error("`{command}` did not succeed ({status}){}", shown(.output))]
    Command {
        /// the command
        command: String,
        /// how it ended
        status: String,
        /// the end of what it printed; empty if the user has seen it
        output: String,
    },
    /// the disk takes no files
    #[error("the step cannot be built: `{}` cannot be written to: {source}", folder.display())]
    Disk {
        /// where files are to be written
        folder: PathBuf,
        /// the system's reason
        source: io::Error,
    },
    /// the build succeeded, but there is nothing to take
    #[error("{0}")]
    NoModule(String),
    /// a file of the build cannot be read or written
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// `read` or `write`
        what: &'static str,
        /// the file
        path: PathBuf,
        /// the system's reason
        source: io::Error,
    },
    /// the built file is no step
    #[error("what was built is no step: {0}")]
    NoStep(String),
    /// the built file cannot be parsed
    #[error("what was built is damaged: {0}")]
    Damaged(String),
    /// this machine runs no components
    #[error(transparent)]
    Sandbox(SandboxError),
}

fn shown(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!("; it said:\n{}", output.trim_end()) }
}

fn reason(why: Option<&InstallError>) -> String {
    why.map(|why| format!("{why}. By hand: ")).unwrap_or_default()
}

impl BuildError {
    /// Whether the machine is at fault: something must be installed.
    pub const fn is_environment(&self) -> bool {
        matches!(self, Self::Tool { .. } | Self::Disk { .. } | Self::Sandbox(_))
    }
}

/// A tool cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// there is no cache to put it into
    #[error("gpux installs it in its cache, and there is no cache")]
    NoCache,
    /// nothing here can install it
    #[error("gpux installs it by itself where it finds uv, or Python 3.10 or newer as `python3`; neither is there")]
    NoInstaller,
    /// the cache cannot be written to
    #[error("it cannot be installed in `{}`: {source}", folder.display())]
    Io {
        /// the folder
        folder: PathBuf,
        /// the system's reason
        source: io::Error,
    },
    /// a command of the installation did not succeed
    #[error("it could not be installed: {reason}\n{hint}")]
    Failed {
        /// the command, and what it said
        reason: String,
        /// what to do
        hint: &'static str,
    },
}
