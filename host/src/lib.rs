//! gpux runs, serves and ships an ONNX model together with the code around it.
//!
//! A pipeline is described by a `gpux.yml`: native steps, sandboxed WebAssembly components, and
//! models. [`Runtime`] runs one from Rust; the program `gpux` runs it from the command line.
//!
//! A program that loads ONNX Runtime through this library and does not want it to report to its
//! makers sets `ORT_DISABLE_TELEMETRY=1` before it starts, as `gpux` does for itself.

#![forbid(unsafe_code)]

pub mod assemble;
pub mod author;
pub mod builtin;
mod child;
#[doc(hidden)]
pub mod cli;
pub mod config;
mod end;
pub mod error;
mod files;
mod guard;
pub mod inference;
pub mod pipeline;
mod plain;
pub mod sandbox;
mod seal;
pub mod serve;
mod threads;

pub use assemble::{Runtime, RuntimeBuilder};
pub use config::ConfigParser;
pub use error::GpuxError;
pub use inference::{ModelInfo, ModelInspector, ProviderManager};
