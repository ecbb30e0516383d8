//! `GET /openapi.json`: the HTTP API with each pipeline's own inputs and outputs, as OpenAPI 3.1.

mod predict;
mod values;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value as Json, json};

use super::answer;
use super::info::{Info, Pipelines};
use crate::serve::{Served, Server};

/// The document for what is served now.
pub(super) async fn document(State(server): State<Arc<Server>>) -> Response {
    let entries = server.repository().visible();
    let served: Vec<_> = entries.iter().filter_map(|entry| entry.served()).collect();
    answer::json(&Document::new(server.settings().keys.is_some()).of(&served))
}

/// The document while it is made.
struct Document {
    generator: SchemaGenerator,
    paths: Map<String, Json>,
    /// whether requests need a key
    keys: bool,
}

impl Document {
    fn new(keys: bool) -> Self {
        let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
        });
        Self { generator: settings.into_generator(), paths: Map::new(), keys }
    }

    fn of(mut self, served: &[Arc<Served>]) -> Json {
        self.server();
        if let [only] = served {
            self.pipeline("", only);
        }
        for served in served {
            self.pipeline(&format!("/pipelines/{}", escaped(served.name())), served);
        }
        let mut schemas = self.generator.take_definitions(true);
        schemas.insert("Error".to_owned(), error());
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "gpux",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Pipelines around ONNX models. The Open Inference Protocol under `/v2` is described by its own specification.",
            },
            "tags": served.iter().map(|served| json!({
                "name": served.name(),
                "description": served.pipeline().spec().description.as_deref().unwrap_or_default(),
            })).collect::<Vec<_>>(),
            "paths": self.paths,
            "components": { "schemas": schemas },
        });
        if self.keys {
            document["components"]["securitySchemes"] = json!({
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            });
            document["security"] = json!([{ "bearer": [] }, { "key": [] }]);
        }
        document
    }

    /// What there is beside the pipelines.
    fn server(&mut self) {
        let health = json!({
            "type": "object",
            "properties": {
                "status": { "type": "string" },
                "model": { "type": ["string", "null"] },
                "pipelines": { "type": "array" },
            },
            "required": ["status", "model"],
        });
        let flag =
            |name: &str| json!({ "type": "object", "properties": { name: { "type": "boolean" } }, "required": [name] });
        let both = |operation: Json, schema: Json| {
            let mut operation = operation;
            operation["responses"]["503"] = response("it is not, yet or any more", schema);
            open(operation)
        };
        let ready = "every pipeline is warm, and the server is not about to end";
        self.get("/health", both(get("health", "Whether every pipeline answers", ready, health.clone()), health));
        self.get("/health/live", open(get("live", "Whether the process answers at all", "it does", flag("live"))));
        let operation = get("ready", "Whether requests would be answered", ready, flag("ready"));
        self.get("/health/ready", both(operation, flag("ready")));
        let pipelines = self.subschema::<Pipelines>();
        let pipelines = get("pipelines", "The pipelines and what each is doing", "all of them", pipelines);
        self.get("/pipelines", guarded(pipelines));
        let mut metrics = get("metrics", "What the server counts", "the metrics", json!({ "type": "object" }));
        for text in ["text/plain", "application/openmetrics-text"] {
            metrics["responses"]["200"]["content"][text] = json!({ "schema": { "type": "string" } });
        }
        self.get("/metrics", guarded(metrics));
        let document = get("openapi", "This document", "the document", json!({ "type": "object" }));
        self.get("/openapi.json", guarded(document));
    }

    /// What there is of a pipeline, under `prefix`.
    fn pipeline(&mut self, prefix: &str, served: &Served) {
        let name = served.name();
        let suffix = if prefix.is_empty() { String::new() } else { format!("_{name}") };
        let schema = self.subschema::<Info>();
        let mut info = get(&format!("info{suffix}"), "What the pipeline takes and gives", "the pipeline", schema);
        info["tags"] = json!([name]);
        with_errors(&mut info, &[("404", "there is no such pipeline"), NOT_READY]);
        self.get(&format!("{prefix}/info"), guarded(info));
        let operation = predict::operation(&mut self.generator, served, &format!("predict{suffix}"));
        self.paths.insert(format!("{prefix}/predict"), json!({ "post": guarded(operation) }));
    }

    fn get(&mut self, path: &str, operation: Json) {
        self.paths.insert(path.to_owned(), json!({ "get": operation }));
    }

    fn subschema<T: JsonSchema>(&mut self) -> Json {
        self.generator.subschema_for::<T>().to_value()
    }
}

/// What may be asked without a key.
fn open(mut operation: Json) -> Json {
    operation["security"] = json!([]);
    operation
}

/// What needs a key, where the operator wants keys.
fn guarded(mut operation: Json) -> Json {
    let errors = [("401", "a key is wanted"), ("403", "the key may not"), ("429", "more than the key allows")];
    with_errors(&mut operation, &errors);
    operation
}

const NOT_READY: (&str, &str) = ("503", "there is no room or no time for it now, or the pipeline is being loaded");

fn get(id: &str, summary: &str, meaning: &str, schema: Json) -> Json {
    json!({ "operationId": id, "summary": summary, "responses": { "200": response(meaning, schema) } })
}

fn response(description: &str, schema: Json) -> Json {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

/// Answers that are no results, each with what it means.
fn with_errors(operation: &mut Json, errors: &[(&str, &str)]) {
    for (status, meaning) in errors {
        let mut answer = response(meaning, json!({ "$ref": "#/components/schemas/Error" }));
        if matches!(*status, "429" | "503") {
            answer["headers"]["Retry-After"] = json!({ "description": "seconds after which it may be otherwise", "schema": { "type": "integer", "minimum": 0 } });
        }
        operation["responses"][*status] = answer;
    }
}

/// What every error looks like.
fn error() -> Json {
    json!({
        "type": "object",
        "description": "Why there is no result",
        "properties": {
            "error": { "type": "string", "description": "its kind, such as `ValidationError`" },
            "message": { "type": "string", "description": "what happened, and what to do about it" },
            "details": { "type": "object", "description": "the input, the step or the limit it is about" },
        },
        "required": ["error", "message", "details"],
    })
}

/// A name as a segment of a path.
pub(super) fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
