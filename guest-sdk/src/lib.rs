//! What a Rust author of a [gpux](https://github.com/gpux/gpux) step depends on.
//!
//! A step is a WebAssembly component that runs in a sandbox, between the built-in steps and the
//! models of a pipeline. Implement [`Step`], name it in [`export!`], and build for
//! `wasm32-unknown-unknown`, a target that has no files, no network and no clock at all:
//!
//! ```
//! use gpux_step::{Error, Port, Signature, Step, Tensor, Values, stream};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(default, deny_unknown_fields)]
//! struct Options {
//!     /// pixels from this level on become white
//!     level: u8,
//! }
//!
//! impl Default for Options {
//!     fn default() -> Self {
//!         Self { level: 128 }
//!     }
//! }
//!
//! struct Threshold(u8);
//!
//! impl Step for Threshold {
//!     type Options = Options;
//!     const SUMMARY: &str = "makes an image black and white";
//!
//!     fn configure(options: Options) -> Result<(Self, Signature), Error> {
//!         let image = || Port::image::<u8>("image", 1);
//!         Ok((Self(options.level), Signature::new().input(image()).output(image())))
//!     }
//!
//!     fn process(&self, inputs: Values) -> Result<Values, Error> {
//!         let gray = inputs.tensor("image")?;
//!         let mut result = Tensor::zeros::<u8>(gray.shape())?;
//!         stream::map::<u8, u8>(gray, &mut result, |pixel| if pixel >= self.0 { 255 } else { 0 })?;
//!         result.copy_metadata(gray);
//!         Ok(Values::from([("image", result)]))
//!     }
//! }
//!
//! gpux_step::export!(Threshold);
//!
//! // The same crate, compiled for your own machine, tests the step with plain `cargo test`:
//! let image = Tensor::of([1, 3, 1], &[0_u8, 127, 128])?;
//! let result = gpux_step::testing::run::<Threshold>("{}", [("image", image)])?;
//! assert_eq!(result.tensor("image")?.view::<u8>()?.to_vec(), [0, 0, 255]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # What is where
//!
//! | to | there is |
//! | --- | --- |
//! | say what the step takes and gives | [`Signature`], [`Port`], [`Dim`] |
//! | get and give values | [`Values`] by name; [`Tensor`], a handle to elements on the host |
//! | get at elements | [`Tensor::view`] all of them, [`Tensor::read`] some, [`stream`] through a small buffer |
//! | loop over them fast | [`chunks`]: SIMD in spite of deadlines |
//! | leave the work to native code | [`builtins::run`], every built-in step on handles |
//! | check its options once | [`builtins::prepare`] in `configure` |
//! | run a model | [`models::run`], where gpux.yml grants it |
//! | say something | [`log`]; a panic's message arrives there by itself |
//! | say no | [`Error::invalid`], the caller's fault; [`Error::failed`], the step's |
//! | test natively | [`testing`] |
//!
//! Interfaces that a step does not use are not imported: a component names `builtins` and `models`
//! only if it calls them, so that `gpux inspect` and the one who grants see what it really does.
//!
//! # Size
//!
//! A step with options of its own is a component of 90 kB. Three quarters of the standard library's
//! usual weight stay out because options are read by a reader of this crate's own, and because
//! [`Step::OPTIONS_SCHEMA`] may hold the schema as text; without that, add 85 kB for the code that
//! makes it.

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
pub use metadata::{Color, Geometry, Layout, Transform};
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
