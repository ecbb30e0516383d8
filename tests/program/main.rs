//! Black-box tests of the program and the checks of its structure, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod architecture;
mod author;
mod bundle;
mod calls;
mod cases;
mod changed_models;
mod child;
mod child_processes;
mod command_line;
mod decoder;
mod digits;
mod documents;
mod engines;
mod examples;
mod for_each;
mod guests;
mod http_api;
mod hub;
mod int8;
#[cfg(target_os = "linux")]
mod isolation;
mod languages;
#[cfg(target_os = "linux")]
mod mount_namespaces;
mod nodes;
mod onnx;
mod providers;
mod run;
mod schema;
#[cfg(unix)]
mod server_resilience;
mod step_builds;
mod store;
#[cfg(target_os = "linux")]
mod supervisor;
mod tables;
mod test_server;
mod webgpu;
