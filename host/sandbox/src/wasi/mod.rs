//! WASI 0.2, as much of it as a grant opens.
//!
//! Each interface is linked only if the component imports it. All resources of a guest are
//! bounded here: a wait ends at the guest's deadline, all its handles count against
//! `handles`, reads against `memory`, writes to files against `result`. No call leaves
//! the calling thread, and no async runtime is started.

mod clocks;
mod files;
mod listing;
#[cfg(unix)]
mod open;
mod random;
mod stdio;
mod streams;

use std::time::Instant;

use wasmtime::component::{Linker, Resource, ResourceTableError};
use wasmtime_wasi::p2::bindings::{cli, clocks as wasi_clocks, filesystem, random as wasi_random, sync};

use super::failure::StopReason;
use super::grants::Capability;
use super::limits::{bytes, exceeded};
use super::state::{HasState, State};
use super::wasi_state::{GrantedFolders, Wasi};
use gpux_core::StepFailure;

/// Files and folders that one sandbox may hold open beside those it was granted: a process has
/// few of them (often 1024), and every worker may run a guest.
const OPEN_FILES: usize = 32;

/// An interface that can be linked.
pub(super) struct WasiInterface {
    /// its name after `wasi:`
    pub(super) name: &'static str,
    /// what importing it asks for
    pub(super) capability: Capability,
    add: Add,
}

/// Adds an interface that the bindings cover.
macro_rules! bound {
    ($($module:ident)::+) => {
        |linker| $($module)::+::add_to_linker::<State, HasState>(linker, |state| state)
    };
}

/// All of them. What asks for files or the environment gives nothing as long as no folder and no
/// variable is granted.
const INTERFACES: [WasiInterface; 20] = [
    WasiInterface::new("clocks/monotonic-clock", Capability::Clock, bound!(wasi_clocks::monotonic_clock)),
    WasiInterface::new("clocks/wall-clock", Capability::Clock, bound!(wasi_clocks::wall_clock)),
    WasiInterface::new("random/random", Capability::Random, bound!(wasi_random::random)),
    WasiInterface::new("random/insecure", Capability::Random, bound!(wasi_random::insecure)),
    WasiInterface::new("random/insecure-seed", Capability::Random, bound!(wasi_random::insecure_seed)),
    WasiInterface::new("filesystem/types", Capability::Files, bound!(sync::filesystem::types)),
    WasiInterface::new("filesystem/preopens", Capability::Files, bound!(filesystem::preopens)),
    WasiInterface::new("cli/environment", Capability::Environment, bound!(cli::environment)),
    WasiInterface::new("cli/exit", Capability::Stdio, bound!(cli::exit)),
    WasiInterface::new("cli/stdin", Capability::Stdio, bound!(cli::stdin)),
    WasiInterface::new("cli/stdout", Capability::Stdio, bound!(cli::stdout)),
    WasiInterface::new("cli/stderr", Capability::Stdio, bound!(cli::stderr)),
    WasiInterface::new("cli/terminal-input", Capability::Stdio, bound!(cli::terminal_input)),
    WasiInterface::new("cli/terminal-output", Capability::Stdio, bound!(cli::terminal_output)),
    WasiInterface::new("cli/terminal-stdin", Capability::Stdio, bound!(cli::terminal_stdin)),
    WasiInterface::new("cli/terminal-stdout", Capability::Stdio, bound!(cli::terminal_stdout)),
    WasiInterface::new("cli/terminal-stderr", Capability::Stdio, bound!(cli::terminal_stderr)),
    WasiInterface::new("io/error", Capability::Stdio, streams::add_error),
    WasiInterface::new("io/poll", Capability::Stdio, bound!(sync::io::poll)),
    WasiInterface::new("io/streams", Capability::Stdio, bound!(sync::io::streams)),
];

type Add = fn(&mut Linker<State>) -> wasmtime::Result<()>;

