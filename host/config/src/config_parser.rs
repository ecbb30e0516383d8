//! The configuration from Rust, without anything that runs it.

use std::path::{Path, PathBuf};

use super::document::Document;
use super::file_text::LoadError;
use super::interpolate::Variables;
use super::load::load;
use super::spec::{Spec, accept_any_step};

/// Reads a gpux.yml and answers questions about it.
///
/// ```
/// use gpux_config::ConfigParser;
///
/// # let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// let config = ConfigParser::parse_file(format!("{project}/gpux.yml"))?;
/// assert_eq!(config.to_dict()["name"], "digits");
/// assert!(config.validate_model_path(project));
/// assert!(config.model_path(project).unwrap().ends_with("models/digits.onnx"));
/// # Ok::<(), gpux_config::LoadError>(())
/// ```
#[derive(Debug)]
pub struct ConfigParser {
    document: Document,
    spec: Spec,
}

impl ConfigParser {
    /// Reads the file; variables named `GPUX_*` may stand in it. Which built-in steps there are is
    /// not looked at.
    pub fn parse_file(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let (document, spec) = load(path.as_ref(), false, &Variables::from_environment([], []), &accept_any_step)?;
        Ok(Self { document, spec })
    }

    /// The complete contents of the file.
    #[doc(hidden)]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The file as written, with the place of every word.
    #[doc(hidden)]
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Whether the model's file is there. `project` is the folder of the gpux.yml.
    pub fn validate_model_path(&self, project: impl AsRef<Path>) -> bool {
        self.model_path(project).is_some()
    }

    /// The (first) model's file, if it is there.
    pub fn model_path(&self, project: impl AsRef<Path>) -> Option<PathBuf> {
        let model = self.spec.models.first()?;
        Some(project.as_ref().join(&model.source.value)).filter(|path| path.is_file())
    }

    /// Everything as JSON, defaults and shorthands written out.
    pub fn to_dict(&self) -> serde_json::Value {
        self.spec.to_json()
    }

    /// Writes it as a gpux.yml that says the same.
    pub fn save(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        std::fs::write(path, self.spec.to_yaml().map_err(std::io::Error::other)?)
    }
}
