//! `/predict` of one pipeline.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use super::answers::{ErrorShape, with_errors};
use super::{Document, example, values};
use crate::LoadedPipeline;
use crate::protocol::predict::QueryOptions;
use gpux_core::{Kind, PlanInput, PlanSignature};
use gpux_worker::Trace;

/// Error responses.
const ERRORS: [&str; 9] = ["400", "404", "406", "408", "413", "415", "500", "503", "504"];

/// The whole operation.
pub(super) fn operation(document: &mut Document<'_>, loaded: &LoadedPipeline, id: &str) -> Json {
    let trace = document.subschema::<Trace>();
    let inputs = inputs_part(document, loaded);
    let single = loaded.signature().reader(&[]).single().map(|port| document.input_schema(loaded, port));
    let outputs = outputs_part(document, loaded);
    let content = request_budget(document, loaded, inputs, single);
    let names: Vec<_> = loaded.signature().outputs().iter().map(|output| &output.name).collect();
    let shared = document.parameters.keys().filter(|name| SHARED.contains(&name.as_str()));
    let parameters = shared.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }));
    let output = json!({
        "name": "output", "in": "query", "required": false, "schema": { "enum": names },
        "description": "the output to give, where one is given alone",
    });
    let mut operation = json!({
        "operationId": id,
        "tags": [loaded.name()],
        "summary": format!("Run {}", loaded.name()),
        "description": loaded.info().description.as_deref().unwrap_or_default(),
        "parameters": parameters.chain([output]).collect::<Vec<_>>(),
        "requestBody": { "required": true, "content": content },
        "responses": { "200": { "description": "the outputs", "content": results(loaded.signature(), &outputs, &trace) } },
    });
    with_errors(&mut operation, ErrorShape::Own, &ERRORS);
    operation
}

/// An object of inputs by name.
fn inputs_part(document: &mut Document<'_>, loaded: &LoadedPipeline) -> Json {
    let inputs = inputs(loaded.signature(), |input| document.input_schema(loaded, &input.port));
    document.part(loaded, "inputs", || inputs)
}

/// Outputs by name. `?output=` may select a single one.
fn outputs_part(document: &mut Document<'_>, loaded: &LoadedPipeline) -> Json {
    document.part(loaded, "outputs", || {
        let outputs = loaded.signature().outputs().iter();
        let properties = outputs.map(|output| (output.name.clone(), values::output_schema(&output.kind)));
        json!({
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "additionalProperties": false,
        })
    })
}

/// Parameters that are the same for every pipeline.
const SHARED: [&str; 3] = ["timeout", "priority", "trace"];

/// Query parameters of any pipeline, from the type that parses them.
pub(super) fn parameters() -> Map<String, Json> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<QueryOptions>().to_value();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let shared = properties.into_iter().filter(|(name, _)| SHARED.contains(&name.as_str()));
    let parameter = |(name, mut schema): (String, Json)| {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let parameter = json!({
            "name": name, "in": "query", "required": false, "description": description, "schema": plain(schema),
        });
        (name, parameter)
    };
    shared.map(parameter).collect()
}

/// Removes `null` from a schema: query parameters are omitted instead.
fn plain(mut schema: Json) -> Json {
    let Some(fields) = schema.as_object_mut() else { return schema };
    fields.remove("format");
    if let Some(Json::Array(kinds)) = fields.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            fields.insert("type".to_owned(), only);
        }
    }
    if let Some(Json::Array(forms)) = fields.get_mut("anyOf") {
        forms.retain(|form| form["type"] != "null");
        if let [only] = forms.as_slice() {
            return only.clone();
        }
    }
    schema
}

fn takes_file(input: &PlanInput) -> bool {
    matches!(input.port.kind, Kind::Bytes | Kind::Text | Kind::Any)
}

