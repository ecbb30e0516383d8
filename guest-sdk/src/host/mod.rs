//! What answers the step's calls: gpux around a component, or this process in a unit test. Both
//! have the same functions and the same type `Tensor`.

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native;
#[cfg(target_arch = "wasm32")]
pub(crate) mod wasm;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::{Tensor, log, prepare_builtin, require_model, run_builtin, run_model, run_prepared};
#[cfg(target_arch = "wasm32")]
pub(crate) use wasm::{Tensor, log, prepare_builtin, require_model, run_builtin, run_model, run_prepared};
