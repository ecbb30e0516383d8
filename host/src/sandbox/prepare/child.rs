//! Preparing a component in a process of its own: compiling it may take more time and memory than
//! it is worth, and whatever goes wrong ends there.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use wasmtime::Engine;

use super::super::component::{Compiled, componentize};
use super::super::engine::Machine;
use super::super::error::SandboxError;
use super::super::grants::Grants;
use super::super::limits::{Limits, bytes, exceeded};
use super::{Order, Prepared, prepare};
use crate::child::{self, ChildFault};
use crate::config::CacheDir;
use crate::pipeline::Registry;

const COMPONENT: &str = "component.wasm";
const SNAPSHOT: &str = "snapshot.wasm";
/// For starting a process and reading files, beside the limits.
const SLACK: Duration = Duration::from_secs(5);
/// How many times as long as its processor time a compilation may take on a busy machine.
const BUSY: u32 = 8;
/// How often a compilation's processor time is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// What a folder of work is left alone for: far longer than any work takes.
const STALE: Duration = Duration::from_hours(24);

/// What the child is told through a pipe, for it may hold secrets (granted variables).
#[derive(Serialize, Deserialize)]
pub struct Request {
    options: Json,
    limits: Limits,
    grants: Grants,
    /// under which the parent will look the compiled component up
    ceiling: Limits,
    cache: PathBuf,
}

/// Has `program`, which is gpux, prepare a component and compile it into the cache.
pub(in crate::sandbox) fn ask(
    program: &Path,
    cache: &CacheDir,
    ceiling: &Limits,
    order: &Order<'_>,
) -> Result<Prepared, SandboxError> {
    let here = |error: std::io::Error| SandboxError::Cache(error.to_string());
    let work = cache.folder("work").map_err(here)?;
    sweep(&work);
    let folder = tempfile::tempdir_in(work).map_err(here)?;
    let path = |name: &str| folder.path().join(name);
    let request = Request {
        options: order.options.clone(),
        limits: order.limits.clone(),
        grants: order.grants.clone(),
        ceiling: ceiling.clone(),
        cache: std::path::absolute(cache.root()).map_err(here)?,
    };
    let mut request = serde_json::to_vec(&request).map_err(|error| SandboxError::Engine(error.to_string()))?;
    request.push(b'\n');
    std::fs::write(path(COMPONENT), order.bytes).map_err(here)?;
    let arguments = ["__prepare-component".as_ref(), folder.path().as_os_str()];
    let answer: Result<Prepared, SandboxError> =
        child::ask_about(program, &arguments, request, patience(order.limits))
            .map_err(|fault| ended(&fault, order.limits))?;
    let mut prepared = answer?;
    if let Ok(ready) = &mut prepared.ready {
        ready.snapshot = std::fs::read(path(SNAPSHOT)).ok();
    }
    Ok(prepared)
}

