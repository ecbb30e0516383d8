//! The context of trials of a model in child processes.

use std::path::{Path, PathBuf};

use super::engine::Engine;
use super::model_file::ModelFile;
use super::providers::{ExecutionProvider, ProviderChoice, ProviderLibrary};
use gpux_core::CacheDir;

/// Memory for an engine itself, in bytes; a model may take eight times its size on top.
const MEMORY: u64 = 2 << 30;

/// A model under trial, and the program, engine and cache for it.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// the `gpux` program; without it nothing is tried
    pub program: Option<&'a Path>,
    /// where results are remembered
    pub cache: Option<&'a CacheDir>,
    /// the model
    pub file: &'a ModelFile,
    /// the engine
    pub engine: &'a dyn Engine,
    /// its library; `None` for the embedded engine
    pub library: Option<&'a Path>,
    /// libraries of plug-ins that are registered with it
    pub plugins: &'a [ProviderLibrary],
}

/// The providers that a trial may come to.
pub(super) fn candidate_providers<'a>(
    providers: &'a ProviderChoice,
    offered: &'a [ExecutionProvider],
) -> &'a [ExecutionProvider] {
    match providers {
        ProviderChoice::These(providers) => providers,
        ProviderChoice::First(_) | ProviderChoice::Auto | ProviderChoice::Fastest => offered,
    }
}

/// The most memory that trying a model on these providers may take; `None` where drivers of GPUs
/// reserve far more than they use.
pub(super) fn memory_limit(trial: &Trial<'_>, candidate_providers: &[ExecutionProvider]) -> Option<u64> {
    let all = [candidate_providers, trial.engine.providers()];
    let on_cpu = all.iter().any(|all| all.iter().all(|one| *one == ExecutionProvider::Cpu));
    on_cpu.then(|| MEMORY + 8 * trial.file.info().size_bytes)
}

pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
