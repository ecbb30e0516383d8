//! A pipeline in the store, or in a bundle.

use std::collections::BTreeMap;

/// The annotations with a pipeline's name and version.
pub(crate) const TITLE_KEY: &str = "org.opencontainers.image.title";
pub(crate) const VERSION_KEY: &str = "org.opencontainers.image.version";

/// What part of a model a file is, in the words of CNCF ModelPack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileRole {
    /// a model, or its weights
    Weight,
    /// what goes with it: tokenizers, labels
    WeightConfig,
    /// gpux.yml, components and what they read
    Code,
    /// golden cases
    Dataset,
    /// for people
    Doc,
}

impl FileRole {
    const ALL: [Self; 5] = [Self::Weight, Self::WeightConfig, Self::Code, Self::Dataset, Self::Doc];

    /// Its name in a media type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::WeightConfig => "weight.config",
            Self::Code => "code",
            Self::Dataset => "dataset",
            Self::Doc => "doc",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// The role of a file in a pipeline's folder, as far as its name tells it.
    pub fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        if path.starts_with("tests/") {
            Self::Dataset
        } else if name.contains(".onnx") || ["data", "bin"].contains(&extension) {
            Self::Weight
        } else if name.starts_with("gpux.") || extension == "wasm" {
            Self::Code
        } else if ["README", "LICENSE", "LICENCE", "NOTICE"].iter().any(|doc| name.starts_with(doc)) {
            Self::Doc
        } else {
            Self::WeightConfig
        }
    }
}

/// A file of a pipeline in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// its path in the pipeline's folder
    pub path: String,
    /// the SHA-256 of its bytes
    pub sha256: String,
    /// its size in bytes
    pub size: u64,
    /// what it is for
    pub role: FileRole,
}

/// A pipeline in the store, or in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPipeline {
    /// the SHA-256 of its manifest
    pub manifest: String,
    /// its files, by their paths
    pub files: Vec<StoredFile>,
    /// what its manifest says of it
    pub annotations: BTreeMap<String, String>,
}

impl StoredPipeline {
    /// The pipeline's name.
    pub fn name(&self) -> Option<&str> {
        self.annotations.get(TITLE_KEY).map(String::as_str)
    }

    /// The pipeline's version.
    pub fn version(&self) -> Option<&str> {
        self.annotations.get(VERSION_KEY).map(String::as_str)
    }

    /// The bytes of its files; one that several paths have counts once.
    pub fn size(&self) -> u64 {
        let sizes: BTreeMap<_, _> = self.files.iter().map(|file| (&file.sha256, file.size)).collect();
        sizes.values().sum()
    }
}
