//! Component steps: untrusted WebAssembly, in a fresh sandbox for each request.
//!
//! This crate and `native-code` are the only libraries that use wasmtime. bytes → `prepare` (described, configured, a
//! snapshot taken, in a child process) → `component` (compiled, cached) → `linked_component` → `step` (one `guest` for
//! each request). [`Limits`] bounds its resources and [`Grants`] its capabilities; its host functions are in `host`,
//! `builtins` and `wasi`; `guest_output` alone converts its results.

#![forbid(unsafe_code)]

mod bindings;
mod builtin_cache;
mod builtins;
mod component;
mod config;
mod core_module;
mod engine;
mod error;
mod failure;
mod grants;
mod guest;
mod guest_output;
mod host;
mod imports;
mod inspect;
mod limits;
mod linked_component;
mod load;
mod log;
mod model_context;
mod model_wait;
mod native_code;
mod options_schema;
mod prepare;
mod prepared;
mod preview_1;
mod refusal;
mod resource_meter;
mod shared;
mod slot_pool;
mod state;
mod step;
mod tensor_table;
#[cfg(test)]
mod tests;
mod time_budget;
mod wasi;
mod wasi_state;
mod zero_copy;

pub use component::ComponentKind;
pub use config::ComponentConfig;
pub use core_module::{componentize, exports_step};
pub use error::{OptionViolation, SandboxError};
pub use grants::{Capability, EnvGrant, FolderGrant, Grants, OpenFolder};
pub use inspect::{ComponentInfo, NeededCapability, PortInfo, SignatureInfo};
pub use limits::Limits;
pub use load::{Sandbox, SandboxOptions};
pub use prepare::{Start, prepare_answer};
pub use refusal::{Refusal, RefusalReason};
pub use step::ComponentStep;
