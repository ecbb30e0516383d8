//! The Open Inference Protocol, `/v2`. Each pipeline has two paths of its own, as their request schemas differ; all
//! others are defined once, with the name as a parameter.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::answers::{ErrorShape, guarded, open, reference, response, with_errors};
use super::predict::{described_inputs, required};
use super::{Document, READY, escaped, example, get, infer_schemas, values, with_unready};
use crate::LoadedPipeline;
use crate::protocol::oip::{
    Live, ModelConfig, ModelIndex, ModelMetadata, ModelReady, Models, Ready, RepositoryCall, ServerMetadata,
    Statistics, request_schema,
};

/// The tag of paths that belong to no pipeline.
const TAG: &str = "Open Inference Protocol";

/// Error responses of an inference.
const ERRORS: [&str; 7] = ["400", "404", "408", "413", "415", "500", "503"];

/// The header with the length of the JSON in a body.
const JSON_LENGTH: &str = "Inference-Header-Content-Length";

pub(super) fn tag() -> Json {
    json!({ "name": TAG, "description": "the same pipelines as models, for NVIDIA's and KServe's clients" })
}

/// Adds the inference paths of a pipeline.
pub(super) fn pipeline(document: &mut Document<'_>, loaded: &LoadedPipeline) {
    let (name, signature) = (loaded.name(), loaded.signature());
    let path = format!("/v2/models/{}", escaped(name));
    let any = request_schema(&mut document.reading);
    let mut request = infer_schemas::request(loaded, &any);
    if let (Some(request), Some(example)) = (&mut request, infer_schemas::example(loaded)) {
        request["example"] = example;
    }
    let mut operation = inference(&format!("v2_infer_{name}"), request, infer_schemas::result(loaded));
    operation["tags"] = json!([name]);
    document.post(&format!("{path}/infer"), operation);

    // `generate` treats all other fields as parameters.
    let fields = json!({
        "type": "object",
        "properties": described_inputs(signature, |input| document.input_schema(loaded, &input.port)),
        "required": required(signature),
    });
    let outputs =
        signature.outputs().iter().map(|output| (output.name.clone(), values::flat_output_schema(&output.kind)));
    let mut body = json!({ "schema": fields });
    if let Some(example) = example::object(loaded) {
        body["example"] = example;
    }
    let mut operation = generation(&format!("v2_generate_{name}"), body);
    operation["responses"]["200"] = response("the outputs", generated(outputs.collect()));
    operation["tags"] = json!([name]);
    document.post(&format!("{path}/generate"), operation);
}

/// Adds all paths except the inferences of each pipeline.
pub(super) fn server(document: &mut Document<'_>, loaded: &[Arc<LoadedPipeline>]) {
    parameters(document, loaded);
    for (name, schema) in [("Classes", infer_schemas::classes()), ("InferResponse", infer_schemas::any_result())] {
        document.schemas.insert(name.to_owned(), schema);
    }
    let schema = document.subschema::<ServerMetadata>();
    document.get_with_parameters(
        "/v2",
        guarded(get("v2", "Name, version and extensions", "the server", schema), ErrorShape::Protocol),
    );
    let schema = document.subschema::<Live>();
    document.get_with_parameters(
        "/v2/health/live",
        open(get("v2_live", "Whether the process answers at all", "it does", schema)),
    );
    let schema = document.subschema::<Ready>();
    let ready = get("v2_ready", "Whether requests would be answered", READY, schema);
    document.get_with_parameters("/v2/health/ready", with_unready(ready));
    let schema = document.subschema::<Models>();
    document.get_with_parameters(
        "/v2/models",
        guarded(get("v2_models", "The names of all pipelines", "them", schema), ErrorShape::Protocol),
    );
    let schema = document.subschema::<Statistics>();
    let all = get("v2_statistics", "What inferences came to, of all pipelines", "counts and times", schema);
    document.get_with_parameters("/v2/models/stats", guarded(all, ErrorShape::Protocol));
    for (suffix, path) in [("", "/v2/models/{model}"), ("_of_version", "/v2/models/{model}/versions/{version}")] {
        models(document, suffix, path);
    }
    repository(document);
    settings(document);
}

