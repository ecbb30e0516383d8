//! In the place of `embedded`, where gpux is built without the feature `embedded`.

use std::collections::BTreeSet;

use super::engine::{Engine, Session, SessionOptions};
use super::error::ModelLoadError;
use super::model_file::ModelFile;
use super::providers::ExecutionProvider;

/// An engine that loads no model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Embedded {
    /// What stands where the engine's name and version would.
    pub const NAME: &str = "no engine (built without the embedded one)";

    /// Whether this gpux was built with it.
    pub const IS_BUILT: bool = false;
}

pub(super) fn unsupported_operators<'a>(operators: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    operators.collect()
}

pub(super) fn infer_input_sizes(_file: &ModelFile) -> Vec<Vec<Option<usize>>> {
    Vec::new()
}

impl Engine for Embedded {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn identity(&self) -> &str {
        Self::NAME
    }

    fn providers(&self) -> &[ExecutionProvider] {
        &[]
    }

    fn load(&self, file: &ModelFile, _options: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        let reason = "this gpux was built without it".to_owned();
        Err(ModelLoadError::BeyondEmbedded { path: file.path().to_owned(), reason })
    }
}
