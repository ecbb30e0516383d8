//! What can stand in a pipeline by name: built-in steps, and the models of this pipeline.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::model_metadata::{MetadataError, ModelMetadata};
use super::step::Step;
use crate::platform::project_files::{FileError, ProjectFiles};

/// The value types that a built-in step processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// pictures
    Image,
    /// text and its tokens
    Text,
    /// sound
    Audio,
    /// any tensor
    Tensor,
    /// outputs of a model
    Output,
}

impl Group {
    /// `image`, `text`, `audio`, `tensor` or `output`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Text => "text",
            Self::Audio => "audio",
            Self::Tensor => "tensor",
            Self::Output => "output",
        }
    }
}

/// A built-in step, before it has its options.
#[derive(Clone, Copy)]
pub struct Builtin {
    /// its tag in gpux.yml
    pub name: &'static str,
    /// one line of description
    pub summary: &'static str,
    /// what its inputs are about
    pub group: Group,
    /// the library whose numbers it reproduces, with the function; empty where there is none to follow
    pub follows: &'static str,
    /// how it is written in a gpux.yml: one entry of `pipeline:`, without the dash
    pub example: &'static str,
    /// the JSON Schema of its options; the options in gpux.yml are checked against it first
    pub schema: fn() -> schemars::Schema,
    /// makes the step. The caller has checked `options` against the schema: ranges and lengths are not checked again
    pub build: Build,
}

/// Makes a step from options, which fit its schema, written at `site`.
pub type Build = fn(options: serde_json::Value, site: &OptionOrigin<'_>) -> Result<Box<dyn Step>, BuildError>;

/// Where a step's options were written, which decides which files they may name.
pub enum OptionOrigin<'a> {
    /// in a gpux.yml, which may name files of its folder and the metadata of its models
    Pipeline {
        /// the files of its folder
        files: &'a ProjectFiles,
        /// what its models say about themselves
        models: &'a ModelMetadata,
    },
    /// inside a component, which may name neither
    Component,
}

impl<'a> OptionOrigin<'a> {
    /// A gpux.yml of a pipeline without models.
    pub const fn folder(files: &'a ProjectFiles) -> Self {
        Self::Pipeline { files, models: ModelMetadata::none() }
    }

    /// The bytes of a file that the options name, at most `limit`.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
        match self {
            Self::Pipeline { files, .. } => files.read(path, limit),
            Self::Component => Err(FileError::Forbidden),
        }
    }

    /// The text of `key` in the metadata of a model, by its name in gpux.yml, or of the only one.
    pub fn model_metadata(&self, model: Option<&str>, key: &str) -> Result<&'a str, MetadataError> {
        match self {
            Self::Pipeline { models, .. } => models.get(model, key),
            Self::Component => Err(MetadataError::Forbidden),
        }
    }
}

/// Options that fit the schema but cannot work.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BuildError {
    /// which option, as a path of keys (`["size"]`); empty for the step as a whole
    pub option: Vec<String>,
    /// the reason
    pub message: String,
    /// what to do about it
    pub hint: Option<String>,
}

impl BuildError {
    /// An error about one option.
    pub fn option(name: &str, message: impl ToString) -> Self {
        Self { option: vec![name.to_owned()], message: message.to_string(), hint: None }
    }

    /// The same error with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<serde_json::Error> for BuildError {
    fn from(error: serde_json::Error) -> Self {
        Self { option: Vec::new(), message: error.to_string(), hint: None }
    }
}

/// Everything a pipeline, or a component in it, can call by name.
#[derive(Clone, Default)]
pub struct Registry {
    builtins: BTreeMap<&'static str, Builtin>,
    models: BTreeMap<String, Arc<dyn Step>>,
    metadata: ModelMetadata,
}

impl Registry {
    /// A registry of these built-in steps and no model.
    pub fn new(builtins: impl IntoIterator<Item = Builtin>) -> Self {
        let builtins = builtins.into_iter().map(|builtin| (builtin.name, builtin)).collect();
        Self { builtins, models: BTreeMap::new(), metadata: ModelMetadata::default() }
    }

    /// Adds a model under the name that gpux.yml gives it.
    pub fn add_model(&mut self, name: impl Into<String>, model: Arc<dyn Step>) {
        self.models.insert(name.into(), model);
    }

    /// What the models of the pipeline say about themselves.
    pub const fn model_metadata(&self) -> &ModelMetadata {
        &self.metadata
    }

    /// The same, to add to it.
    pub const fn model_metadata_mut(&mut self) -> &mut ModelMetadata {
        &mut self.metadata
    }

    /// The built-in step of this name.
    pub fn builtin(&self, name: &str) -> Option<&Builtin> {
        self.builtins.get(name)
    }

    /// Every built-in step, by name.
    pub fn builtins(&self) -> impl Iterator<Item = &Builtin> {
        self.builtins.values()
    }

    /// The model of this name.
    pub fn model(&self, name: &str) -> Option<&Arc<dyn Step>> {
        self.models.get(name)
    }

    /// Every model's name.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }
}
