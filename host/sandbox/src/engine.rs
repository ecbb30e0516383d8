//! The engine of a sandbox: how wasmtime is set up, and why.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use wasmtime::{Config, Enabled, Engine, OptLevel, PoolingAllocationConfig};

use super::clock::Ticker;
use super::component::Compiled;
use super::error::SandboxError;
use super::limits::Limits;
use super::native_code::NativeCode;
use super::slots::Slots;
use gpux_core::threads;

/// Memory of a slot that stays mapped from one request to the next. With `pagemap_scan`, only the
/// pages that a request wrote are reset: a fresh sandbox costs a third.
const KEEP_MEMORY: usize = 1 << 20;
/// The same for tables.
const KEEP_TABLE: usize = 64 << 10;
/// Memories or tables of a component that the pool itself would take.
const MOST: u32 = 1000;
/// Stack of a guest; the rest of the worker's own (2 MiB by default) is for the host's functions.
const STACK: usize = 512 << 10;

/// Engine, ticker and what was compiled; every component of a sandbox shares them.
pub(super) struct Machine {
    pub(super) engine: Engine,
    pub(super) ticker: Ticker,
    /// how many threads can run guests at a time
    pub(super) cores: usize,
    /// whether instances come from a pool; without one each request reserves its memories anew
    pub(super) pooled: bool,
    slots: Slots,
    /// places left for instances that wait for a next request, or for a model
    places: AtomicUsize,
    /// the components that are loaded, by SHA-256
    loaded: Mutex<HashMap<String, Weak<Compiled>>>,
    /// where the files may lie that native code is loaded from
    folders: Vec<PathBuf>,
}

/// A slot for one sandbox, until this is dropped: after the sandbox.
pub(super) struct Slot(Arc<Machine>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.slots.give_back();
    }
}

/// Leave for an instance to keep its slot while it does nothing.
pub(super) struct Place(Arc<Machine>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.places.fetch_add(1, Ordering::Relaxed);
    }
}

impl Machine {
    pub(super) fn new(folders: Vec<PathBuf>, ceiling: &Limits, slots: u32) -> Result<Self, SandboxError> {
        let mut config = config();
        // The pool reserves address space (4 GiB for each memory, none of it real memory), which a
        // machine or a container may refuse.
        config.allocation_strategy(pool(ceiling, slots));
        let mut engine = Engine::new(&config);
        let pooled = engine.is_ok();
        if !pooled {
            config.allocation_strategy(wasmtime::InstanceAllocationStrategy::OnDemand);
            engine = Engine::new(&config);
        }
        Ok(Self { pooled, folders, ..Self::around(engine, slots as usize)? })
    }

    /// For describing and configuring a component once: compiled quickly rather than well.
    pub(super) fn for_setup() -> Result<Self, SandboxError> {
        let mut config = config();
        config.cranelift_opt_level(OptLevel::None);
        Self::around(Engine::new(&config), usize::MAX)
    }

    /// A slot for a sandbox, as soon as one is free; `None` if none is by the deadline. Those that
    /// do nothing leave one for each core, so that whoever waits here waits for guests at work.
    pub(super) fn slot(self: &Arc<Self>, deadline: Option<Instant>) -> Option<Slot> {
        self.slots.take(deadline).then(|| Slot(self.clone()))
    }

