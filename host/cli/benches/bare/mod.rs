//! Bare wasmtime, set up as gpux sets it up: what the price of a sandbox stands beside.

use std::path::Path;

use wasmtime::component::{InstancePre, Linker};
use wasmtime::{Engine, Store};

/// A component that can be instantiated.
pub(crate) struct Bare {
    engine: Engine,
    pre: InstancePre<()>,
}

impl Bare {
    /// Compiles a component, or loads its native code from the file `kept`, where it then lies.
    pub(crate) fn new(component: &[u8], kept: Option<&Path>) -> Self {
        let engine = Engine::new(&config()).unwrap();
        let code = kept.and_then(|file| std::fs::read(file).ok()).unwrap_or_else(|| {
            let code = engine.precompile_component(component).unwrap();
            if let Some(file) = kept {
                std::fs::write(file, &code).unwrap();
            }
            code
        });
        let folders = [std::env::temp_dir()];
        let component = gpux_native_code::load(&engine, &folders, |file| file.write_all(&code)).unwrap();
        let mut linker = Linker::<()>::new(&engine);
        linker.define_unknown_imports_as_traps(&component).unwrap();
        let pre = linker.instantiate_pre(&component).unwrap();
        Self { engine, pre }
    }

    /// Makes an instance, calls nothing, and drops it.
    pub(crate) fn instantiate(&self) {
        let mut store = Store::new(&self.engine, ());
        store.set_epoch_deadline(1 << 40);
        std::hint::black_box(self.pre.instantiate(&mut store).unwrap());
    }
}

/// What gpux sets as well, and a pool with room for a few instances.
fn config() -> wasmtime::Config {
    let mut pool = wasmtime::PoolingAllocationConfig::new();
    pool.total_component_instances(4)
        .total_core_instances(16)
        .total_memories(4)
        .total_tables(16)
        .max_memory_size(64 << 20)
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .pagemap_scan(wasmtime::Enabled::Auto);
    let mut config = wasmtime::Config::new();
    config.concurrency_support(false).epoch_interruption(true).allocation_strategy(pool);
    config
}
