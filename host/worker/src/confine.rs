//! Confines a process to what one pipeline needs.

use std::io;

use gpux::LoadOptions;
use gpux::internal::{Definition, PipelineAccess};
use gpux_confinement::{Confinement, Protection, limit_resources};

/// Files open at a time: models have few, shared memory and folders of grants some.
const OPEN_FILES: u64 = 4096;

/// A worker is what the kernel should end first for lack of memory.
const OOM_SCORE: &str = "500";

/// What the system lacks to confine a process, in words.
#[derive(Debug)]
pub struct ConfinementLacks {
    /// for what `--isolation-strict` asks
    pub required: Vec<String>,
    /// for namespaces: the rest bounds the process as well
    pub namespaces: Option<String>,
}

/// Confines this process, which must have no other threads, to what the pipeline needs. Its cache and its folder for
/// temporary files must be its own.
///
/// Where the system gives namespaces, it returns in a copy of the process; see [`Confinement::enter_namespaces`].
///
/// # Errors
///
/// The process must end.
pub fn confine(definition: &Definition, load_options: &mut LoadOptions) -> io::Result<ConfinementLacks> {
    let PipelineAccess { read, mut write, accelerators } = definition.access(load_options);
    let mut lacks = Vec::new();
    if let Err(error) = limit_resources(OPEN_FILES) {
        lacks.push(format!("open files are not limited: {error}"));
    }
    // Without it, the kernel chooses by size.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    write.push(std::env::temp_dir());
    let execute = load_options.program.iter().cloned().collect();
    let confinement = Confinement { read, write, execute, accelerators };
    let namespaces = match confinement.enter_namespaces()? {
        Protection::Full => None,
        Protection::Partial(lack) => {
            Some(format!("namespaces of their own with a gap, where Landlock and seccomp hold alone: {lack}"))
        }
        Protection::Missing(lack) => {
            Some(format!("no namespaces of their own, so that Landlock and seccomp hold alone: {lack}"))
        }
    };
    let enforcement = confinement.apply();
    let missing = enforcement.protections().into_iter().filter_map(|(name, protection)| match protection {
        Protection::Full => None,
        lack => Some(format!("{name}: {lack}")),
    });
    lacks.extend(missing);
    Ok(ConfinementLacks { required: lacks, namespaces })
}
