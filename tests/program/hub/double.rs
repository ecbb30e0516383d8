//! The double of the hub: `tests/hub/double.py`, which the hub's own client is content with, too.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;

use super::models::repositories;
use crate::author::gpux_in;
use crate::child::{StartWithLimit as _, command};
use crate::digits::root;

/// A hub on this machine, with what a user of it has: a store, a cache, a folder.
pub(super) struct Hub {
    double: Child,
    address: String,
    pub(super) home: tempfile::TempDir,
}

impl Hub {
    pub(super) fn start() -> Self {
        let mut python = command("python3");
        python
            .arg(root().join("tests/hub/double.py"))
            .arg(repositories())
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut double = python.start();
        let mut address = String::new();
        BufReader::new(double.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { double, address: address.trim().to_owned(), home: tempfile::tempdir().unwrap() }
    }

    /// A hub with this fault.
    pub(super) fn endpoint(&self, fault: &str) -> String {
        if fault.is_empty() { self.address.clone() } else { format!("{}/fault-{fault}", self.address) }
    }

    /// The program, whose hub this is, with this fault.
    pub(super) fn gpux(&self, fault: &str, arguments: &[&str]) -> Command {
        let mut command = gpux_in(self.home.path(), arguments);
        self.surround(&mut command, fault);
        command
    }

    /// Sets the variables of the hub's client, and where the store is.
    pub(super) fn surround(&self, command: &mut Command, fault: &str) {
        for variable in
            ["HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"]
        {
            command.env_remove(variable);
        }
        let home = self.home.path();
        command
            .env("HF_ENDPOINT", self.endpoint(fault))
            .env("HF_HOME", home.join("hf"))
            .env("HF_HUB_CACHE", home.join("hub"));
        command.env("GPUX_STORE", self.store()).env("GPUX_CACHE_DIR", home.join("cache"));
    }

    pub(super) fn store(&self) -> std::path::PathBuf {
        self.home.path().join("store")
    }

    /// What the hub was asked for.
    pub(super) fn log(&self) -> Vec<Json> {
        let mut curl = command("curl");
        let asked = curl.args(["-sS", "--max-time", "30", &format!("{}/log", self.address)]).run();
        serde_json::from_slice(&asked.stdout).unwrap()
    }

    /// Files that are neither whole nor the store's own.
    pub(super) fn parts(&self) -> usize {
        std::fs::read_dir(self.store().join("ingest")).map_or(0, Iterator::count)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.double.kill();
        let _ = self.double.wait();
    }
}

/// Whether the store's files are what their names say, and its index names nothing else.
pub(super) fn check_store(store: &Path) {
    for entry in std::fs::read_dir(store.join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let digest = ring::digest::digest(&ring::digest::SHA256, &std::fs::read(&path).unwrap());
        assert_eq!(path.file_name().unwrap().to_str(), Some(&*hex(digest.as_ref())));
    }
    let index: Json = serde_json::from_slice(&std::fs::read(store.join("index.json")).unwrap()).unwrap();
    for entry in index["manifests"].as_array().unwrap() {
        let digest = entry["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let manifest = std::fs::read(store.join("blobs/sha256").join(digest)).unwrap();
        let manifest: Json = serde_json::from_slice(&manifest).unwrap();
        for layer in manifest["layers"].as_array().unwrap() {
            let digest = layer["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let blob = store.join("blobs/sha256").join(digest).metadata().unwrap();
            assert_eq!(blob.len(), layer["size"].as_u64().unwrap());
        }
    }
}

/// Digits of a digest.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
}
