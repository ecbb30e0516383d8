//! What `tests/hostile/` and the benchmarks `hostile`, `corrupted` and `soak` share.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::print_stderr,
    clippy::should_implement_trait,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

pub mod attack;
pub mod corrupted;
pub mod damage;
pub mod dice;
pub mod leb128;
pub mod memory;
pub mod neighbour;

use std::path::PathBuf;

/// The repository.
pub fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", ".."].iter().collect()
}
