//! What `/info` has for Text Embeddings Inference's clients.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::protocol::texts::MOST_TEXTS;
use crate::{LoadedPipeline, Server};
use gpux_core::Precision;

/// The fields beside gpux's own. `version` is the pipeline's.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TeiInfo {
    /// the pipeline's name
    model_id: String,
    /// the digest of its first model
    model_sha: Option<String>,
    /// what its first model is computed in; `exact`: in what its file says
    model_dtype: String,
    model_type: ModelType,
    /// requests that run or wait
    max_concurrent_requests: usize,
    /// the most tokens of a text; `null` if `tokenize` does not cut
    max_input_length: Option<u64>,
    max_batch_tokens: Option<u64>,
    max_batch_requests: Option<u64>,
    /// the most texts of a request
    max_client_batch_size: usize,
    /// whether a text that is too long is cut, unless the request says otherwise
    auto_truncate: bool,
    tokenization_workers: usize,
    sha: Option<String>,
    docker_label: Option<String>,
    /// the names of its prompts
    prompts: Vec<String>,
}

/// What the pipeline does.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ModelType {
    Embedding {
        /// how the vectors of tokens become one
        pooling: String,
    },
    Classifier {
        /// the names of classes by their numbers
        id2label: BTreeMap<String, String>,
        /// the other way around
        label2id: BTreeMap<String, usize>,
    },
    Reranker {},
}

const fn dtype(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp16 => "float16",
        Precision::Bf16 => "bfloat16",
        other => other.name(),
    }
}

impl TeiInfo {
    /// `None` for a pipeline without such an endpoint.
    pub(crate) fn new(server: &Server, loaded: &LoadedPipeline) -> Option<Self> {
        let info = loaded.info();
        let endpoints = &info.endpoints;
        let model_type = match (&endpoints.embeddings, &endpoints.classify, &endpoints.rerank) {
            (Some(embeddings), ..) => {
                ModelType::Embedding { pooling: embeddings.pooling.clone().unwrap_or_else(|| "model".to_owned()) }
            }
            (_, Some(classify), _) => {
                let numbered = || classify.labels.iter().enumerate();
                ModelType::Classifier {
                    id2label: numbered().map(|(id, label)| (id.to_string(), label.clone())).collect(),
                    label2id: numbered().map(|(id, label)| (label.clone(), id)).collect(),
                }
            }
            (.., Some(_)) => ModelType::Reranker {},
            _ => return None,
        };
        let tokenizer = endpoints.tokenizer.as_ref();
        let settings = server.settings();
        let model = info.models.first();
        Some(Self {
            model_id: loaded.name().to_owned(),
            model_sha: model.map(|model| model.digest.clone()),
            model_dtype: model.map_or("none", |model| dtype(model.precision.precision)).to_owned(),
            model_type,
            max_concurrent_requests: settings.max_queue.saturating_add(settings.workers),
            max_input_length: tokenizer.and_then(|tokenizer| tokenizer.max_length),
            max_batch_tokens: None,
            max_batch_requests: None,
            max_client_batch_size: MOST_TEXTS,
            auto_truncate: tokenizer.is_some_and(|tokenizer| tokenizer.max_length.is_some()),
            tokenization_workers: settings.workers,
            sha: None,
            docker_label: None,
            prompts: tokenizer.map_or_else(Vec::new, |tokenizer| tokenizer.prompts.clone()),
        })
    }
}
