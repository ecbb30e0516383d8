//! `GET /openapi.json`: the HTTP API with each pipeline's own inputs and outputs, as OpenAPI 3.1.
//!
//! Common parts are defined once; each pipeline adds its inputs and outputs.

mod answers;
mod example;
mod infer_schemas;
mod oip;
mod predict;
mod texts;
mod values;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value as Json, json};

use super::http::response;
use super::predict::info::{Info, Pipelines};
use crate::engine::request_context::RequestContext;
use crate::{LoadedPipeline, Server, Settings};
use answers::{ErrorShape, guarded, open, response, with_errors};
use gpux_core::{Kind, Port};

/// The document for the pipelines that are loaded now.
pub(crate) async fn document(State(server): State<Arc<Server>>) -> Response {
    let asked = server.clone();
    let made = server.documents().run(move || {
        let slots = asked.repository().visible();
        let loaded: Vec<_> = slots.iter().filter_map(|slot| slot.loaded()).collect();
        response::json(&Document::new(asked.settings()).build(&loaded))
    });
    made.await.unwrap_or_else(|error| response::error(&error))
}

/// The document under construction.
struct Document<'a> {
    settings: &'a Settings,
    /// schemas of responses
    generator: SchemaGenerator,
    /// schemas of requests
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

    fn build(mut self, loaded: &[Arc<LoadedPipeline>]) -> Json {
        self.server();
        if let [only] = loaded {
            self.pipeline("", only);
        }
        for loaded in loaded {
            self.pipeline(&format!("/pipelines/{}", escaped(loaded.name())), loaded);
            oip::pipeline(&mut self, loaded);
        }
        oip::server(&mut self, loaded);
        texts::paths(&mut self, loaded);
        self.schemas.extend(self.generator.take_definitions(true));
        self.schemas.extend(self.reading.take_definitions(true));
        let pipelines = loaded.iter().map(|loaded| {
            let description = loaded.info().description.as_deref().unwrap_or_default();
            json!({ "name": loaded.name(), "description": description })
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
        let context = RequestContext::current();
        let root = context.as_ref().and_then(|context| context.prefix()).unwrap_or(&self.settings.root_path);
        if !root.is_empty() {
            document["servers"] = json!([{ "url": root }]);
        }
        if self.settings.keys.is_some() {
            document["components"]["securitySchemes"] = json!({
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            });
            document["security"] = json!([{ "bearer": [] }, { "key": [] }]);
        }
        document
    }

    /// Adds the paths of the server.
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
        self.get("/pipelines", guarded(pipelines, ErrorShape::Own));
        let mut metrics = get("metrics", "What the server counts", "the metrics", json!({ "type": "object" }));
        for text in ["text/plain", "application/openmetrics-text"] {
            metrics["responses"]["200"]["content"][text] = json!({ "schema": { "type": "string" } });
        }
        self.get("/metrics", guarded(metrics, ErrorShape::Own));
        let document = get("openapi", "This document", "the document", json!({ "type": "object" }));
        self.get("/openapi.json", guarded(document, ErrorShape::Own));
    }

    /// Adds the paths of a pipeline, under `prefix`.
    fn pipeline(&mut self, prefix: &str, loaded: &LoadedPipeline) {
        let name = loaded.name();
        let suffix = if prefix.is_empty() { String::new() } else { format!("_{name}") };
        let schema = self.subschema::<Info>();
        let mut info = get(&format!("info{suffix}"), "What the pipeline takes and gives", "the pipeline", schema);
        info["tags"] = json!([name]);
        with_errors(&mut info, ErrorShape::Own, &["404", "503"]);
        self.get(&format!("{prefix}/info"), guarded(info, ErrorShape::Own));
        let mut sample = get(
            &format!("sample{suffix}"),
            "A request to try, from the pipeline's first golden case",
            "the body of a request; 404 without a golden case",
            json!({ "type": "object" }),
        );
        sample["tags"] = json!([name]);
        with_errors(&mut sample, ErrorShape::Own, &["404", "503"]);
        self.get(&format!("{prefix}/sample"), guarded(sample, ErrorShape::Own));
        let operation = predict::operation(self, loaded, &format!("predict{suffix}"));
        self.post(&format!("{prefix}/predict"), guarded(operation, ErrorShape::Own));
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

    /// The schema of an input.
    fn input_schema(&mut self, loaded: &LoadedPipeline, port: &Port) -> Json {
        let schema = values::input_schema(&port.kind);
        match port.kind {
            Kind::Tensor(_) => self.part(loaded, &format!("inputs.{}", component(&port.name)), || schema),
            _ => schema,
        }
    }

    /// Adds a part of a pipeline as a named component; returns a reference to it.
    fn part(&mut self, loaded: &LoadedPipeline, part: &str, schema: impl FnOnce() -> Json) -> Json {
        let name = format!("{}.{part}", component(loaded.name()));
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

/// Adds the response 503, which has the same form. The operation needs no key.
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

/// A name as a component's name, which permits fewer characters.
fn component(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!(".{byte:02X}") }).collect()
}
