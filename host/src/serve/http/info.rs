//! `/info` and `/pipelines`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::answer;
use crate::config::{Labels, OutputSpec};
use crate::pipeline::{Dim, Kind, Port};
use crate::serve::{ServeError, Served, Server, State as Serving};

/// The only pipeline's.
pub(super) async fn only(State(server): State<Arc<Server>>) -> Response {
    answer_of(server.repository().only())
}

/// That of the pipeline of this name.
pub(super) async fn named(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Response {
    answer_of(server.repository().get(&name))
}

fn answer_of(served: Result<Arc<Served>, ServeError>) -> Response {
    match served {
        Ok(served) => answer::json(&info(&served)),
        Err(error) => answer::error(&error),
    }
}

/// Every pipeline with what it is doing.
pub(super) async fn all(State(server): State<Arc<Server>>) -> Response {
    let entries = server.repository().visible();
    let entries = entries.iter().map(|entry| {
        let (state, reason) = match entry.state() {
            Serving::Loading => ("loading", None),
            Serving::Ready => ("ready", None),
            Serving::Unloaded => ("unloaded", None),
            Serving::Unavailable(reason) => ("unavailable", Some(reason)),
        };
        let version = entry.served().map(|served| served.version().to_owned());
        json!({ "name": entry.name(), "version": version, "state": state, "reason": reason.or(entry.failure()) })
    });
    answer::json(&json!({ "pipelines": entries.collect::<Vec<_>>() }))
}

/// The seeds' model information, of the pipeline as its callers see it.
fn info(served: &Served) -> Json {
    let (pipeline, spec) = (served.pipeline(), served.pipeline().spec());
    let bytes = pipeline.model_bytes();
    let inputs = served.plan().inputs().iter().map(|input| {
        let mut described = port(&input.port);
        described["required"] = json!(!input.port.optional && input.default.is_none());
        described["description"] = json!(input.port.description);
        described
    });
    let outputs = served.plan().outputs().iter().map(|output| {
        let declared = spec.outputs.iter().find(|declared| declared.name.value == output.name);
        let mut described = port(&Port::new(output.name.as_str(), output.kind.clone()));
        described["labels"] = json!(declared.and_then(labels));
        described["description"] = json!(declared.and_then(|output| output.description.as_deref()).unwrap_or_default());
        described
    });
    json!({
        "name": served.name(),
        "version": served.version(),
        "description": spec.description,
        "format": "onnx",
        "size_mb": bytes as f64 / (1 << 20) as f64,
        "inputs": inputs.collect::<Vec<_>>(),
        "outputs": outputs.collect::<Vec<_>>(),
        "steps": served.plan().steps().iter().map(|step| step.name.as_str()).collect::<Vec<_>>(),
        "engine": pipeline.engine(),
        "warnings": pipeline.warnings(),
    })
}

/// Name, type and shape; -1 is a dimension that each request decides.
fn port(port: &Port) -> Json {
    let (kind, shape) = match &port.kind {
        Kind::Tensor(kind) => {
            let element = kind.element().map_or_else(|| "tensor".to_owned(), |element| element.name().to_owned());
            let size = |dim: &Dim| if let Dim::Fixed(size) = dim { json!(size) } else { json!(-1) };
            (element, kind.shape.as_ref().map(|shape| shape.iter().map(size).collect::<Vec<_>>()))
        }
        other => (other.to_string(), None),
    };
    json!({ "name": port.name, "type": kind, "shape": shape })
}

fn labels(output: &OutputSpec) -> Option<Json> {
    output.labels.as_ref().map(|labels| match labels {
        Labels::List(labels) => json!(labels),
        Labels::File(path) => json!(path.value),
    })
}
