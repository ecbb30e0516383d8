//! `gpux serve`, driven from outside: a real server, real sockets, real signals.

#![allow(clippy::float_cmp, reason = "metrics and answers that are whole numbers")]

mod faults;
mod full_disk;
mod hostile;
mod hostile_bodies;
mod http2;
mod memory;
mod metrics;
mod operations;
mod proxies;
mod security;
mod slow_readers;
#[cfg(target_os = "linux")]
mod thread_limit;
mod traces;
mod unix_sockets;

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::test_server::{Connection, PATIENCE, Server, command, until};

/// A pipeline without a model, of the golden cases.
const SCORES: &str = "tests/cases/pipelines/scores.yml";
const ONE: &str = "{\"x\": [1, 2, 3, 4]}";

impl Server {
    /// That it still answers as it should.
    fn assert_alive(&self) {
        let answer = self.post("/predict", "", ONE);
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// A pipeline in a folder of its own, that gives its input times `factor`.
fn scaling(folder: &Path, name: &str, factor: f64) {
    let text = format!(
        "name: {name}\nversion: 1.0.0\ninputs:\n  x: {{ type: float32, shape: [2] }}\npipeline:\n  - scale: {{ factor: {factor} }}\n"
    );
    std::fs::create_dir_all(folder).unwrap();
    replace(&folder.join("gpux.yml"), text.as_bytes());
}

/// Replaces a file atomically.
fn replace(path: &Path, bytes: &[u8]) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, bytes).unwrap();
    std::fs::rename(draft, path).unwrap();
}
