//! A step's folder → its component: the language's build, a component of the module, stripped,
//! checked, written at once.

mod command;
mod strip;

use std::path::{Path, PathBuf};

pub use command::Progress;
pub(super) use command::{OUTPUT, Workspace};
pub use strip::strip;

use super::step_file::{Recipe, StepFile};
use gpux_core::files::{Readers, write_whole};
use gpux_sandbox::{ComponentInfo, Sandbox, SandboxError};

/// What to build, and how.
#[derive(Clone, Copy, Debug)]
pub struct BuildRequest<'a> {
    /// the step's folder
    pub step: &'a StepFile,
    /// whether names and debug information are taken out
    pub strip: bool,
}

/// A step that was built.
#[derive(Clone, Debug)]
pub struct Built {
    /// where it lies
    pub path: PathBuf,
    /// bytes of the component before it was stripped
    pub size_before: usize,
    /// what it is and can do
    pub info: ComponentInfo,
}

/// Why a step could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// a tool is not installed
    #[error("{name} is needed to build this step, and is not there; {install}")]
    Tool {
        /// what it is called
        name: String,
        /// how to get it
        install: String,
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
        source: std::io::Error,
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
        source: std::io::Error,
    },
    /// what was built is no step
    #[error("what was built is no step: {0}")]
    NoStep(String),
    /// what was built cannot be taken apart
    #[error("what was built is damaged: {0}")]
    Damaged(String),
    /// this machine runs no components
    #[error(transparent)]
    Sandbox(SandboxError),
}

fn shown(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!("; it said:\n{}", output.trim_end()) }
}

impl BuildError {
    /// Whether the machine is at fault: something must be installed.
    pub const fn is_environment(&self) -> bool {
        matches!(self, Self::Tool { .. } | Self::Disk { .. } | Self::Sandbox(_))
    }
}

/// Builds the step and writes its component; what is there stays until the new one is whole.
pub fn build(request: BuildRequest<'_>, sandbox: &Sandbox, progress: &mut dyn Progress) -> Result<Built, BuildError> {
    let step = request.step;
    let mut workspace = Workspace::new(&step.folder, progress);
    let module = match &step.recipe {
        Recipe::Commands(commands) => workspace.shell(commands)?,
        Recipe::Language(language) => {
            workspace.require(language.tools())?;
            language.build(&mut workspace)?
        }
    };
    let component = gpux_sandbox::componentize(&module).map_err(|error| BuildError::NoStep(error.to_string()))?;
    let size_before = component.len();
    let component = if request.strip { strip(&component)? } else { component.into_owned() };
    let info = inspect(&component, sandbox)?;
    let path = step.component();
    save(&path, &component)?;
    Ok(Built { path, size_before, info })
}

/// What the component is; an error if it is no step.
fn inspect(component: &[u8], sandbox: &Sandbox) -> Result<ComponentInfo, BuildError> {
    let info = sandbox.inspect(component, None).map_err(|error| match error {
        error if error.is_environment() => BuildError::Sandbox(error),
        error => BuildError::NoStep(error.to_string()),
    })?;
    match info.problem {
        Some(problem) => Err(BuildError::NoStep(problem)),
        None => Ok(info),
    }
}

/// Writes a file whole or not at all.
pub fn save(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    write_whole(path, bytes, Readers::Usual).map_err(|source| BuildError::Io {
        what: "write",
        path: path.to_owned(),
        source,
    })
}
