//! `model:` and `models:`.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::deserialize::read;
use super::super::node::{Node, Spanned};
use super::fields::text_or_number;
use super::runtime::{Backend, RuntimeSpec};
use gpux_core::{Precision, TimeSpan};

/// The name of the only model of a file that says `model:`.
pub const DEFAULT_MODEL_NAME: &str = "model";

/// What a model file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelFormat {
    /// an ONNX graph
    #[default]
    Onnx,
}

/// How requests for a model are put together into one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Batching")]
pub struct BatchingSpec {
    /// The most rows (items along the first axis) of one run
    pub max_size: Spanned<NonZeroU32>,
    /// How long a request that could run waits for others; without it, nobody waits who need not
    #[serde(default)]
    pub max_delay: Option<TimeSpan>,
    /// Whether texts of different lengths may run together, padded, where the model has an
    /// `attention_mask`
    #[serde(default = "default_true")]
    pub pad: bool,
    /// The most tokens of one run, rows times the longest text, where texts are padded
    #[serde(default)]
    pub max_tokens: Option<NonZeroU32>,
    /// The lengths that texts are padded to, for an execution provider that compiles for each shape; they are
    /// compiled when the model is loaded
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub lengths: Vec<Spanned<NonZeroU32>>,
    /// The numbers of rows that runs are filled up to, for the same
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub sizes: Vec<Spanned<NonZeroU32>>,
    /// By how much a result may change with what runs beside it, as a part of an output's largest number; 0 is the
    /// same bits as alone
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub tolerance: f64,
}

const fn default_true() -> bool {
    true
}

/// A model of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// the name that `- model: NAME` uses; [`DEFAULT_MODEL_NAME`] under `model:`
    pub name: Spanned<String>,
    /// the file, relative to gpux.yml
    pub source: Spanned<String>,
    /// what the file holds
    pub format: ModelFormat,
    /// the model's version, if it is not the one that its file says
    pub version: Option<String>,
    /// the number of sessions; `None`: the engine decides from the machine
    pub instances: Option<Spanned<NonZeroU32>>,
    /// threads of one session; `None`: the engine decides from the machine
    pub threads: Option<Spanned<NonZeroU32>>,
    /// how requests are put together; `None`: up to `runtime.batch_size` of them, without waiting
    pub batching: Option<BatchingSpec>,
    /// what runs this model, else `runtime.gpu.backend`
    pub provider: Spanned<Backend>,
    /// what it is computed in, else `runtime.precision`
    pub precision: Precision,
    /// options of the execution provider, else `runtime.gpu.options`
    pub options: serde_json::Map<String, serde_json::Value>,
}

/// A model as written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Model")]
pub(super) struct RawModel {
    /// The path of the model file, relative to this file
    #[schemars(length(min = 1, max = 1024))]
    source: Spanned<String>,
    /// What the file holds
    #[serde(default)]
    format: Option<ModelFormat>,
    /// The model's version, as `/info` and `gpux inspect` show it; else the one that its file says
    #[serde(default)]
    #[schemars(schema_with = "optional_version")]
    version: Option<String>,
    /// How many copies of the model run at once
    #[serde(default)]
    instances: Option<Spanned<NonZeroU32>>,
    /// How many threads one copy of the model uses
    #[serde(default)]
    threads: Option<Spanned<NonZeroU32>>,
    /// How waiting requests run together
    #[serde(default)]
    batching: Option<BatchingSpec>,
    /// What runs this model, if it differs from `runtime.gpu.backend`
    #[serde(default)]
    provider: Option<Spanned<Backend>>,
    /// What this model is computed in, if it differs from `runtime.precision`
    #[serde(default)]
    precision: Option<Precision>,
    /// Options of the execution provider, under its own names
    #[serde(default)]
    options: Option<serde_json::Map<String, serde_json::Value>>,
}

fn optional_version(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = text_or_number(generator);
    schema.insert("type".into(), serde_json::json!(["string", "number", "null"]));
    schema
}

impl ModelSpec {
    /// The model called `name` that `node` describes: a path, or a mapping.
    pub(super) fn read(
        name: Spanned<String>,
        node: &Node,
        runtime: &RuntimeSpec,
    ) -> Result<Self, serde::de::value::Error> {
        let written = match node.as_str() {
            Some(path) => RawModel {
                source: Spanned::new(path.to_owned(), node.span.clone()),
                format: None,
                version: None,
                instances: None,
                threads: None,
                batching: None,
                provider: None,
                precision: None,
                options: None,
            },
            None => read(node)?,
        };
        Ok(Self {
            name,
            source: written.source,
            format: written.format.unwrap_or_default(),
            version: written.version,
            instances: written.instances,
            threads: written.threads,
            batching: written.batching,
            provider: written.provider.unwrap_or_else(|| runtime.gpu.backend.clone()),
            precision: written.precision.unwrap_or(runtime.precision),
            options: written.options.unwrap_or_else(|| runtime.gpu.options.clone()),
        })
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({
            "source": self.source,
            "format": self.format,
            "provider": self.provider,
            "precision": self.precision,
            "options": self.options,
        });
        super::fields::put(&mut json, "version", self.version.as_ref());
        super::fields::put(&mut json, "instances", self.instances.as_ref());
        super::fields::put(&mut json, "threads", self.threads.as_ref());
        super::fields::put(&mut json, "batching", self.batching.as_ref());
        json
    }
}
