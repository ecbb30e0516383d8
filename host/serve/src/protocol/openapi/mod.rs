//! `GET /openapi.json`: the HTTP API with each pipeline's own inputs and outputs, as OpenAPI 3.1.
//!
//! What is the same for all pipelines stands once; of each there is what it takes and gives.

mod answers;
mod example;
mod infer;
mod oip;
mod predict;
mod values;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value as Json, json};

use super::http::response;
use super::predict::info::{Info, Pipelines};
use crate::{Served, Server, Settings};
use answers::{Form, guarded, open, response, with_errors};
use gpux_core::{Kind, Port};

/// The document for what is served now.
pub(crate) async fn document(State(server): State<Arc<Server>>) -> Response {
    let asked = server.clone();
    let made = server.documents().make(move || {
        let entries = asked.repository().visible();
        let served: Vec<_> = entries.iter().filter_map(|entry| entry.served()).collect();
        response::json(&Document::new(asked.settings()).of(&served))
    });
    made.await.unwrap_or_else(|error| response::error(&error))
}

/// The document while it is made.
struct Document<'a> {
    settings: &'a Settings,
    /// of what is written
    generator: SchemaGenerator,
    /// of what is read
    reading: SchemaGenerator,
    schemas: Map<String, Json>,
    parameters: Map<String, Json>,
    paths: Map<String, Json>,
}

impl<'a> Document<'a> {
    fn new(settings: &'a Settings) -> Self {
        let schemas = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
        });
        Self {
            settings,
            generator: schemas.clone().for_serialize().into_generator(),
            reading: schemas.into_generator(),
            schemas: answers::schemas(),
            parameters: predict::parameters(),
            paths: Map::new(),
        }
    }

    fn of(mut self, served: &[Arc<Served>]) -> Json {
        self.server();
        if let [only] = served {
            self.pipeline("", only);
        }
        for served in served {
            self.pipeline(&format!("/pipelines/{}", escaped(served.name())), served);
            oip::pipeline(&mut self, served);
        }
        oip::server(&mut self, served);
        self.schemas.extend(self.generator.take_definitions(true));
        self.schemas.extend(self.reading.take_definitions(true));
        let pipelines = served.iter().map(|served| {
            let description = served.pipeline().spec().description.as_deref().unwrap_or_default();
            json!({ "name": served.name(), "description": description })
        });
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "gpux",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Pipelines around ONNX models, and the same under `/v2` as the Open Inference Protocol has it.",
            },
            "tags": pipelines.chain([oip::tag()]).collect::<Vec<_>>(),
            "paths": self.paths,
            "components": {
                "schemas": self.schemas,
                "parameters": self.parameters,
                "responses": answers::responses(),
            },
        });
        if self.settings.keys.is_some() {
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
        self.get("/health", with_unready(get("health", "Whether every pipeline answers", READY, health)));
        self.get("/health/live", open(get("live", "Whether the process answers at all", "it does", flag("live"))));
        let operation = get("ready", "Whether requests would be answered", READY, flag("ready"));
        self.get("/health/ready", with_unready(operation));
        let pipelines = self.subschema::<Pipelines>();
        let pipelines = get("pipelines", "The pipelines and what each is doing", "all of them", pipelines);
        self.get("/pipelines", guarded(pipelines, Form::Own));
        let mut metrics = get("metrics", "What the server counts", "the metrics", json!({ "type": "object" }));
        for text in ["text/plain", "application/openmetrics-text"] {
            metrics["responses"]["200"]["content"][text] = json!({ "schema": { "type": "string" } });
        }
        self.get("/metrics", guarded(metrics, Form::Own));
        let document = get("openapi", "This document", "the document", json!({ "type": "object" }));
        self.get("/openapi.json", guarded(document, Form::Own));
    }

    /// What there is of a pipeline, under `prefix`.
    fn pipeline(&mut self, prefix: &str, served: &Served) {
        let name = served.name();
        let suffix = if prefix.is_empty() { String::new() } else { format!("_{name}") };
        let schema = self.subschema::<Info>();
        let mut info = get(&format!("info{suffix}"), "What the pipeline takes and gives", "the pipeline", schema);
        info["tags"] = json!([name]);
        with_errors(&mut info, Form::Own, &["404", "503"]);
        self.get(&format!("{prefix}/info"), guarded(info, Form::Own));
        let operation = predict::operation(self, served, &format!("predict{suffix}"));
        self.post(&format!("{prefix}/predict"), guarded(operation, Form::Own));
    }

    fn get(&mut self, path: &str, operation: Json) {
        self.paths.entry(path).or_insert_with(|| json!({}))["get"] = operation;
    }

    fn post(&mut self, path: &str, operation: Json) {
        self.paths.entry(path).or_insert_with(|| json!({}))["post"] = operation;
    }

    fn subschema<T: JsonSchema>(&mut self) -> Json {
        self.generator.subschema_for::<T>().to_value()
    }

    /// What an input may be given as.
    fn given(&mut self, served: &Served, port: &Port) -> Json {
        let schema = values::given(&port.kind);
        match port.kind {
            Kind::Tensor(_) => self.part(served, &format!("inputs.{}", component(&port.name)), || schema),
            _ => schema,
        }
    }

    /// The schema of a part of a pipeline, under a name of its own; what stands in for it comes back.
    fn part(&mut self, served: &Served, part: &str, schema: impl FnOnce() -> Json) -> Json {
        let name = format!("{}.{part}", component(served.name()));
        if !self.schemas.contains_key(&name) {
            self.schemas.insert(name.clone(), schema());
        }
        answers::reference(&name)
    }
}

const READY: &str = "every pipeline is warm, and the server is not about to end";

fn get(id: &str, summary: &str, meaning: &str, schema: Json) -> Json {
    json!({ "operationId": id, "summary": summary, "responses": { "200": response(meaning, schema) } })
}

/// Adds that it may be otherwise, which is told in the same form, and to everybody.
fn with_unready(mut operation: Json) -> Json {
    let mut unready = operation["responses"]["200"].clone();
    unready["description"] = json!("it is not, yet or any more");
    operation["responses"]["503"] = unready;
    open(operation)
}

/// A name as a segment of a path.
pub(crate) fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A name as that of a component, which may hold fewer characters.
fn component(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!(".{byte:02X}") }).collect()
}
