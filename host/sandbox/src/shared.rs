//! State shared by the handles of one sandbox and the steps loaded through them.

use std::path::PathBuf;
use std::sync::Arc;

use super::engine::SandboxEngine;
use super::limits::Limits;
use gpux_core::CacheDir;
use gpux_core::process_exit::Scratch;

/// The engine, the operator's limits and the cache of a [`Sandbox`](super::Sandbox).
pub(super) struct SandboxShared {
    pub(super) engine: Arc<SandboxEngine>,
    pub(super) ceiling: Limits,
    pub(super) cache: Option<CacheDir>,
    pub(super) program: Option<PathBuf>,
    /// where components are set up for want of a cache
    pub(super) _scratch: Option<Scratch>,
}
