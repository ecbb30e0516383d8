//! The store: pipelines by name, in commands and servers, and what SIGKILL leaves of it.

mod bundles;
#[cfg(target_os = "linux")]
mod kills;
mod names;
mod serve;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::author::{self, stderr};
use crate::child::{StartWithLimit as _, program};

/// A folder with a store, and folders of pipelines that multiply by a number.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The program, in an empty folder.
    fn gpux(&self, arguments: &[&str]) -> Command {
        let empty = self.path().join("empty");
        std::fs::create_dir_all(&empty).unwrap();
        let mut command = program();
        command.args(arguments).current_dir(empty).env("GPUX_STORE", self.store());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.gpux(arguments).run()
    }

    /// What it gives as JSON.
    fn json(&self, arguments: &[&str]) -> Json {
        author::json(&self.run(arguments))
    }

    /// Its message, with this exit code.
    fn error(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        stderr(&output)
    }

    /// A pipeline in a folder of its own, which is returned.
    fn scaling(&self, version: &str, factor: f64) -> String {
        let folder = self.path().join(format!("scaling-{version}"));
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "name: scaling\nversion: {version}\ninputs: {{ x: {{ type: float32, shape: [2] }} }}\n\
             pipeline: [{{ scale: {{ factor: {factor} }} }}]\n\
             outputs: {{ tensor: {{ type: float32, labels: labels.txt }} }}\n"
        );
        std::fs::write(folder.join("gpux.yml"), text).unwrap();
        std::fs::write(folder.join("labels.txt"), "cat\ndog\n").unwrap();
        folder.display().to_string()
    }

    /// Keeps such a pipeline; its digest.
    fn add(&self, version: &str, factor: f64, arguments: &[&str]) -> String {
        let folder = self.scaling(version, factor);
        let words = ["store", "add", &folder, "--json"].into_iter().chain(arguments.iter().copied());
        self.json(&words.collect::<Vec<_>>())["digest"].as_str().unwrap().to_owned()
    }

    /// The names, with the digests that they mean.
    fn names(&self) -> Vec<(String, String)> {
        let list = self.json(&["store", "list", "--json"]);
        let entries = list["pipelines"].as_array().unwrap().iter();
        let named = entries.filter_map(|entry| {
            assert!(entry["damage"].is_null(), "{entry}");
            Some((entry["name"].as_str()?.to_owned(), entry["digest"].as_str()?.to_owned()))
        });
        named.collect()
    }
}
