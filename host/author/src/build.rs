//! A step's folder → its component: the language's build, a component of the module, stripped,
//! checked, written at once.

use std::path::PathBuf;

use super::atomic_write::write_file;
use super::build_error::BuildError;
use super::step_file::{Recipe, StepFile};
use super::strip::strip;
use super::workspace::{Progress, Workspace};
use gpux_sandbox::{ComponentInfo, Sandbox};

/// A step to build, with options.
#[derive(Clone, Copy, Debug)]
pub struct BuildRequest<'a> {
    /// the step's folder
    pub step: &'a StepFile,
    /// whether names and debug information are taken out
    pub strip: bool,
}

/// A step that was built.
#[derive(Clone, Debug)]
pub struct BuildOutput {
    /// where it lies
    pub path: PathBuf,
    /// bytes of the component before it was stripped
    pub size_before: usize,
    /// its description and capabilities
    pub info: ComponentInfo,
}

/// Builds the step and writes its component; an existing one stays until the new one is complete.
pub fn build(
    request: BuildRequest<'_>,
    sandbox: &Sandbox,
    progress: &mut dyn Progress,
) -> Result<BuildOutput, BuildError> {
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
    write_file(&path, &component)?;
    Ok(BuildOutput { path, size_before, info })
}

/// Describes the component; an error if it is no step.
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
