//! Prepares a component in a child process, which bounds the time and memory of the compiler and
//! contains its crashes.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use wasmtime::Engine;

use super::super::config::ComponentConfig;
use super::super::error::SandboxError;
use super::super::limits::{Limits, bytes, exceeded};
use super::super::native_code::NativeCode;
use super::function_cache::{FunctionCache, FunctionFile};
use super::in_process::prepare;
use super::processor_timer::ProcessorTimer;
use super::{ConfiguredComponent, PrepareRequest, PreparedComponent};
use gpux_core::Registry;
use gpux_core::child_process::{self, ChildError};
use gpux_core::{CacheDir, CacheFolder};

const COMPONENT: &str = "component.wasm";
const CODE: &str = "code";
/// The steps that `configure` prepared.
const PREPARED: &str = "prepared";
/// Bytes of that file at most: 4 MiB of options, each byte of which may take six in JSON.
const MAX_PREPARED_SIZE: u64 = 32 << 20;
/// The functions that were compiled before, and those of now.
const FUNCTIONS: &str = "functions";
const NEW_FUNCTIONS: &str = "functions.new";
/// For starting a process and reading files, beside the limits.
const SLACK: Duration = Duration::from_secs(5);
/// How many times as long as its processor time a compilation may take on a busy machine.
const BUSY: u32 = 8;
/// How often a compilation's processor time is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Stack size of the thread that does the work: that of a process's main thread.
const STACK: usize = 8 << 20;

/// The age from which a work folder is removed: far longer than any preparation takes.
const STALE: Duration = Duration::from_hours(24);

/// The input of the child, sent through a pipe because it may contain secrets (granted variables).
#[derive(Serialize, Deserialize)]
pub struct ChildRequest {
    config: ComponentConfig,
    /// what tells each granted folder from others
    folders: Vec<Option<(u64, u64)>>,
    /// whether requests will run
    to_run: bool,
    /// whether to leave the compiled functions in a file
    keep_functions: bool,
}

/// Has `program`, which is gpux, prepare and compile a component for `engine` in the cache folder. If that has no
/// free space, uses the system's folder for temporary files.
pub(crate) fn prepare_in_child(
    program: &Path,
    cache: &CacheDir,
    engine: &Engine,
    request: &PrepareRequest<'_>,
) -> Result<PreparedComponent, SandboxError> {
    let here = |error: std::io::Error| SandboxError::Cache(format!("{}: {error}", cache.root().display()));
    let in_cache = || {
        let work = cache.folder(CacheFolder::Work).map_err(here)?;
        remove_stale_folders(&work);
        tempfile::tempdir_in(work).map_err(here)
    };
    let elsewhere = || {
        let folder = std::env::temp_dir();
        tempfile::tempdir_in(&folder).map_err(|error| SandboxError::Cache(format!("{}: {error}", folder.display())))
    };
    let functions = FunctionFile::of(cache, engine, request.bytes);
    let prepare_in_child =
        |folder: Result<TempDir, SandboxError>| prepare_in_folder(&folder?, program, functions.as_ref(), request);
    match prepare_in_child(in_cache()) {
        Err(SandboxError::Cache(first)) => match prepare_in_child(elsewhere()) {
            Err(SandboxError::Cache(second)) => {
                let hint = "components are set up in $GPUX_CACHE_DIR, or else in $TMPDIR";
                Err(SandboxError::Cache(format!("{first}, nor {second}; {hint}")))
            }
            other => other,
        },
        other => other,
    }
}

