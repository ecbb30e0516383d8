//! What a process that runs one pipeline must be able to reach.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::engine::engine_search;
use super::file_content::FileContent;
use super::grants;
use super::load_options::LoadOptions;
use super::models::provider_choice;
use super::pipeline::{Pipeline, is_model};
use crate::GpuxError;
use gpux_config::{Action, Node, Spec};
use gpux_core::files::open_file;
use gpux_core::{CacheDir, ProjectFiles, SharedCache, hub_blobs};
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

/// The file of the pipeline `wanted`: its gpux.yml, or the model or component that it is.
///
/// # Errors
///
/// There is none.
pub fn pipeline_file(wanted: &str) -> Result<PathBuf, GpuxError> {
    Ok(if is_one_file(wanted) { wanted.into() } else { gpux_config::find(wanted, Path::new("."))? })
}

/// The text of the pipeline's gpux.yml, as far as it can be read; empty where it has none.
pub fn pipeline_text(wanted: &str) -> String {
    const LONGEST: u64 = 4 << 20;
    let mut text = String::new();
    if let Some(path) = pipeline_file(wanted).ok().filter(|_| !is_one_file(wanted))
        && let Ok(file) = open_file(&path, "it")
    {
        // What is wrong with it, opening the pipeline reports.
        let _ = file.take(LONGEST).read_to_string(&mut text);
    }
    text
}

/// Whether the pipeline is a model or a component alone.
pub(super) fn is_one_file(wanted: &str) -> bool {
    is_model(wanted) || FileContent::detect(Path::new(wanted)) == Some(FileContent::Component)
}

impl LoadOptions {
    /// What the process of the pipeline `wanted` must reach: its files, libraries of engines, folders that its
    /// components are granted, and the cache, which must be its own. These options then name the packages of a Python that had to
    /// be asked for them.
    ///
    /// # Errors
    ///
    /// There is no such pipeline.
    pub fn access(&mut self, wanted: &str) -> Result<PipelineAccess, GpuxError> {
        let path = pipeline_file(wanted)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let spec =
            if is_one_file(wanted) { Spec::for_model(String::new()) } else { Pipeline::read_spec(wanted, self)? };
        // Loading reports what is wrong with a choice.
        let choices: Vec<_> = spec.models.iter().filter_map(|model| provider_choice(model, self).ok()).collect();
        let search = engine_search(self, &choices);
        let mut access = PipelineAccess { read: search.folders(), ..PipelineAccess::default() };
        self.engine.python_packages = search.python;
        access.accelerators = self.may_use_accelerators();
        if is_one_file(wanted) {
            access.read.extend(files_of_model(&path, folder));
        } else if self.policy.outside_files {
            access.read.push("/".into());
        } else {
            // The file may be a link, but the paths in it begin where the link lies.
            access.read.extend([folder.to_owned(), path.clone()]);
            access.read.extend(folder.canonicalize().ok().and_then(|folder| hub_blobs(&folder)));
        }
        access.read.extend(self.cache.iter().filter_map(CacheDir::shared).flat_map(SharedCache::folders));
        let files = ProjectFiles::new(folder, self.policy.outside_files);
        for step in &spec.pipeline {
            match &step.action {
                Action::Wasm(wasm) => {
                    for granted in grants::resolve(&wasm.grant, self, &files).0.dirs {
                        let list = if granted.writable { &mut access.write } else { &mut access.read };
                        list.push(granted.folder);
                    }
                }
                Action::BuiltIn(options) => {
                    let tokenizer = options.get("tokenizer").and_then(Node::as_str);
                    access.read.extend(tokenizer.into_iter().flat_map(gpux_steps::cached_tokenizers));
                }
                Action::Model(_) => {}
            }
        }
        // Made now, so that the process may be given it. Without it, loading warns.
        access.write.extend(self.cache.as_ref().and_then(|cache| cache.make_root().ok()));
        Ok(access)
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