/// Removes what processes that were killed have left.
fn sweep(work: &Path) {
    let Ok(folders) = std::fs::read_dir(work) else { return };
    for folder in folders.flatten() {
        let age = folder.metadata().and_then(|facts| facts.modified()).ok().and_then(|made| made.elapsed().ok());
        if age.is_some_and(|age| age > STALE) {
            // Another process may be at it, too.
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

/// The time left for compiling; the compiler itself cannot be interrupted.
struct Watch {
    left: Cell<Duration>,
    limit: Duration,
}

impl Watch {
    /// Compiles on a thread of its own. Out of time, the thread is left to end with the process.
    fn compile(&self, engine: &Engine, component: &[u8]) -> Result<Compiled, SandboxError> {
        let begin = child::processor_time();
        let (sender, receiver) = mpsc::channel();
        let (engine, component) = (engine.clone(), component.to_vec());
        let work = move || {
            // Nobody waits for it any more if this fails.
            let _ = sender.send(Compiled::new(&engine, &component));
        };
        let thread = std::thread::Builder::new().name("gpux-compile".to_owned()).spawn(work);
        thread.map_err(|error| SandboxError::Engine(error.to_string()))?;
        let outcome = loop {
            let outcome = receiver.recv_timeout(GLANCE.min(self.left.get()));
            let taken = child::processor_time().saturating_sub(begin);
            match outcome {
                Err(RecvTimeoutError::Timeout) if taken < self.left.get() => {}
                Err(RecvTimeoutError::Timeout) => break Err(out_of_time(self.limit)),
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(SandboxError::Compile("the compiler panicked".to_owned()));
                }
                Ok(compiled) => break compiled,
            }
        };
        self.left.set(self.left.get().saturating_sub(child::processor_time().saturating_sub(begin)));
        outcome
    }
}

fn out_of_time(limit: Duration) -> SandboxError {
    SandboxError::Limit(exceeded("compile_time", format!("{limit:?}")))
}

/// Times that `setup_time` may pass: a setup describes and configures, and is made twice if the
/// first shows that there can be no snapshot.
const SETUPS: u32 = 4;

/// How long the child may take: all compiling and all setups.
fn patience(limits: &Limits) -> Duration {
    let setups = limits.setup_time.saturating_mul(SETUPS);
    limits.compile_time.saturating_mul(BUSY).saturating_add(setups).saturating_add(SLACK)
}

/// A child that gave no answer ran into one of its bounds, or broke.
fn ended(fault: &ChildFault, limits: &Limits) -> SandboxError {
    match fault {
        ChildFault::Timeout(_) => out_of_time(limits.compile_time),
        ChildFault::Start(_) => SandboxError::Engine(fault.to_string()),
        // The allocator's own last words.
        ChildFault::Ended { stderr, .. } if stderr.contains("memory allocation of") => {
            SandboxError::Limit(exceeded("compile_memory", bytes(limits.compile_memory)))
        }
        ChildFault::Ended { .. } => SandboxError::Compile(format!("the process that compiled it broke: {fault}")),
    }
}

/// What `gpux __prepare-component FOLDER` does with what it was told, and prints on one line. Bounds
/// the memory of the whole process, so nothing else may be done in it.
pub fn answer(folder: &Path, request: std::io::Result<Request>, registry: Registry) -> String {
    let told = request.map_err(|error| SandboxError::Engine(error.to_string()));
    serde_json::to_string(&told.and_then(|request| work(folder, request, registry))).unwrap_or_default()
}

fn work(folder: &Path, request: Request, registry: Registry) -> Result<Prepared, SandboxError> {
    let here = |error: std::io::Error| SandboxError::Cache(error.to_string());
    let Request { options, limits, grants, ceiling, cache } = request;
    child::give_way();
    child::bound_processor_time(patience(&limits));
    child::bound_memory(Some(limits.compile_memory as u64));
    let bytes = std::fs::read(folder.join(COMPONENT)).map_err(here)?;
    let order =
        Order { bytes: &bytes, options: &options, limits: &limits, grants: &grants, registry: &Arc::new(registry) };
    let watch = Watch { left: Cell::new(limits.compile_time), limit: limits.compile_time };
    let compile = |engine: &Engine, component: &[u8]| watch.compile(engine, component);
    let prepared = prepare(&order, &compile)?;
    if let Ok(ready) = &prepared.ready {
        // The same settings as the process that will ask the cache for it; but one slot is enough.
        let machine = Machine::new(Some(&CacheDir::at(cache)), &ceiling, 1)?;
        match &ready.snapshot {
            Some(snapshot) => {
                std::fs::write(folder.join(SNAPSHOT), snapshot).map_err(here)?;
                compile(&machine.engine, snapshot)?;
            }
            None => drop(compile(&machine.engine, &componentize(&bytes)?)?),
        }
    }
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_is_older_than_a_day_is_swept() {
        let work = tempfile::tempdir().unwrap();
        for (name, hours) in [("now", 0), ("today", 20), ("yesterday", 30)] {
            let folder = work.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(COMPONENT), "").unwrap();
            let made = SystemTime::now() - Duration::from_hours(hours);
            std::fs::File::open(folder).unwrap().set_modified(made).unwrap();
        }
        sweep(work.path());
        let left = ["now", "today", "yesterday"].map(|name| work.path().join(name).exists());
        assert_eq!(left, [true, true, false]);
    }
}
