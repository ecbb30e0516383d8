//! Prepares a component once, at load: it is described, its options are checked,
//! it is configured and, where possible, a snapshot is taken, from which every
//! request starts.
//!
//! All of this works on untrusted bytes, compiling included, so it happens in a child process within
//! bounds (`child`), and what came of it is remembered (`snapshot_cache`).

mod child;
mod function_cache;
mod in_process;
mod processor_timer;
mod snapshot;
mod snapshot_cache;
mod tree;

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use wasmtime::Engine;

pub use self::child::answer as prepare_answer;
pub(super) use self::child::prepare_in_child;
pub(super) use self::function_cache::FunctionCache;
pub(super) use self::in_process::{prepare, signature};
pub(super) use self::processor_timer::ProcessorTimer;
pub(super) use self::snapshot_cache::SnapshotCache;
use super::component::ComponentKind;
use super::config::ComponentConfig;
use super::error::SandboxError;
use super::imports::Import;
use super::native_code::NativeCode;
use super::prepared::PreparedCall;
use gpux_core::{Registry, Signature};

/// wasmtime's version and settings.
fn compiler_hash(engine: &Engine) -> u64 {
    // With the same, this hasher gives the same.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

/// A component that is to be prepared, and for what.
pub(super) struct PrepareRequest<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) config: &'a ComponentConfig,
    pub(super) registry: &'a Arc<Registry>,
    /// whether requests will run, for which it is compiled; else it is only described
    pub(super) to_run: bool,
}

/// A component as far as it could be prepared.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PreparedComponent {
    pub(super) facts: ComponentFacts,
    pub(super) described: Option<ComponentDescription>,
    pub(super) ready: Result<ConfiguredComponent, SandboxError>,
}

/// The static description of a component.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ComponentFacts {
    /// SHA-256 of its bytes as given, in hexadecimal
    pub(super) digest: String,
    /// bytes as given
    pub(super) size: usize,
    pub(super) kind: ComponentKind,
    /// the interfaces it imports
    pub(super) imports: Vec<Import>,
    /// names of the interfaces it exports
    pub(super) exports: Vec<String>,
}

/// The description that a component returns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ComponentDescription {
    pub(super) summary: String,
    pub(super) options_schema: Json,
}

/// A configured component.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConfiguredComponent {
    pub(super) signature: Signature,
    pub(super) start: Start,
    /// the steps that `configure` prepared; the numbers in the snapshot are positions in this list
    pub(super) prepared: Vec<PreparedCall>,
    /// the snapshot, a component's bytes, until it is compiled
    #[serde(skip)]
    pub(super) snapshot: Option<Vec<u8>>,
    /// SHA-256 of the component that is run: the snapshot, or the component itself where there is none
    pub(super) digest: String,
    /// its native code, where it was just compiled
    #[serde(skip)]
    pub(super) code: Option<NativeCode>,
}

/// How an instance becomes ready for requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// as a copy of the memory that `configure` left, shared until it is written to
    Snapshot,
    /// by calling `configure` again
    Configure {
        /// why there is no snapshot
        why: String,
    },
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot => f.write_str("each request from a snapshot taken after `configure`"),
            Self::Configure { why } => write!(f, "each request calls `configure` again: {why}"),
        }
    }
}