impl WasiInterface {
    const fn new(name: &'static str, capability: Capability, add: Add) -> Self {
        Self { name, capability, add }
    }

    /// The interface `wasi:NAME`.
    pub(super) fn from_name(name: &str) -> Option<&'static Self> {
        INTERFACES.iter().find(|interface| interface.name == name)
    }

    pub(super) fn link(&self, linker: &mut Linker<State>) -> wasmtime::Result<()> {
        (self.add)(linker)
    }
}

impl State {
    /// WASI's part of the sandbox, which exists if any of it is linked.
    fn wasi(&mut self) -> &mut Wasi {
        self.wasi.get_or_insert_with(|| Box::new(Wasi::new(&GrantedFolders::default())))
    }

    /// Puts `entry` into the table. Its handle goes by the type that the bindings call it.
    fn insert_resource<T: Send + 'static, Handle: 'static>(
        &mut self,
        entry: T,
    ) -> Result<Resource<Handle>, StopReason> {
        self.check_handle_limit()?;
        let wasi = self.wasi();
        let key = wasi.table.push(entry).map_err(invalid_handle)?;
        wasi.held += 1;
        Ok(Resource::new_own(key.rep()))
    }

    fn resource_mut<T: 'static, Handle: 'static>(&mut self, handle: &Resource<Handle>) -> Result<&mut T, StopReason> {
        self.wasi().table.get_mut(&key(handle)).map_err(invalid_handle)
    }

    fn remove_resource<T: 'static, Handle: 'static>(&mut self, handle: &Resource<Handle>) -> Result<T, StopReason> {
        let wasi = self.wasi();
        let entry = wasi.table.delete(key(handle)).map_err(invalid_handle)?;
        wasi.held -= 1;
        Ok(entry)
    }

    /// Counts a file or a folder that is about to be held open, and its entry in the table.
    fn count_open(&mut self) -> Result<(), StopReason> {
        self.check_handle_limit()?;
        let most = OPEN_FILES + self.capabilities.grants.dirs.len();
        let wasi = self.wasi();
        if wasi.open >= most {
            let why = format!("it holds {most} files and streams of files open, the most a sandbox may");
            return Err(StopReason(StepFailure::Failed(why)));
        }
        wasi.open += 1;
        wasi.held += 1;
        Ok(())
    }

    /// Takes what [`State::count_open`] counted out of the table.
    fn close<T: 'static>(&mut self, handle: &Resource<T>) -> Result<(), StopReason> {
        self.remove_resource::<T, T>(handle)?;
        self.wasi().open -= 1;
        Ok(())
    }

    /// Counts bytes that are about to be written to a file.
    fn write_to_disk(&mut self, size: usize) -> Result<(), StopReason> {
        let limit = self.capabilities.limits.result;
        let wasi = self.wasi();
        let written = wasi.written.saturating_add(size);
        if written > limit {
            return Err(StopReason::limit(exceeded("result", bytes(limit))));
        }
        wasi.written = written;
        Ok(())
    }

    /// Sleeps until `wake`, or stops the guest at its deadline if that is earlier.
    fn sleep_until(&self, wake: Option<Instant>) -> Result<(), StopReason> {
        let end = self.time_budget.end();
        loop {
            self.time_budget.check()?;
            let now = Instant::now();
            if wake.is_some_and(|wake| now >= wake) {
                return Ok(());
            }
            let until = wake.map_or(end, |wake| wake.min(end));
            std::thread::sleep(until.saturating_duration_since(now));
        }
    }
}

/// The key in the table behind a handle: the table checks what kind of entry it is.
fn key<T: 'static, Handle: 'static>(handle: &Resource<Handle>) -> Resource<T> {
    Resource::new_own(handle.rep())
}

fn invalid_handle(_: ResourceTableError) -> StopReason {
    StopReason(StepFailure::Failed("it used a WASI handle that it no longer holds".to_owned()))
}