/// Adds the path and header parameters.
fn parameters(document: &mut Document<'_>, loaded: &[Arc<LoadedPipeline>]) {
    let names: Vec<_> = loaded.iter().map(|loaded| loaded.name()).collect();
    let mut model = json!({ "type": "string" });
    if !names.is_empty() {
        model["enum"] = json!(names);
    }
    let version = json!({
        "name": "version", "in": "path", "required": true, "schema": { "type": "string" }, "example": "1",
        "description": "the number that the pipeline's version begins with, or all of it",
    });
    let length = json!({
        "name": JSON_LENGTH, "in": "header", "required": false, "schema": { "type": "integer", "minimum": 0 },
        "description": "bytes of JSON before those of the tensors; with 0, the whole body is the only input",
    });
    document.parameters.extend([
        ("model".to_owned(), json!({ "name": "model", "in": "path", "required": true, "schema": model })),
        ("version".to_owned(), version),
        (JSON_LENGTH.to_owned(), length),
    ]);
}

/// Adds the paths that every pipeline has.
fn models(document: &mut Document<'_>, suffix: &str, path: &str) {
    let metadata = document.subschema::<ModelMetadata>();
    let ready = document.subschema::<ModelReady>();
    let config = document.subschema::<ModelConfig>();
    let statistics = document.subschema::<Statistics>();
    for (rest, id, summary, schema) in [
        ("", "v2_model", "What a pipeline takes and gives", metadata),
        ("/ready", "v2_model_ready", "Whether a pipeline answers", ready),
        ("/config", "v2_config", "A pipeline in the form of Triton's configuration", config),
        ("/stats", "v2_model_statistics", "What inferences of a pipeline came to", statistics),
    ] {
        let mut operation = get(&format!("{id}{suffix}"), summary, "the pipeline's", schema);
        with_errors(&mut operation, ErrorShape::Protocol, &["400", "404", "503"]);
        document.get_with_parameters(&format!("{path}{rest}"), guarded(operation, ErrorShape::Protocol));
    }
    let fields = || json!({ "schema": { "type": "object" } });
    let mut stream = generation(&format!("v2_generate_stream{suffix}"), fields());
    let event = json!({ "text/event-stream": { "schema": { "type": "string" } } });
    stream["responses"]["200"] = json!({ "description": "one event that holds the outputs", "content": event });
    document.post_with_parameters(&format!("{path}/generate_stream"), stream);
    if !suffix.is_empty() {
        let mut operation = generation(&format!("v2_generate{suffix}"), fields());
        operation["responses"]["200"] = response("the outputs", generated(Map::new()));
        document.post_with_parameters(&format!("{path}/generate"), operation);
        request_schema(&mut document.reading);
        let request = json!({ "schema": reference("InferRequest") });
        let operation = inference(&format!("v2_infer{suffix}"), Some(request), reference("InferResponse"));
        document.post_with_parameters(&format!("{path}/infer"), operation);
    }
}

/// The extension `model_repository`.
fn repository(document: &mut Document<'_>) {
    let asked = document.reading.subschema_for::<RepositoryCall>().to_value();
    let body = json!({ "required": false, "content": { "application/json": { "schema": asked } } });
    let indexed = document.subschema::<Vec<ModelIndex>>();
    let mut index = get("v2_index", "Every pipeline and its state", "all of them", indexed);
    index["requestBody"] = body.clone();
    with_errors(&mut index, ErrorShape::Protocol, &["400", "408", "413", "415", "503"]);
    document.post_with_parameters("/v2/repository/index", guarded(index, ErrorShape::Protocol));
    if !document.settings.model_control {
        return;
    }
    for (call, summary) in [("load", "Load a pipeline, or load it again"), ("unload", "Take a pipeline out of service")]
    {
        let mut operation = json!({
            "operationId": format!("v2_{call}"),
            "summary": summary,
            "requestBody": body,
            "responses": { "200": { "description": "it is done" } },
        });
        with_errors(&mut operation, ErrorShape::Protocol, &ERRORS);
        document.post_with_parameters(
            &format!("/v2/repository/models/{{model}}/{call}"),
            guarded(operation, ErrorShape::Protocol),
        );
    }
}

