//! `/info` and `/pipelines`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::protocol::http::path_name::PathName;
use crate::protocol::http::response;
use crate::protocol::tei::TeiInfo;
use crate::{LoadedPipeline, PipelineState, ServeError, Server};
use gpux::internal::ModelSummary;
use gpux_core::sanitize::redact_paths;
use gpux_core::{Dim, Kind, PlanInput, PlanOutput};

/// `/info`: the only pipeline.
pub(crate) async fn default_pipeline(State(server): State<Arc<Server>>) -> Response {
    answer_of(&server, server.repository().only_pipeline("info"))
}

/// `/pipelines/NAME/info`.
pub(crate) async fn by_name(State(server): State<Arc<Server>>, PathName(name): PathName) -> Response {
    answer_of(&server, server.repository().get(&name))
}

/// `/sample`: of the only pipeline.
pub(crate) async fn default_sample(State(server): State<Arc<Server>>) -> Response {
    sample_of(server.repository().only_pipeline("sample"))
}

/// `/pipelines/NAME/sample`
pub(crate) async fn sample_by_name(State(server): State<Arc<Server>>, PathName(name): PathName) -> Response {
    sample_of(server.repository().get(&name))
}

fn sample_of(loaded: Result<Arc<LoadedPipeline>, ServeError>) -> Response {
    let sample = loaded.and_then(|loaded| match &loaded.warm_up_report().sample {
        Some(sample) => Ok(response::json(&json!(sample))),
        None => Err(ServeError::NotFound(format!("`{}` has no golden case that could be a sample", loaded.name()))),
    });
    sample.unwrap_or_else(|error| response::error(&error))
}

fn answer_of(server: &Server, loaded: Result<Arc<LoadedPipeline>, ServeError>) -> Response {
    match loaded {
        Ok(loaded) => {
            let tei = TeiInfo::new(server, &loaded);
            response::json(&json!(Info { trace: server.settings().trace, tei, ..Info::new(&loaded) }))
        }
        Err(error) => response::error(&error),
    }
}

/// The pipelines that are served.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Pipelines {
    /// each of them, by name
    pipelines: Vec<Listed>,
}

/// A pipeline and what it is doing.
#[derive(Serialize, JsonSchema)]
struct Listed {
    name: String,
    /// `null` if it is not loaded
    version: Option<String>,
    /// `loading`, `ready`, `crashed`, `failed` or `unloaded`
    state: String,
    /// why what its files hold now is not what answers
    reason: Option<String>,
}

/// `/pipelines`: every pipeline with its state.
pub(crate) async fn all(State(server): State<Arc<Server>>) -> Response {
    let slots = server.repository().visible();
    let slots = slots.iter().map(|slot| {
        let state = match slot.state() {
            PipelineState::Loading => "loading",
            PipelineState::Ready => "ready",
            PipelineState::Crashed => "crashed",
            PipelineState::Failed => "failed",
            PipelineState::Unloaded => "unloaded",
        };
        let version = slot.loaded().map(|loaded| loaded.version().to_owned());
        Listed { name: slot.name().to_owned(), version, state: state.to_owned(), reason: slot.public_failure() }
    });
    response::json(&json!(Pipelines { pipelines: slots.collect() }))
}

/// A pipeline as its callers see it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Info {
    name: String,
    version: String,
    /// the digest of its manifest, `sha256:…`; `null` if it was not loaded from a store
    digest: Option<String>,
    /// what it does, for people
    description: Option<String>,
    /// of its models: `onnx`
    format: String,
    /// size of its models, in mebibytes
    size_mb: f64,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    models: Vec<Model>,
    /// the names of its steps, in the order they run
    steps: Vec<String>,
    /// what runs its models
    engine: String,
    /// which vectors can lie in one index: those of equal `space`; `null` if it gives none
    space: Option<String>,
    /// what computes them: engine, provider, precision, processor
    numerics: Option<String>,
    /// what is not as it could be
    warnings: Vec<String>,
    /// whether `?trace=true` is answered
    trace: bool,
    /// whether `sample` beside this gives a request to try
    sample: bool,
    /// for a pipeline with endpoints of other services
    #[serde(flatten)]
    tei: Option<TeiInfo>,
}

