//! The engine of a sandbox: how wasmtime is set up, and why.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use wasmtime::{CacheStore, Config, Enabled, Engine, PoolingAllocationConfig};

use super::component::CompiledComponent;
use super::error::SandboxError;
use super::limits::Limits;
use super::native_code::NativeCode;
use super::slot_pool::SlotPool;
use super::time_budget::EpochTicker;
use gpux_core::threads;

/// Memory of a slot that stays mapped from one request to the next. With `pagemap_scan`, only the
/// pages that a request wrote are reset: a fresh sandbox costs a third.
const KEEP_MEMORY: usize = 1 << 20;
/// The same for tables.
const KEEP_TABLE: usize = 64 << 10;
/// Memories or tables of a component that the pool itself would take.
const MAX_PER_COMPONENT: u32 = 1000;
/// Stack of a guest; the rest of the worker's own (2 MiB by default) is for the host's functions.
const STACK: usize = 512 << 10;

/// Engine, ticker and compiled code; every component of a sandbox shares them.
pub(super) struct SandboxEngine {
    pub(super) wasmtime: Engine,
    pub(super) ticker: EpochTicker,
    /// how many threads can run guests at a time
    pub(super) cores: usize,
    /// whether instances come from a pool; without one each request reserves its memories anew
    pub(super) pooled: bool,
    slots: SlotPool,
    /// places left for instances that wait for a next request, or for a model
    idle_permits: AtomicUsize,
    /// the components that are loaded, by SHA-256
    loaded: Mutex<HashMap<String, Weak<CompiledComponent>>>,
    /// where the files may lie that native code is loaded from
    folders: Vec<PathBuf>,
}

/// A slot for one sandbox, until this is dropped: after the sandbox.
pub(super) struct SlotPermit(Arc<SandboxEngine>);

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.0.slots.give_back();
    }
}

/// Permission for an idle instance to keep its slot.
pub(super) struct IdlePermit(Arc<SandboxEngine>);

impl Drop for IdlePermit {
    fn drop(&mut self) {
        self.0.idle_permits.fetch_add(1, Ordering::Relaxed);
    }
}

impl SandboxEngine {
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
        Ok(Self { pooled, folders, ..Self::with_engine(engine, slots as usize)? })
    }

    /// For describing and configuring a component once, and for compiling it for every other engine: a pool makes no
    /// difference to the code. It takes functions from `functions`, and adds those that it compiles.
    pub(super) fn for_setup(functions: Arc<dyn CacheStore>) -> Result<Self, SandboxError> {
        let mut config = config();
        let engine = config.enable_incremental_compilation(functions).and_then(|config| Engine::new(config));
        Self::with_engine(engine, usize::MAX)
    }

    /// Waits for a slot; `None` if none is free by the deadline. Idle sandboxes
    /// leave one slot for each core, so that a caller waits only for guests at work.
    pub(super) fn slot(self: &Arc<Self>, deadline: Option<Instant>) -> Option<SlotPermit> {
        self.slots.take(deadline).then(|| SlotPermit(self.clone()))
    }

    /// A place to wait, if one is left: whatever waits, each core finds a slot to run a guest in.
    pub(super) fn idle_permit(self: &Arc<Self>) -> Option<IdlePermit> {
        let take = |idle_permits: usize| idle_permits.checked_sub(1);
        self.idle_permits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .ok()
            .map(|_| IdlePermit(self.clone()))
    }

    /// The component with this SHA-256, if it is loaded: code and the memories that instances begin with are there
    /// once, however many steps use them.
    pub(super) fn find(&self, digest: &str) -> Option<Arc<CompiledComponent>> {
        self.loaded().get(digest).and_then(Weak::upgrade)
    }

    /// Loads the component with this SHA-256 from its native code.
    pub(super) fn load(&self, digest: &str, code: &NativeCode) -> Result<Arc<CompiledComponent>, SandboxError> {
        let compiled = Arc::new(CompiledComponent::from(code.load(&self.wasmtime, &self.folders)?));
        let mut loaded = self.loaded();
        loaded.retain(|_, compiled| compiled.strong_count() > 0);
        loaded.insert(digest.to_owned(), Arc::downgrade(&compiled));
        Ok(compiled)
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<String, Weak<CompiledComponent>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_engine(engine: wasmtime::Result<Engine>, slots: usize) -> Result<Self, SandboxError> {
        let engine = engine.map_err(|error| SandboxError::Engine(format!("{error:#}")))?;
        let ticker = EpochTicker::start(engine.clone());
        let ticker = ticker.map_err(|error| SandboxError::Engine(format!("its clock has no thread: {error}")))?;
        let cores = cores();
        let idle_permits = slots.saturating_sub(cores).into();
        let slots = SlotPool::new(slots.max(1));
        Ok(Self {
            wasmtime: engine,
            ticker,
            cores,
            pooled: false,
            slots,
            idle_permits,
            loaded: Mutex::default(),
            folders: Vec::new(),
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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
        // A guest's stack frames are shown nowhere, and collecting them costs time on each trap.
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
        .max_memories_per_component(MAX_PER_COMPONENT)
        .max_memories_per_module(MAX_PER_COMPONENT)
        .total_tables(total(ceiling.tables))
        .max_tables_per_component(MAX_PER_COMPONENT)
        .max_tables_per_module(MAX_PER_COMPONENT)
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
    use super::super::prepare::FunctionCache;
    use super::*;

    #[test]
    fn idle_permits_leave_a_slot_per_core() {
        let engine = Arc::new(SandboxEngine::new(Vec::new(), &Limits::default(), 1).unwrap());
        assert!(engine.idle_permit().is_none());
        let slots = engine.cores as u32 + 1;
        let engine = Arc::new(SandboxEngine::new(Vec::new(), &Limits::default(), slots).unwrap());
        let permit = engine.idle_permit();
        assert!(permit.is_some() && engine.idle_permit().is_none());
        drop(permit);
        assert!(engine.idle_permit().is_some());
    }

    #[test]
    fn shares_components_loaded_twice() {
        let engine = SandboxEngine::new(Vec::new(), &Limits::default(), 1).unwrap();
        let code = NativeCode::compile(&engine.wasmtime, b"\0asm\x0d\0\x01\0").unwrap();
        assert!(engine.find("digest").is_none());
        let first = engine.load("digest", &code).unwrap();
        assert!(Arc::ptr_eq(&first, &engine.find("digest").unwrap()));
        drop(first);
        assert_eq!(engine.loaded().values().filter(|compiled| compiled.strong_count() > 0).count(), 0);
    }

    #[test]
    fn native_code_loads_with_and_without_a_pool() {
        let compiler = SandboxEngine::for_setup(Arc::new(FunctionCache::default())).unwrap();
        let code = NativeCode::compile(&compiler.wasmtime, b"\0asm\x0d\0\x01\0").unwrap();
        for (slots, pooled) in [(4, true), (1 << 20, false)] {
            let engine = SandboxEngine::new(Vec::new(), &Limits::default(), slots).unwrap();
            assert_eq!(engine.pooled, pooled);
            engine.load("digest", &code).unwrap();
        }
    }

    #[test]
    fn falls_back_to_on_demand_allocation() {
        let engine = SandboxEngine::new(Vec::new(), &Limits::default(), 1 << 20).unwrap();
        assert!(engine.wasmtime.pooling_allocator_metrics().is_none(), "a million slots of four memories fit nowhere");
        assert!(!engine.pooled);
        let engine = SandboxEngine::new(Vec::new(), &Limits::default(), 4).unwrap();
        assert!(engine.wasmtime.pooling_allocator_metrics().is_some() && engine.pooled);
    }
}
