//! What a process that runs one pipeline must be able to reach.

use std::path::{Path, PathBuf};

use super::engine::engine_search;
use super::grants;
use super::load_options::LoadOptions;
use super::models::provider_choice;
use super::source::Definition;
use gpux_config::{Action, Node};
use gpux_core::files::resolve_path;
use gpux_core::{CacheDir, CacheFolder, hub_blobs};
use gpux_inference::ModelFile;

/// What a process that runs one pipeline must be able to reach, beside the system's libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineAccess {
    /// files, and folders with what is in them, to read
    pub read: Vec<PathBuf>,
    /// folders to read and write
    pub write: Vec<PathBuf>,
    /// whether its models may run on something other than the CPU
    pub accelerators: bool,
}

impl Definition {
    /// What the process of the pipeline must reach: its files, libraries of engines, folders that its components are
    /// granted, and the cache, which must be its own. The options then name the packages of a Python that had to be
    /// asked for them.
    pub fn access(&self, load_options: &mut LoadOptions) -> PipelineAccess {
        let (path, folder) = (self.source().path(), self.source().folder());
        // Loading reports what is wrong with a choice.
        let choices: Vec<_> =
            self.spec().models.iter().filter_map(|model| provider_choice(model, load_options).ok()).collect();
        let search = engine_search(load_options, &choices);
        let mut access = PipelineAccess { read: search.folders(), ..PipelineAccess::default() };
        load_options.engine.python_packages = search.python;
        access.accelerators = load_options.may_use_accelerators();
        if self.source().is_alone() {
            access.read.extend(files_of_model(path, folder));
        } else {
            // The file may be a link, but the paths in it begin where the link lies.
            access.read.extend([folder.to_owned(), path.to_owned()]);
            access.read.extend(resolve_path(folder).ok().and_then(|folder| hub_blobs(&folder)));
            access.read.extend(load_options.policy.outside_files.then(|| "/".into()));
        }
        if let Some(shared) = load_options.cache.as_ref().and_then(CacheDir::shared) {
            // Others' entries may hold their weights and options.
            access.read.push(shared.path(CacheFolder::Engines));
            access.read.extend(shared.entries_of(path));
        }
        let files = self.files(load_options);
        for step in self.spec().all_steps() {
            match &step.action {
                Action::Wasm(wasm) => {
                    for granted in grants::resolve(&wasm.grant, load_options, &files).0.dirs {
                        let list = if granted.writable { &mut access.write } else { &mut access.read };
                        list.push(granted.folder);
                    }
                }
                Action::BuiltIn(options) => {
                    let tokenizer = options.get("tokenizer").and_then(Node::as_str);
                    access.read.extend(tokenizer.into_iter().flat_map(gpux_steps::cached_tokenizers));
                }
                Action::Model(_) | Action::ForEach(_) => {}
            }
        }
        // Made now, so that the process may be given it. Without it, loading warns.
        access.write.extend(load_options.cache.as_ref().and_then(|cache| cache.make_root().ok()));
        access
    }
}

/// The files of a model, or a component, that the operator named: it, those beside it that begin with its name (made
/// by `gpux build --precision`), and its weights.
fn files_of_model(path: &Path, folder: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap_or_default();
    let is_its = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(stem.as_encoded_bytes());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter(|entry| is_its(&entry.file_name()))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.push(path.to_owned());
    // Opening the model reports what is wrong with it.
    let model = ModelFile::open(path).ok();
    files.extend(model.iter().flat_map(|model| model.external_data().iter().map(|(path, _)| path.clone())));
    files
}