/// Every media type of a body that the pipeline reads.
fn request_budget(document: &mut Document<'_>, loaded: &LoadedPipeline, object: Json, single: Option<Json>) -> Json {
    let signature = loaded.signature();
    let mut content = Map::new();
    let mut body = json!({ "schema": json_body(object, single) });
    if let Some(example) = example::object(loaded) {
        body["example"] = example;
    }
    content.insert("application/json".to_owned(), body);
    let field = |input: &PlanInput| match input.port.kind {
        Kind::Bytes | Kind::Any => json!({ "type": "string", "format": "binary" }),
        Kind::Text => json!({ "type": "string" }),
        Kind::Json | Kind::Tensor(_) => document.input_schema(loaded, &input.port),
    };
    content.insert("multipart/form-data".to_owned(), json!({ "schema": inputs(signature, field) }));
    let files: Vec<_> = signature.inputs().iter().filter(|input| takes_file(input)).collect();
    let rest = signature.inputs().iter().filter(|input| !takes_file(input));
    if let [only] = files.as_slice()
        && rest.clone().all(|input| !input.is_required())
    {
        let binary = json!({ "schema": { "type": "string", "format": "binary" } });
        if matches!(only.port.kind, Kind::Text | Kind::Any) {
            content.insert("text/plain".to_owned(), json!({ "schema": { "type": "string" } }));
        }
        if matches!(only.port.kind, Kind::Bytes | Kind::Any) {
            content.insert("application/octet-stream".to_owned(), binary.clone());
        }
        if let Some(media_type) = loaded.info().media_type(&only.port) {
            content.insert(media_type.to_owned(), binary);
        }
    }
    if signature.reader(&[]).single().is_some_and(|port| matches!(port.kind, Kind::Tensor(_))) {
        content.insert("application/x-npy".to_owned(), json!({ "schema": { "type": "string", "format": "binary" } }));
    }
    if signature.inputs().iter().any(|input| matches!(input.port.kind, Kind::Tensor(_))) {
        let description = "a request for each row; columns are found by their names, or by `columns` of the input";
        let table = json!({ "schema": { "type": "string", "description": description } });
        content.insert("text/csv".to_owned(), table);
    }
    Json::Object(content)
}

/// An object of inputs, the value of the only input, or a list of either.
fn json_body(object: Json, single: Option<Json>) -> Json {
    let mut one = vec![object];
    one.extend(single);
    let mut forms = one.clone();
    one.push(json!({ "description": "anything else has its error in its place" }));
    forms.push(json!({
        "type": "array", "items": { "anyOf": one }, "minItems": 1,
        "description": "requests that run side by side",
    }));
    json!({ "anyOf": forms })
}

fn inputs(signature: &PlanSignature, schema: impl FnMut(&PlanInput) -> Json) -> Json {
    json!({
        "type": "object",
        "properties": described_inputs(signature, schema),
        "required": required(signature),
        "additionalProperties": false,
    })
}

/// The names of the required inputs.
pub(super) fn required(signature: &PlanSignature) -> Vec<&str> {
    signature.inputs().iter().filter(|input| input.is_required()).map(|input| input.port.name.as_str()).collect()
}

/// Every input with its schema and its description.
pub(super) fn described_inputs(
    signature: &PlanSignature,
    mut schema: impl FnMut(&PlanInput) -> Json,
) -> Map<String, Json> {
    let described = |input: &PlanInput| {
        let mut schema = schema(input);
        if !input.port.description.is_empty() {
            schema["description"] = json!(input.port.description);
        }
        (input.port.name.clone(), schema)
    };
    signature.inputs().iter().map(described).collect()
}

/// Every media type of a result.
fn results(signature: &PlanSignature, outputs: &Json, trace: &Json) -> Json {
    let traced = json!({
        "type": "object",
        "properties": { "outputs": outputs, "trace": trace },
        "required": ["outputs", "trace"],
        "additionalProperties": false,
        "description": "with `?trace=true`",
    });
    let item = json!({ "anyOf": [outputs, { "$ref": "#/components/schemas/Error" }] });
    let list = json!({ "type": "array", "items": item, "description": "of a list, in its order" });
    let mut content = Map::new();
    content.insert("application/json".to_owned(), json!({ "schema": { "anyOf": [outputs, traced, list] } }));
    let any = |fits: fn(&Kind) -> bool| signature.outputs().iter().any(|output| fits(&output.kind));
    let binary = json!({ "schema": { "type": "string", "format": "binary" } });
    if any(|kind| matches!(kind, Kind::Bytes | Kind::Any)) {
        content.insert("image/*".to_owned(), binary.clone());
    }
    if any(|kind| matches!(kind, Kind::Text | Kind::Any)) {
        content.insert("text/plain".to_owned(), json!({ "schema": { "type": "string" } }));
    }
    if any(|kind| matches!(kind, Kind::Bytes | Kind::Tensor(_) | Kind::Any)) {
        content.insert("application/octet-stream".to_owned(), binary.clone());
    }
    if any(|kind| matches!(kind, Kind::Tensor(_) | Kind::Any)) {
        content.insert("application/x-npy".to_owned(), binary);
    }
    Json::Object(content)
}
