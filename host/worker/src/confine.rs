//! Confines a process to what one pipeline needs.

use gpux::LoadOptions;
use gpux::internal::{Definition, PipelineAccess};
use gpux_confinement::{Confinement, limit_resources};

/// Files open at a time: models have few, shared memory and folders of grants some.
const OPEN_FILES: u64 = 4096;

/// A worker is what the kernel should end first for lack of memory.
const OOM_SCORE: &str = "500";

/// Confines this process, which must have no other threads, to what the pipeline needs; returns what the system lacks
/// for it, in words. Its cache and its folder for temporary files must be its own.
pub fn confine(definition: &Definition, load_options: &mut LoadOptions) -> Vec<String> {
    let PipelineAccess { read, mut write, accelerators } = definition.access(load_options);
    let mut lacks = Vec::new();
    if let Err(error) = limit_resources(OPEN_FILES) {
        lacks.push(format!("open files are not limited: {error}"));
    }
    // Without it, the kernel chooses by size.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    write.push(std::env::temp_dir());
    let execute = load_options.program.iter().cloned().collect();
    let enforcement = Confinement { read, write, execute, accelerators }.apply();
    let missing = enforcement.protections().into_iter().filter_map(|(name, protection)| match protection {
        gpux_confinement::Protection::Full => None,
        lack => Some(format!("{name}: {lack}")),
    });
    lacks.extend(missing);
    lacks
}
