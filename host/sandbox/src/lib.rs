//! Component steps: strangers' WebAssembly, in a fresh sandbox for each request.
//!
//! The only room that names wasmtime. bytes → `prepare` (described, configured, a snapshot taken,
//! in a child process) → `component` (compiled, cached) → `linked` → `step` (one `guest` for each
//! request). What a component may use is [`Limits`] and [`Grants`]; what it can reach is `host`,
//! `builtins` and `wasi`; what comes out of it passes `checked` and nothing else.

#![forbid(unsafe_code)]

mod bindings;
mod builtin_cache;
mod builtins;
mod checked;
mod clock;
mod component;
mod direct;
mod engine;
mod error;
mod failure;
mod grants;
mod guest;
mod handles;
mod host;
mod imports;
mod inspect;
mod json;
mod limits;
mod linked;
mod load;
mod log;
mod meter;
mod model_context;
mod model_wait;
mod native_code;
mod prepare;
mod refusal;
mod schema;
mod shared;
mod slots;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod wasi;
mod wasi_state;

pub use component::{ComponentKind, componentize};
pub use error::{OptionFault, SandboxError};
pub use grants::{Capability, EnvGrant, FolderGrant, Grants, OpenFolder};
pub use inspect::{ComponentInfo, Need, PortInfo, SignatureInfo};
pub use limits::Limits;
pub use load::{LoadRequest, Sandbox, SandboxOptions};
pub use prepare::{Start, prepare_answer};
pub use refusal::{Because, Refusal};
pub use step::ComponentStep;
