//! A checked model file and its digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::error::ModelLoadError;

use super::graph::{self, ForwardRead, GraphNode, ModelInfo, WeightLinks, parent_folder, relocate_weights};
use gpux_core::files::{FileVersion, digest, hex, is_behind_proc, open_file, resolve_path};
use gpux_core::process_exit::Scratch;
use gpux_core::{CacheDir, CacheFolder, ElementType, TensorKind};

/// Engines load models up to this many bytes from memory, so that the loaded bytes are those that were
/// checked. They read larger files themselves.
const IN_MEMORY: u64 = 64 << 20;
/// Bytes of the largest model that is looked into: it is held several times.
const LARGEST_VARIANT: u64 = 256 << 20;
/// Bytes of the largest message of protobuf.
const LARGEST_MESSAGE: u64 = i32::MAX as u64;
/// Bytes that are hashed at a time: they stay in a core's cache.
const PASSING: u64 = 128 << 10;

/// A model whose weights have other paths than in its file.
#[derive(Debug)]
pub(super) struct RelocatedModel {
    pub(super) bytes: Bytes,
    /// what the paths are relative to
    pub(super) folder: PathBuf,
    /// those that ONNX Runtime does not open: it follows the text of links of procfs
    pub(super) unmappable: BTreeSet<String>,
}

/// A model file that passed the checks.
#[derive(Clone, Debug)]
pub struct ModelFile {
    info: ModelInfo,
    digest: String,
    external_data: Vec<(PathBuf, FileVersion)>,
    /// kept from the first session on, so that later sessions load the same model
    bytes: Arc<Mutex<Option<Bytes>>>,
}

impl ModelFile {
    /// Reads and checks the model at `path`, which the operator named: links to its weights may lead anywhere.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ModelLoadError> {
        let path = path.into();
        let file = graph::open(&path)?;
        Self::read(path, file, WeightLinks::Anywhere)
    }

    /// Reads and checks the model in an open `file` at `path`.
    pub fn read(path: PathBuf, file: File, links: WeightLinks) -> Result<Self, ModelLoadError> {
        let io = |source| ModelLoadError::Io { path: path.clone(), source };
        let length = file.metadata().map_err(io)?.len();
        let mut file = HashingFile { file, length, hash: Sha256::new() };
        let info = graph::inspect(&path, &mut file, links)?;
        let digest = digest_with_weights(file.hash, &info).map_err(io)?;
        let external_data = info.external_files.iter().map(|path| (path.clone(), FileVersion::of(path))).collect();
        Ok(Self { info, digest, external_data, bytes: Arc::default() })
    }

    /// The model's description.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.info.path
    }

    /// SHA-256 of the file, in hexadecimal; it also changes with the files of weights beside it.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The files of weights beside it, as they were before an engine read them.
    pub fn external_data(&self) -> &[(PathBuf, FileVersion)] {
        &self.external_data
    }

    /// The model with all values of its graph among the outputs, and the graph's nodes; `None` for a large model, one
    /// with weights in other files, or one that cannot be taken apart.
    pub(super) fn with_all_outputs(&self) -> Option<(Self, Vec<GraphNode>)> {
        if !self.info.external_files.is_empty() || self.info.size_bytes > LARGEST_VARIANT {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.info.size_bytes as usize);
        let file = open_file(self.path(), "a model").ok()?;
        file.take(LARGEST_VARIANT + 1).read_to_end(&mut bytes).ok()?;
        let known: Vec<_> = self.info.outputs.iter().map(|output| output.name.as_str()).collect();
        let (bytes, nodes) = graph::with_all_outputs(&bytes, &known)?;
        let mut info = self.info.clone();
        let added = nodes.iter().flat_map(|node| &node.outputs).filter(|name| !known.contains(&name.as_str()));
        // Engines tell the real types.
        info.outputs.extend(added.map(|name| graph::OutputSpec {
            name: name.clone(),
            kind: "float32".to_owned(),
            shape: None,
            labels: None,
            description: String::new(),
            value: Some(graph::OnnxType::Tensor { kind: TensorKind::of_elements(ElementType::Float32), narrow: None }),
        }));
        let bytes = Arc::new(Mutex::new(Some(bytes.into())));
        Some((Self { info, digest: String::new(), external_data: Vec::new(), bytes }, nodes))
    }

    /// The file's bytes, if they are all that an engine needs; it reads a large model, or one with weights
    /// beside it, from [`Self::path`]. When they are asked for first, they must be those that were checked;
    /// from then on they are kept.
    pub(super) fn contents(&self) -> Result<Option<Bytes>, String> {
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = &*kept {
            return Ok(Some(bytes.clone()));
        }
        if !self.info.external_files.is_empty() || self.info.size_bytes > IN_MEMORY {
            return Ok(None);
        }
        let file = open_file(self.path(), "a model").map_err(|error| error.to_string())?;
        let mut bytes = Vec::with_capacity(self.info.size_bytes as usize);
        file.take(IN_MEMORY + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if digest(&bytes) != self.digest {
            return Err("the file has changed since it was checked".to_owned());
        }
        Ok(Some(kept.insert(bytes.into()).clone()))
    }

    /// The model with other paths of its weights, where an engine would not follow those that it has: a link to weights
    /// leads out of the model's own folder, or the files lie in another mount namespace.
    pub(super) fn relocated(&self) -> Result<Option<RelocatedModel>, String> {
        let text = |error: io::Error| error.to_string();
        let folder = resolve_path(parent_folder(self.path())).map_err(text)?;
        let is_foreign = |path: &&PathBuf| !path.starts_with(&folder) || is_behind_proc(path);
        let Some(outside) = self.info.external_files.iter().find(is_foreign) else {
            return Ok(None);
        };
        let root = outside.ancestors().last().unwrap_or(outside).to_owned();
        let relative = |(location, path): (&PathBuf, &PathBuf)| {
            let path = path.strip_prefix(&root).ok().and_then(Path::to_str);
            let path =
                path.ok_or_else(|| format!("`{}` cannot be named from `{}`", location.display(), root.display()))?;
            Ok::<_, String>((location.clone(), path.to_owned()))
        };
        let locations: BTreeMap<_, _> = self.info.external_locations.iter().map(relative).collect::<Result<_, _>>()?;
        let mut bytes = Vec::new();
        let file = open_file(self.path(), "a model").map_err(text)?;
        file.take(LARGEST_MESSAGE + 1).read_to_end(&mut bytes).map_err(text)?;
        if digest_with_weights(Sha256::new_with_prefix(&bytes), &self.info).map_err(text)? != self.digest {
            return Err("the file has changed since it was checked".to_owned());
        }
        let relocated = relocate_weights(&bytes, &locations).ok_or("the model's file cannot be changed")?;
        let unmappable = locations.values().filter(|name| is_behind_proc(&root.join(name))).cloned().collect();
        Ok(Some(RelocatedModel { bytes: relocated.into(), folder: root, unmappable }))
    }

    /// A copy, if its files of weights have further names (hard links), which a pipeline's in the store have. ONNX takes
    /// those for an attack where weights belong to a graph within a node.
    /// <https://github.com/onnx/onnx/blob/main/onnx/checker.cc>
    pub fn copied(&self) -> io::Result<Option<CopiedModel>> {
        if !self.info.external_files.iter().any(|path| has_further_names(path)) {
            return Ok(None);
        }
        let work = CacheDir::from_environment().map(|cache| cache.folder(CacheFolder::Work)).transpose()?;
        let folder = Scratch::new_in(&work.unwrap_or_else(std::env::temp_dir))?;
        let files = self.info.external_locations.iter().map(|(location, path)| (location.as_path(), path.as_path()));
        let copy = CopiedModel { folder };
        for (location, path) in files.chain([(Path::new("model.onnx"), self.path())]) {
            let to = copy.folder.path().join(location);
            std::fs::create_dir_all(to.parent().unwrap_or(copy.folder.path()))?;
            io::copy(&mut open_file(path, "it")?, &mut File::create_new(to)?)?;
        }
        Ok(Some(copy))
    }
}

