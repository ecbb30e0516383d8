//! A model's file, read and found sound, with the digest it is known by.

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::error::ModelLoadError;
use super::graph::{self, ModelInfo};
use crate::files::{digest, hex};

/// Models up to this many bytes are kept in memory, so that what an engine loads is what was
/// checked; larger ones are read again by the engine.
const KEPT: u64 = 64 << 20;

/// A model that is safe to hand to an engine, as far as its file tells.
#[derive(Clone, Debug)]
pub struct ModelFile {
    info: ModelInfo,
    digest: String,
    /// `None` once nobody needs them
    bytes: Arc<Mutex<Option<Bytes>>>,
}

impl ModelFile {
    /// Reads and checks the model at `path`.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ModelLoadError> {
        let path = path.into();
        let io = |source| ModelLoadError::Io { path: path.clone(), source };
        let mut file = File::open(&path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if !meta.is_file() {
            let kind = std::io::ErrorKind::InvalidInput;
            return Err(io(std::io::Error::new(kind, "a model is a file, and this is not one")));
        }
        let mut hash = Sha256::new();
        let (info, bytes) = if meta.len() <= KEPT {
            let mut bytes = Vec::with_capacity(meta.len() as usize);
            file.by_ref().take(KEPT + 1).read_to_end(&mut bytes).map_err(io)?;
            hash.update(&bytes);
            (graph::inspect(&path, Cursor::new(&bytes))?, Some(Bytes::from(bytes)))
        } else {
            let info = graph::inspect(&path, &file)?;
            std::io::Seek::rewind(&mut file).map_err(io)?;
            std::io::copy(&mut file, &mut HashWriter(&mut hash)).map_err(io)?;
            (info, None)
        };
        // Weights beside the model are told apart by size and date: hashing gigabytes at every
        // start would cost more than loading them.
        for beside in &info.external_files {
            let meta = beside.metadata().map_err(io)?;
            hash.update(format!("{}\0{}\0{:?}\0", beside.display(), meta.len(), meta.modified().ok()));
        }
        Ok(Self { info, digest: hex(&hash.finalize()), bytes: Arc::new(Mutex::new(bytes)) })
    }

    /// What the model is.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.info.path
    }

    /// SHA-256 of the file, in hexadecimal; it also changes with the files of weights beside it.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The file's bytes, if they are all that an engine needs; else it reads [`Self::path`]. Those
    /// that were let go are read again, and must be the same.
    pub(super) fn whole(&self) -> Result<Option<Bytes>, String> {
        if !self.info.external_files.is_empty() || self.info.size_bytes > KEPT {
            return Ok(None);
        }
        if let Some(bytes) = &*self.held() {
            return Ok(Some(bytes.clone()));
        }
        let bytes = std::fs::read(self.path()).map_err(|error| error.to_string())?;
        if digest(&bytes) != self.digest {
            return Err("the file has changed since it was checked".to_owned());
        }
        Ok(Some(bytes.into()))
    }

    /// Frees the file's bytes: an engine has the model from elsewhere.
    pub(super) fn let_go(&self) {
        *self.held() = None;
    }

    fn held(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::inference::testing;

    #[test]
    fn bytes_that_were_let_go_come_back_unless_the_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::copy(testing::path("conv.onnx"), &path).unwrap();
        let file = ModelFile::open(&path).unwrap();
        let bytes = file.whole().unwrap().unwrap();
        file.let_go();
        assert!(file.held().is_none());
        assert_eq!(file.whole().unwrap().unwrap(), bytes);
        std::fs::copy(testing::path("adds.onnx"), &path).unwrap();
        assert!(file.whole().unwrap_err().contains("changed"));
    }
}