/// A model of the pipeline.
#[derive(Serialize, JsonSchema)]
struct Model {
    name: String,
    /// as declared, else the one that its file says
    version: String,
}

/// What a request gives.
#[derive(Serialize, JsonSchema)]
struct Input {
    name: String,
    /// `text`, `bytes`, `JSON`, or the element type of a tensor
    r#type: String,
    /// the dimensions of a tensor; -1 is one that each request decides
    shape: Option<Vec<i64>>,
    /// the names of its elements, which are columns of a table
    columns: Option<Vec<String>>,
    required: bool,
    description: String,
    /// `image/*` or `audio/*`, where the bytes are known to be that
    media_type: Option<String>,
}

/// What a request gets.
#[derive(Serialize, JsonSchema)]
struct Output {
    name: String,
    /// `text`, `bytes`, `JSON`, or the element type of a tensor
    r#type: String,
    /// the dimensions of a tensor; -1 is one that each request decides
    shape: Option<Vec<i64>>,
    /// the names of its classes
    labels: Option<Vec<String>>,
    /// whether its scores are probabilities: they come from `softmax` or `sigmoid`
    probabilities: bool,
    description: String,
}

impl Info {
    fn new(loaded: &LoadedPipeline) -> Self {
        let pipeline = loaded.info();
        let input = |input: &PlanInput| {
            let (r#type, shape) = type_and_shape(&input.port.kind);
            Input {
                name: input.port.name.clone(),
                r#type,
                shape,
                columns: input.columns.as_ref().map(|columns| columns.names.clone()).filter(|names| !names.is_empty()),
                required: input.is_required(),
                description: input.port.description.clone(),
                media_type: pipeline.media_type(&input.port).map(str::to_owned),
            }
        };
        let output = |output: &PlanOutput| {
            let (r#type, shape) = type_and_shape(&output.kind);
            Output {
                name: output.name.clone(),
                r#type,
                shape,
                labels: Some(pipeline.labels(&output.name).to_vec()).filter(|labels| !labels.is_empty()),
                probabilities: pipeline.is_probability(&output.name),
                description: pipeline.output_description(&output.name).to_owned(),
            }
        };
        let model = |model: &ModelSummary| Model { name: model.name.clone(), version: model.version.clone() };
        Self {
            name: loaded.name().to_owned(),
            version: loaded.version().to_owned(),
            digest: pipeline.digest.clone(),
            description: pipeline.description.clone(),
            format: "onnx".to_owned(),
            size_mb: pipeline.model_bytes as f64 / f64::from(1 << 20),
            inputs: pipeline.signature.inputs().iter().map(input).collect(),
            outputs: pipeline.signature.outputs().iter().map(output).collect(),
            models: pipeline.models.iter().map(model).collect(),
            steps: pipeline.steps.clone(),
            engine: pipeline.engine.clone(),
            space: pipeline.space.as_ref().map(|space| space.digest.clone()),
            numerics: pipeline.space.as_ref().map(|space| space.numerics.clone()),
            warnings: pipeline.warnings.iter().map(|warning| redact_paths(warning)).collect(),
            trace: false,
            sample: loaded.warm_up_report().sample.is_some(),
            tei: None,
        }
    }
}

fn type_and_shape(kind: &Kind) -> (String, Option<Vec<i64>>) {
    match kind {
        Kind::Tensor(kind) => {
            let element = kind.element().map_or_else(|| "tensor".to_owned(), |element| element.name().to_owned());
            let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size as i64 } else { -1 };
            (element, kind.shape.as_ref().map(|shape| shape.iter().map(size).collect()))
        }
        other => (other.to_string(), None),
    }
}
