//! What the authors of a pipeline's models wrote into the models' files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::sanitize::sanitize_for_terminal;
use crate::spelling;
use crate::units::shorten;

/// The metadata of a pipeline's models, by the models' names in gpux.yml.
#[derive(Clone, Debug, Default)]
pub struct ModelMetadata {
    models: BTreeMap<String, Arc<Entries>>,
}

/// The metadata of a model.
#[derive(Debug)]
struct Entries {
    texts: BTreeMap<String, String>,
    /// keys whose text is larger than gpux reads
    omitted: BTreeSet<String>,
}

/// Why there is no such text in the metadata of the pipeline's models.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// the pipeline has no model
    #[error("the pipeline has no model whose metadata could be read")]
    NoModel,
    /// no model is named, and there are several
    #[error("the pipeline has several models; say `model: NAME` with {0}")]
    SeveralModels(String),
    /// no model has this name
    #[error("there is no model `{name}`, but {known}")]
    UnknownModel {
        /// the name
        name: String,
        /// the names that there are, for people
        known: String,
    },
    /// the metadata of the model has no such key
    #[error("the metadata of the model `{model}` has no `{key}`, but {known}")]
    UnknownKey {
        /// the model
        model: String,
        /// the key
        key: String,
        /// the keys that there are, for people
        known: String,
    },
    /// the text is larger than gpux reads
    #[error("`{key}` in the metadata of the model `{model}` is larger than gpux reads; write it to a file")]
    TooLarge {
        /// the model
        model: String,
        /// the key
        key: String,
    },
    /// the options come from a component
    #[error("a component may not read the metadata of models")]
    Forbidden,
}

impl ModelMetadata {
    /// The metadata of a pipeline without models.
    pub const fn none() -> &'static Self {
        static NONE: ModelMetadata = ModelMetadata { models: BTreeMap::new() };
        &NONE
    }

    /// Adds the metadata of the model that gpux.yml calls `model`; `omitted` are the keys whose text is too large.
    pub fn insert(&mut self, model: impl Into<String>, texts: BTreeMap<String, String>, omitted: BTreeSet<String>) {
        self.models.insert(model.into(), Arc::new(Entries { texts, omitted }));
    }

    /// The text of `key` in the metadata of the model, or of the only one.
    pub fn get(&self, model: Option<&str>, key: &str) -> Result<&str, MetadataError> {
        let (name, entries) = match (model, self.models.len()) {
            (_, 0) => return Err(MetadataError::NoModel),
            (Some(name), _) => self.models.get_key_value(name).ok_or_else(|| MetadataError::UnknownModel {
                name: printable(name),
                known: listed(self.models.keys()),
            })?,
            (None, 1) => self.models.first_key_value().ok_or(MetadataError::NoModel)?,
            (None, _) => return Err(MetadataError::SeveralModels(listed(self.models.keys()))),
        };
        if entries.omitted.contains(key) {
            return Err(MetadataError::TooLarge { model: name.clone(), key: printable(key) });
        }
        entries.texts.get(key).map(String::as_str).ok_or_else(|| MetadataError::UnknownKey {
            model: name.clone(),
            key: printable(key),
            known: listed(entries.texts.keys()),
        })
    }
}

fn printable(text: &str) -> String {
    sanitize_for_terminal(&shorten(text)).replace('\n', " ")
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(|name| printable(name)).collect();
    if names.is_empty() { "none at all".to_owned() } else { spelling::list(&names, "and") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn texts(keys: &[&str]) -> BTreeMap<String, String> {
        keys.iter().map(|key| ((*key).to_owned(), format!("the {key}"))).collect()
    }

    #[test]
    fn finds_the_text_of_a_model() {
        let mut metadata = ModelMetadata::default();
        let error = |metadata: &ModelMetadata, model, key| metadata.get(model, key).unwrap_err().to_string();
        assert!(error(&metadata, None, "names").contains("no model"));
        metadata.insert("reader", texts(&["names", "task"]), BTreeSet::from(["large".to_owned()]));
        assert_eq!(metadata.get(None, "names"), Ok("the names"));
        assert_eq!(metadata.get(Some("reader"), "task"), Ok("the task"));
        assert!(error(&metadata, None, "large").contains("`large` in the metadata of the model `reader` is larger"));
        assert!(error(&metadata, None, "name").ends_with("has no `name`, but `names` and `task`"));
        assert!(error(&metadata, Some("writer"), "names").ends_with("no model `writer`, but `reader`"));
        metadata.insert("finder", texts(&[]), BTreeSet::new());
        assert!(error(&metadata, None, "names").contains("`model: NAME` with `finder` and `reader`"));
        assert!(error(&metadata, Some("finder"), "a\u{1b}[31m\n").contains("has no `a [31m `, but none at all"));
    }
}