/// The same, by way of files in `folder`.
fn prepare_in_folder(
    folder: &TempDir,
    program: &Path,
    functions: Option<&FunctionFile<'_>>,
    request: &PrepareRequest<'_>,
) -> Result<PreparedComponent, SandboxError> {
    let here = |error: std::io::Error| SandboxError::Cache(format!("{}: {error}", folder.path().display()));
    let path = |name: &str| folder.path().join(name);
    let child_request = ChildRequest {
        config: request.config.clone(),
        folders: request.config.grants.dirs.iter().map(|dir| dir.opened.as_ref()?.identity()).collect(),
        to_run: request.to_run,
        keep_functions: functions.is_some(),
    };
    let limits = &request.config.limits;
    std::fs::write(path(COMPONENT), request.bytes).map_err(here)?;
    if let Some(known) = functions.and_then(FunctionFile::read) {
        std::fs::write(path(FUNCTIONS), known).map_err(here)?;
    }
    let arguments = ["__prepare-component".as_ref(), folder.path().as_os_str()];
    let answer: Result<PreparedComponent, SandboxError> =
        child_process::run_json_with_input(program, &arguments, &child_request, child_timeout(limits))
            .map_err(|fault| child_error(&fault, limits))?;
    let mut prepared = answer?;
    if let (Some(functions), Ok(new)) = (functions, std::fs::read(path(NEW_FUNCTIONS))) {
        functions.write(&new);
    }
    if request.to_run
        && let Ok(ready) = &mut prepared.ready
    {
        ready.code = Some(NativeCode::from_bytes(std::fs::read(path(CODE)).map_err(here)?));
    }
    if let Ok(ready) = &mut prepared.ready
        && let Ok(file) = std::fs::File::open(path(PREPARED))
    {
        let mut text = Vec::new();
        file.take(MAX_PREPARED_SIZE).read_to_end(&mut text).map_err(here)?;
        ready.prepared = serde_json::from_slice(&text)
            .map_err(|error| SandboxError::Prepared(format!("what the compiler's process left is damaged: {error}")))?;
    }
    Ok(prepared)
}

/// Removes what processes that were killed have left.
fn remove_stale_folders(work: &Path) {
    let Ok(folders) = std::fs::read_dir(work) else { return };
    for folder in folders.flatten() {
        let age = folder.metadata().and_then(|facts| facts.modified()).ok().and_then(|made| made.elapsed().ok());
        if age.is_some_and(|age| age > STALE) {
            // Another process may be at it, too.
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

/// Does `work` on a thread of its own, as long as what counts of it stays within `limit`. Nothing
/// interrupts a compiler: out of time, the thread is left to end with the process.
fn run_within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce(&ProcessorTimer) -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    let timer = Arc::new(ProcessorTimer::default());
    let (sender, receiver) = mpsc::channel();
    let shared_timer = timer.clone();
    let work = move || {
        // If this fails, the parent has stopped waiting.
        let _ = sender.send(work(&shared_timer));
    };
    let thread = std::thread::Builder::new().name("gpux-prepare".to_owned()).stack_size(STACK).spawn(work);
    thread.map_err(|error| SandboxError::Engine(format!("the compiler has no thread: {error}")))?;
    loop {
        let left = limit.saturating_sub(timer.elapsed());
        match receiver.recv_timeout(left.clamp(Duration::from_millis(1), POLL_INTERVAL)) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if timer.elapsed() < limit => {}
            Err(RecvTimeoutError::Timeout) => return Err(out_of_time(limit)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SandboxError::Compile("the compiler panicked".to_owned()));
            }
        }
    }
}

fn out_of_time(limit: Duration) -> SandboxError {
    SandboxError::Limit(exceeded("compile_time", format!("{limit:?}")))
}

/// Times that `setup_time` may pass: a setup describes and configures, and is made twice if the
/// first shows that there can be no snapshot.
const SETUPS: u32 = 4;

/// How long the child may take: all compiling and all setups.
fn child_timeout(limits: &Limits) -> Duration {
    let setups = limits.setup_time.saturating_mul(SETUPS);
    limits.compile_time.saturating_mul(BUSY).saturating_add(setups).saturating_add(SLACK)
}