/// The extensions `logging`, `trace` and shared memory.
fn settings(document: &mut Document<'_>) {
    let named =
        || json!({ "type": "object", "additionalProperties": { "type": ["string", "boolean", "integer", "array"] } });
    for (id, path, what) in [
        ("v2_logging", "/v2/logging", "What is logged"),
        ("v2_trace", "/v2/trace/setting", "What is traced"),
        ("v2_model_trace", "/v2/models/{model}/trace/setting", "What is traced of a pipeline"),
    ] {
        let mut read = get(id, what, "the settings, in Triton's names", named());
        with_errors(&mut read, ErrorShape::Protocol, &["400", "404", "503"]);
        document.get_with_parameters(path, guarded(read, ErrorShape::Protocol));
        let summary = format!("{what}, if nothing is to change");
        let mut update = get(&format!("{id}_update"), &summary, "the settings, which are as was asked", named());
        let content = json!({ "application/json": { "schema": { "type": "object" } } });
        update["requestBody"] = json!({ "required": false, "content": content });
        with_errors(&mut update, ErrorShape::Protocol, &["400", "404", "408", "413", "415", "503"]);
        document.post_with_parameters(path, guarded(update, ErrorShape::Protocol));
    }
    for memory in ["system", "cuda"] {
        let none = json!({ "type": "array", "maxItems": 0 });
        let status =
            get(&format!("v2_{memory}_memory"), "Regions of shared memory, of which there are none", "none", none);
        document
            .get_with_parameters(&format!("/v2/{memory}sharedmemory/status"), guarded(status, ErrorShape::Protocol));
    }
}

impl Document<'_> {
    fn get_with_parameters(&mut self, path: &str, operation: Json) {
        self.get(path, with_path_parameters(path, operation));
    }

    fn post_with_parameters(&mut self, path: &str, operation: Json) {
        self.post(path, with_path_parameters(path, operation));
    }
}

/// Adds the parameters of its path to an operation.
fn with_path_parameters(path: &str, mut operation: Json) -> Json {
    let named = ["model", "version"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
    let mut parameters: Vec<_> = named.map(parameter).collect();
    parameters.extend(operation["parameters"].as_array().cloned().unwrap_or_default());
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    operation["tags"] = json!([TAG]);
    operation
}

fn parameter(name: &str) -> Json {
    json!({ "$ref": format!("#/components/parameters/{name}") })
}

/// `infer`; with the JSON request schema, if there is one.
fn inference(id: &str, request: Option<Json>, result: Json) -> Json {
    let binary = json!({ "schema": { "type": "string", "format": "binary" } });
    let mut content = Map::new();
    content.extend(request.map(|request| ("application/json".to_owned(), request)));
    content.insert("application/octet-stream".to_owned(), binary.clone());
    let mut operation = json!({
        "operationId": id,
        "summary": "Run a pipeline on tensors",
        "parameters": [parameter(JSON_LENGTH)],
        "requestBody": { "required": true, "content": content, "description": "JSON, or JSON and the bytes of tensors behind it. NaN and infinities are texts; a request with the literals that Python writes for them is read, and answered with such" },
        "responses": { "200": response("the outputs", result) },
    });
    let answer = &mut operation["responses"]["200"];
    answer["content"]["application/octet-stream"] = binary;
    answer["headers"][JSON_LENGTH] = json!({
        "description": "bytes of JSON before those of the tensors", "schema": { "type": "integer", "minimum": 0 },
    });
    with_errors(&mut operation, ErrorShape::Protocol, &ERRORS);
    guarded(operation, ErrorShape::Protocol)
}

/// `generate`: an object of inputs to an object of outputs.
fn generation(id: &str, body: Json) -> Json {
    let mut operation = json!({
        "operationId": id,
        "summary": "Run a pipeline on an object of inputs",
        "requestBody": { "required": true, "content": { "application/json": body } },
        "responses": {},
    });
    with_errors(&mut operation, ErrorShape::Protocol, &ERRORS);
    guarded(operation, ErrorShape::Protocol)
}

/// The schema of `generate`'s response: the outputs and its own fields.
fn generated(mut outputs: Map<String, Json>) -> Json {
    for name in ["model_name", "model_version", "id"] {
        outputs.insert(name.to_owned(), json!({ "type": "string" }));
    }
    json!({ "type": "object", "properties": outputs, "required": ["model_name", "model_version"] })
}
