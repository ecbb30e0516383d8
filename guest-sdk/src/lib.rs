//! What a Rust author of a [gpux](https://github.com/gpux/gpux) step depends on.

#![deny(unsafe_code)]

mod element;
mod error;
mod json;
mod lent;
mod metadata;
mod options;
mod signature;
mod step;
mod tensor;
mod values;

pub mod builtins;
pub mod chunks;
pub mod log;
pub mod models;
pub mod stream;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

mod host;

pub use element::{Element, ElementType};
pub use error::Error;
pub use lent::{Arguments, Lent};
pub use metadata::{Color, Geometry, Layout};
pub use options::NoOptions;
pub use signature::{Dim, Kind, Port, Signature, TensorKind};
pub use step::Step;
pub use tensor::{Elements, Tensor};
pub use values::{Value, Values};

/// What `export!` names.
#[doc(hidden)]
pub mod __private {
    #[cfg(target_arch = "wasm32")]
    pub use crate::host::wasm::bindings::export_step;
    #[cfg(target_arch = "wasm32")]
    pub use crate::host::wasm::{
        bindings::{
            self,
            exports::gpux::pipeline::step::{Description, Guest, Signature},
            gpux::pipeline::types::{Error, NamedValue},
        },
        configure, describe, process,
    };

    /// Compiles where `S` is a step.
    pub const fn is_a_step<S: crate::Step>() {}
}
