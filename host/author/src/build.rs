//! A step's folder → its component: the language's build, a component of the module, stripped,
//! checked, written at once; or, where nothing has changed, the component that is there.

use std::path::PathBuf;

use super::atomic_write::write_file;
use super::build_error::BuildError;
use super::build_record::{BuildRecord, BuildRecords};
use super::command_runner::Progress;
use super::fingerprint::Fingerprint;
use super::step_file::{Recipe, StepFile};
use super::strip::strip;
use super::workspace::Workspace;
use gpux_core::CacheDir;
use gpux_core::files::digest;
use gpux_sandbox::{ComponentInfo, Sandbox};

/// The choices of a build.
#[derive(Clone, Copy, Debug)]
pub struct BuildOptions {
    /// whether names and debug information are taken out
    pub strip: bool,
    /// whether to build even where nothing has changed
    pub force: bool,
    /// whether to describe the component, for which it is compiled; else it is only seen to export a step
    pub describe: bool,
}

/// A step to build, with options.
#[derive(Clone, Copy)]
pub struct BuildRequest<'a> {
    /// the step's folder
    pub step: &'a StepFile,
    /// the choices
    pub options: BuildOptions,
    /// what checks the component
    pub sandbox: &'a Sandbox,
    /// where records of builds and tools are kept; without one, each build is a whole one
    pub cache: Option<&'a CacheDir>,
}

/// A step that was built.
#[derive(Clone, Debug)]
pub struct BuildOutput {
    /// where it lies
    pub path: PathBuf,
    /// bytes of the component before it was stripped
    pub size_before: usize,
    /// its description and capabilities, if they were asked for
    pub info: Option<ComponentInfo>,
    /// whether the component that was there is still that of the sources
    pub is_fresh: bool,
}

/// Builds the step and writes its component; an existing one stays until the new one is complete, and stays as it is
/// where nothing has changed since it was built.
pub fn build(request: BuildRequest<'_>, progress: &mut dyn Progress) -> Result<BuildOutput, BuildError> {
    let BuildRequest { step, options, cache, .. } = request;
    let path = step.component();
    let records = BuildRecords::new(cache, &path);
    let record =
        records.as_ref().and_then(BuildRecords::read).filter(|record| !options.force && record.describes(&path));
    progress.phase(&format!("building {}", step.name));
    let mut workspace = Workspace::new(&step.folder, progress).with_cache(cache);
    let sources = prepare(step, options, &mut workspace)?;
    if let Some(record) = record.as_ref().filter(|record| sources.is_some() && record.sources == sources) {
        return keep(record, &request, progress);
    }
    let module = match &step.recipe {
        Recipe::Commands(commands) => workspace.shell(commands)?,
        Recipe::Language(language) => language.build(&mut workspace)?,
    };
    let module_digest = Fingerprint::new(options.strip).with("module", &module).finish();
    if let Some(record) = record.filter(|record| record.module == module_digest) {
        let record = BuildRecord { sources, ..record };
        if let Some(records) = records {
            records.write(&record);
        }
        return keep(&record, &request, progress);
    }
    let component = gpux_sandbox::componentize(&module).map_err(|error| BuildError::NoStep(error.to_string()))?;
    let size_before = component.len();
    let component = if options.strip { strip(&component)? } else { component.into_owned() };
    let info = check(&component, &request, progress)?;
    write_file(&path, &component)?;
    if let Some(records) = records {
        records.write(&BuildRecord { sources, module: module_digest, component: digest(&component), size_before });
    }
    Ok(BuildOutput { path, size_before, info, is_fresh: false })
}

/// Sees to tools and packages. Then the fingerprint of everything that the build reads, if that is known.
fn prepare(
    step: &StepFile,
    options: BuildOptions,
    workspace: &mut Workspace<'_>,
) -> Result<Option<String>, BuildError> {
    let Recipe::Language(language) = &step.recipe else { return Ok(None) };
    let versions = workspace.require(language.tools())?;
    language.prepare(workspace)?;
    let fingerprint = Fingerprint::new(options.strip).with("language", language.name().as_bytes());
    let fingerprint = versions.iter().fold(fingerprint, |print, version| print.with("tool", version.as_bytes()));
    Ok(language.fingerprint(workspace, fingerprint, &step.output).map(Fingerprint::finish))
}

/// The component that is there.
fn keep(
    record: &BuildRecord,
    request: &BuildRequest<'_>,
    progress: &mut dyn Progress,
) -> Result<BuildOutput, BuildError> {
    let path = request.step.component();
    let mut info = None;
    if request.options.describe {
        let read = |source| BuildError::Io { what: "read", path: path.clone(), source };
        info = check(&std::fs::read(&path).map_err(read)?, request, progress)?;
    }
    Ok(BuildOutput { path, size_before: record.size_before, info, is_fresh: true })
}

/// Describes the component if that is asked for; an error if it is no step.
fn check(
    component: &[u8],
    request: &BuildRequest<'_>,
    progress: &mut dyn Progress,
) -> Result<Option<ComponentInfo>, BuildError> {
    if !request.options.describe {
        return if gpux_sandbox::exports_step(component) {
            Ok(None)
        } else {
            Err(BuildError::NoStep("it does not export a step of gpux:pipeline".to_owned()))
        };
    }
    progress.phase(&format!("compiling {}, once", request.step.output.display()));
    let info = request.sandbox.inspect(component, None).map_err(|error| match error {
        error if error.is_environment() => BuildError::Sandbox(error),
        error => BuildError::NoStep(error.to_string()),
    })?;
    match info.problem {
        Some(problem) => Err(BuildError::NoStep(problem)),
        None => Ok(Some(info)),
    }
}