    /// A place to wait, if one is left: whatever waits, each core finds a slot to run a guest in.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        let take = |places: usize| places.checked_sub(1);
        self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| Place(self.clone()))
    }

    /// The component with this SHA-256, if it is loaded: code and the memories that instances begin with are there
    /// once, however many steps use them.
    pub(super) fn find(&self, digest: &str) -> Option<Arc<Compiled>> {
        self.loaded().get(digest).and_then(Weak::upgrade)
    }

    /// Loads the component with this SHA-256 from its native code.
    pub(super) fn load(&self, digest: &str, code: &NativeCode) -> Result<Arc<Compiled>, SandboxError> {
        let compiled = Arc::new(Compiled::from(code.load(&self.engine, &self.folders)?));
        let mut loaded = self.loaded();
        loaded.retain(|_, compiled| compiled.strong_count() > 0);
        loaded.insert(digest.to_owned(), Arc::downgrade(&compiled));
        Ok(compiled)
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<String, Weak<Compiled>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn around(engine: wasmtime::Result<Engine>, slots: usize) -> Result<Self, SandboxError> {
        let engine = engine.map_err(|error| SandboxError::Engine(format!("{error:#}")))?;
        let ticker = Ticker::start(engine.clone());
        let ticker = ticker.map_err(|error| SandboxError::Engine(format!("its clock has no thread: {error}")))?;
        let cores = cores();
        let places = slots.saturating_sub(cores).into();
        let slots = Slots::new(slots.max(1));
        Ok(Self { engine, ticker, cores, pooled: false, slots, places, loaded: Mutex::default(), folders: Vec::new() })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// An engine that compiles for every [`Machine`]: a pool makes no difference to the code.
pub(super) fn compiler() -> Result<Engine, SandboxError> {
    Engine::new(&config()).map_err(|error| SandboxError::Engine(format!("{error:#}")))
}

fn config() -> Config {
    let mut config = Config::new();
    config
        // Calls are plain calls on the worker's thread: a third of the cost of async ones.
        .concurrency_support(false)
        .epoch_interruption(true)
        // The compiler panics where one of its threads cannot be started; two more are ours.
        .parallel_compilation(threads::require(cores() + 2).is_ok())
        .max_wasm_stack(STACK)
        // Nobody sees a stranger's stack frames, and they cost time on each trap.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        // Not needed by any toolchain that makes steps; each is attack surface. (Threads, garbage
        // collection and exceptions are not even compiled in.)
        .wasm_memory64(false)
        .wasm_tail_call(false)
        // The same results on every processor.
        .relaxed_simd_deterministic(true);
    config
}

fn pool(ceiling: &Limits, slots: u32) -> PoolingAllocationConfig {
    let count = |each: usize| u32::try_from(each).unwrap_or(u32::MAX);
    let total = |each: usize| count(each).saturating_mul(slots);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(total(ceiling.instances))
        .max_core_instances_per_component(count(ceiling.instances))
        .total_memories(total(ceiling.memories))
        // Above the limits, which name themselves when they refuse a component.
        .max_memories_per_component(MOST)
        .max_memories_per_module(MOST)
        .total_tables(total(ceiling.tables))
        .max_tables_per_component(MOST)
        .max_tables_per_module(MOST)
        .table_elements(ceiling.table_elements)
        .max_memory_size(ceiling.memory)
        // Nothing here is async; a thousand stacks would be reserved for it.
        .total_stacks(0)
        .linear_memory_keep_resident(KEEP_MEMORY)
        .table_keep_resident(KEEP_TABLE)
        .pagemap_scan(Enabled::Auto);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_waits_each_thread_finds_a_slot() {
        let machine = Arc::new(Machine::new(Vec::new(), &Limits::default(), 1).unwrap());
        assert!(machine.place().is_none());
        let slots = machine.cores as u32 + 1;
        let machine = Arc::new(Machine::new(Vec::new(), &Limits::default(), slots).unwrap());
        let place = machine.place();
        assert!(place.is_some() && machine.place().is_none());
        drop(place);
        assert!(machine.place().is_some());
    }

    #[test]
    fn what_is_loaded_twice_is_there_once() {
        let machine = Machine::new(Vec::new(), &Limits::default(), 1).unwrap();
        let code = NativeCode::compile(&machine.engine, b"\0asm\x0d\0\x01\0").unwrap();
        assert!(machine.find("digest").is_none());
        let first = machine.load("digest", &code).unwrap();
        assert!(Arc::ptr_eq(&first, &machine.find("digest").unwrap()));
        drop(first);
        assert_eq!(machine.loaded().values().filter(|compiled| compiled.strong_count() > 0).count(), 0);
    }

    #[test]
    fn code_fits_machines_with_a_pool_and_without() {
        let code = NativeCode::compile(&compiler().unwrap(), b"\0asm\x0d\0\x01\0").unwrap();
        for (slots, pooled) in [(4, true), (1 << 20, false)] {
            let machine = Machine::new(Vec::new(), &Limits::default(), slots).unwrap();
            assert_eq!(machine.pooled, pooled);
            machine.load("digest", &code).unwrap();
        }
    }

    #[test]
    fn a_machine_without_address_space_falls_back() {
        let machine = Machine::new(Vec::new(), &Limits::default(), 1 << 20).unwrap();
        assert!(machine.engine.pooling_allocator_metrics().is_none(), "a million slots of four memories fit nowhere");
        assert!(!machine.pooled);
        let machine = Machine::new(Vec::new(), &Limits::default(), 4).unwrap();
        assert!(machine.engine.pooling_allocator_metrics().is_some() && machine.pooled);
    }
}