/// A copy of a model with its weights; it goes when this is dropped.
#[derive(Debug)]
pub struct CopiedModel {
    folder: Scratch,
}

impl CopiedModel {
    /// Where the copy is.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("model.onnx")
    }
}

/// The digest of a model, of whose own bytes this is the hash.
fn digest_with_weights(mut hash: Sha256, info: &ModelInfo) -> io::Result<String> {
    // Weights beside the model are told apart by size and date: hashing gigabytes at every
    // start would cost more than loading them.
    for external_data in &info.external_files {
        let meta = external_data.metadata()?;
        hash.update(format!("{}\0{}\0{:?}\0", external_data.display(), meta.len(), meta.modified().ok()));
    }
    Ok(hex(&hash.finalize()))
}

#[cfg(unix)]
fn has_further_names(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) > 1)
}

#[cfg(not(unix))]
const fn has_further_names(_: &Path) -> bool {
    false
}

/// A file that is hashed while it is read, so that the checked and the hashed bytes are the same;
/// skipped bytes are read, too.
struct HashingFile {
    file: File,
    length: u64,
    hash: Sha256,
}

impl Read for &mut HashingFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }
}

impl ForwardRead for &mut HashingFile {
    fn length(&mut self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn skip(&mut self, mut count: u64) -> io::Result<()> {
        let mut passing = vec![0; count.min(PASSING) as usize];
        while count > 0 {
            let next = count.min(PASSING) as usize;
            self.read_exact(&mut passing[..next])?;
            count -= next as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn rejects_files_changed_after_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::copy(testing::path("conv.onnx"), &path).unwrap();
        let file = ModelFile::open(&path).unwrap();
        let unread = ModelFile::open(&path).unwrap();
        let bytes = file.contents().unwrap().unwrap();
        assert_eq!(bytes, std::fs::read(&path).unwrap());
        assert_eq!(file.digest(), digest(&bytes));
        std::fs::copy(testing::path("adds.onnx"), &path).unwrap();
        assert_eq!(file.contents().unwrap().unwrap(), bytes, "further sessions are of the same model");
        assert!(unread.contents().unwrap_err().contains("changed"));
    }
}