/// A child that gave no answer ran into one of its bounds, or broke.
fn child_error(fault: &ChildError, limits: &Limits) -> SandboxError {
    match fault {
        ChildError::Timeout(_) => out_of_time(limits.compile_time),
        ChildError::Start(_) => SandboxError::Engine(fault.to_string()),
        ChildError::Temporary { .. } => SandboxError::Cache(fault.to_string()),
        // The allocator's own last words.
        ChildError::Ended { stderr, .. } if stderr.contains("memory allocation of") => {
            SandboxError::Limit(exceeded("compile_memory", bytes(limits.compile_memory)))
        }
        // Its description: the schema of its options, its signature.
        ChildError::TooLong => SandboxError::Compile(format!("what it says of itself is too much: {fault}")),
        ChildError::Ended { .. } => SandboxError::Compile(format!("the process that compiled it broke: {fault}")),
    }
}

/// Runs `gpux __prepare-component FOLDER`: reads the input and prints the result on one line. Bounds
/// the memory of the whole process, so nothing else may be done in it.
pub fn answer(folder: &Path, child_request: std::io::Result<ChildRequest>, registry: Registry) -> String {
    let child_request = child_request.map_err(|error| SandboxError::Engine(error.to_string()));
    serde_json::to_string(&child_request.and_then(|child_request| work(folder.to_owned(), child_request, registry)))
        .unwrap_or_default()
}

fn work(folder: PathBuf, child_request: ChildRequest, registry: Registry) -> Result<PreparedComponent, SandboxError> {
    child_process::lower_priority();
    let limits = &child_request.config.limits;
    child_process::limit_cpu_time(child_timeout(limits));
    child_process::limit_memory(Some(limits.compile_memory as u64));
    run_within(limits.compile_time, move |timer| set_up(&folder, child_request, registry, timer))
}

fn set_up(
    folder: &Path,
    child_request: ChildRequest,
    registry: Registry,
    timer: &ProcessorTimer,
) -> Result<PreparedComponent, SandboxError> {
    let here = |error: std::io::Error| SandboxError::Cache(format!("{}: {error}", folder.display()));
    let ChildRequest { mut config, folders, to_run, keep_functions } = child_request;
    for (dir, known) in config.grants.dirs.iter_mut().zip(folders) {
        let opened = dir.open(known).map(drop);
        opened.map_err(|error| SandboxError::Folder { folder: dir.folder.clone(), why: error.to_string() })?;
    }
    let bytes = std::fs::read(folder.join(COMPONENT)).map_err(here)?;
    let request = PrepareRequest { bytes: &bytes, config: &config, registry: &Arc::new(registry), to_run };
    let functions = Arc::new(std::fs::read(folder.join(FUNCTIONS)).map(FunctionCache::from_bytes).unwrap_or_default());
    let mut prepared = prepare(&request, &functions, timer)?;
    if keep_functions && let Some(functions) = functions.to_bytes() {
        // A failed write only costs the next compilation some time.
        let _ = std::fs::write(folder.join(NEW_FUNCTIONS), functions);
    }
    if let Ok(ConfiguredComponent { code: Some(code), .. }) = &prepared.ready {
        std::fs::write(folder.join(CODE), code.as_bytes()).map_err(here)?;
    }
    // The answer itself is short.
    let calls = prepared.ready.as_mut().map(|ready| std::mem::take(&mut ready.prepared)).unwrap_or_default();
    if !calls.is_empty() {
        let text = serde_json::to_vec(&calls).map_err(|error| SandboxError::Prepared(error.to_string()))?;
        std::fs::write(folder.join(PREPARED), text).map_err(here)?;
    }
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn removes_folders_older_than_a_day() {
        let work = tempfile::tempdir().unwrap();
        for (name, hours) in [("now", 0), ("today", 20), ("yesterday", 30)] {
            let folder = work.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(COMPONENT), "").unwrap();
            let made = SystemTime::now() - Duration::from_hours(hours);
            std::fs::File::open(folder).unwrap().set_modified(made).unwrap();
        }
        remove_stale_folders(work.path());
        let left = ["now", "today", "yesterday"].map(|name| work.path().join(name).exists());
        assert_eq!(left, [true, true, false]);
    }
}
