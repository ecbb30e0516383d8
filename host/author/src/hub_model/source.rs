//! The files of a repository that say how its model is used.

use std::io::Read as _;

use serde_json::Value as Json;

use super::fault::HubModelFault;
use super::{HubModelError, HubTask, MakeError};
use gpux_core::files::open_file;
use gpux_hub::{HubError, Repository, TransferProgress};

/// Largest file of configuration that is read, in bytes: as `tokenize` reads tokenizers.
const MAX_CONFIGURATION: u64 = 64 << 20;

/// A repository, and where to tell of its transfers.
pub(super) struct ModelSource<'a> {
    pub(super) repository: &'a mut Repository,
    pub(super) progress: &'a dyn TransferProgress,
}

impl ModelSource<'_> {
    /// Fetches those of these files that there are, several at a time.
    pub(super) fn prefetch(&mut self, names: &[&str]) -> Result<(), HubModelError> {
        Ok(self.repository.prefetch(names, self.progress)?)
    }

    /// The content of a JSON file; `None` if there is none.
    pub(super) fn json(&mut self, name: &str) -> Result<Option<Json>, MakeError> {
        self.read(name)
    }

    /// What a JSON file says of `T`.
    pub(super) fn read<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, MakeError> {
        if !self.repository.has(name) {
            return Ok(None);
        }
        let path = self.repository.fetch(name, self.progress).map_err(HubModelError::from)?;
        let mut bytes = Vec::new();
        let read = open_file(&path, "it").and_then(|file| file.take(MAX_CONFIGURATION + 1).read_to_end(&mut bytes));
        read.map_err(|source| HubModelError::from(HubError::Read { path, source }))?;
        let fault = |reason: String| HubModelFault::Json { file: name.to_owned(), reason };
        if bytes.len() as u64 > MAX_CONFIGURATION {
            return Err(fault(format!("it is larger than {} MiB", MAX_CONFIGURATION >> 20)).into());
        }
        Ok(Some(serde_json::from_slice(&bytes).map_err(|error| fault(error.to_string()))?))
    }

    /// The content of a JSON file that must be there.
    pub(super) fn required_json(&mut self, name: &str, why: &str) -> Result<Json, MakeError> {
        let missing = || HubModelFault::Missing { file: name.to_owned(), why: why.to_owned() };
        Ok(self.json(name)?.ok_or_else(missing)?)
    }

    /// What the model does: as `named`, else by `modules.json`, else by the architecture.
    pub(super) fn task(&mut self, named: Option<HubTask>, config: &Json) -> Result<HubTask, MakeError> {
        if let Some(task) = named {
            return Ok(task);
        }
        let sentences = self.json("config_sentence_transformers.json")?.unwrap_or_default();
        match sentences["model_type"].as_str() {
            Some("CrossEncoder") => return Ok(HubTask::TextRanking),
            Some("SentenceTransformer") | None => {}
            Some(other) => {
                let why = "only SentenceTransformer and CrossEncoder have a pipeline".to_owned();
                let file = "config_sentence_transformers.json".to_owned();
                let (key, value) = ("model_type".to_owned(), other.to_owned());
                return Err(HubModelFault::Value { file, key, value, why }.into());
            }
        }
        if self.repository.has("modules.json") {
            return Ok(HubTask::SentenceSimilarity);
        }
        let is_timm = config.get("architecture").is_some() && config.get("pretrained_cfg").is_some();
        if is_timm {
            return Ok(HubTask::ImageClassification);
        }
        let architecture = config["architectures"][0].as_str().ok_or(HubModelFault::NoTask)?;
        let takes_pictures = self.repository.has("preprocessor_config.json");
        let task = HubTask::of_architecture(architecture, takes_pictures)?;
        let is_ranking = task == HubTask::TextClassification
            && (self.repository.facts().pipeline_tag.as_deref() == Some(HubTask::TextRanking.name())
                || is_cross_encoder(config));
        Ok(if is_ranking { HubTask::TextRanking } else { task })
    }
}

/// Whether a classifier gives one score for a pair of texts: sentence-transformers has said so, or it has one label and
/// no other purpose is written down, as Text Embeddings Inference takes it.
fn is_cross_encoder(config: &Json) -> bool {
    let is_set = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    let has_one_label = config["id2label"].as_object().is_some_and(|labels| labels.len() == 1);
    let is_marked = is_set("sbert_ce_default_activation_function") || is_set("sentence_transformers");
    has_one_label && (is_marked || !is_set("problem_type"))
}
