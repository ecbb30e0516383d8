//! `/predict` of one pipeline.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use super::super::info::media_type;
use super::super::predict::Options;
use super::{NOT_READY, values, with_errors};
use crate::pipeline::{Kind, Plan, PlanInput};
use crate::serve::Served;
use crate::serve::trace::Trace;

/// Answers without a result.
const ERRORS: [(&str, &str); 9] = [
    ("400", "the request does not fit, or a step refuses it"),
    ("404", "there is no such pipeline"),
    ("406", "no output can be given in a type that is accepted"),
    ("408", "the body did not come in time"),
    ("413", "the body is larger than allowed"),
    ("415", "a body of this type is not read"),
    ("500", "a step failed or ran into a limit"),
    NOT_READY,
    ("504", "it took longer than it may"),
];

/// The whole operation.
pub(super) fn operation(generator: &mut SchemaGenerator, served: &Served, id: &str) -> Json {
    let trace = generator.subschema_for::<Trace>().to_value();
    let mut operation = json!({
        "operationId": id,
        "tags": [served.name()],
        "summary": format!("Run {}", served.name()),
        "description": served.pipeline().spec().description.as_deref().unwrap_or_default(),
        "parameters": parameters(served.plan()),
        "requestBody": { "required": true, "content": bodies(served) },
        "responses": { "200": { "description": "the outputs", "content": results(served.plan(), &trace) } },
    });
    with_errors(&mut operation, &ERRORS);
    operation
}

/// What the query may say, from the type that reads it.
fn parameters(plan: &Plan) -> Vec<Json> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<Options>().to_value();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Json)| {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let schema = match name.as_str() {
            "output" => json!({ "enum": plan.outputs().iter().map(|output| &output.name).collect::<Vec<_>>() }),
            _ => plain(schema),
        };
        json!({ "name": name, "in": "query", "required": false, "description": description, "schema": schema })
    };
    properties.into_iter().map(parameter).collect()
}

/// In a query, nothing is `null`: what may be left out is left out.
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

/// Every kind of body that the pipeline reads.
fn bodies(served: &Served) -> Json {
    let plan = served.plan();
    let mut content = Map::new();
    content.insert("application/json".to_owned(), json!({ "schema": json_body(plan) }));
    let field = |input: &PlanInput| match input.port.kind {
        Kind::Bytes | Kind::Any => json!({ "type": "string", "format": "binary" }),
        Kind::Text => json!({ "type": "string" }),
        Kind::Json | Kind::Tensor(_) => values::given(&input.port.kind),
    };
    content.insert("multipart/form-data".to_owned(), json!({ "schema": inputs(plan, field) }));
    let files: Vec<_> = plan.inputs().iter().filter(|input| takes_file(input)).collect();
    let rest = plan.inputs().iter().filter(|input| !takes_file(input));
    if let [only] = files.as_slice()
        && rest.clone().all(|input| !is_required(input))
    {
        let binary = json!({ "schema": { "type": "string", "format": "binary" } });
        if matches!(only.port.kind, Kind::Text | Kind::Any) {
            content.insert("text/plain".to_owned(), json!({ "schema": { "type": "string" } }));
        }
        if matches!(only.port.kind, Kind::Bytes | Kind::Any) {
            content.insert("application/octet-stream".to_owned(), binary.clone());
        }
        if let Some(media_type) = media_type(served, &only.port) {
            content.insert(media_type.to_owned(), binary);
        }
    }
    if plan.reader(&[]).single().is_some_and(|port| matches!(port.kind, Kind::Tensor(_))) {
        content.insert("application/x-npy".to_owned(), json!({ "schema": { "type": "string", "format": "binary" } }));
    }
    Json::Object(content)
}

/// An object of inputs, the value of the only input, or a list of either.
fn json_body(plan: &Plan) -> Json {
    let object = inputs(plan, |input| values::given(&input.port.kind));
    let single = plan.reader(&[]).single();
    let mut one = vec![object];
    one.extend(single.map(|port| values::given(&port.kind)));
    let mut forms = one.clone();
    one.push(json!({ "description": "anything else has its error in its place" }));
    forms.push(json!({
        "type": "array", "items": { "anyOf": one }, "minItems": 1,
        "description": "requests that run side by side",
    }));
    json!({ "anyOf": forms })
}

fn is_required(input: &PlanInput) -> bool {
    !input.port.optional && input.default.is_none()
}

fn inputs(plan: &Plan, schema: impl Fn(&PlanInput) -> Json) -> Json {
    let described = |input: &PlanInput| {
        let mut schema = schema(input);
        if !input.port.description.is_empty() {
            schema["description"] = json!(input.port.description);
        }
        (input.port.name.clone(), schema)
    };
    let required: Vec<_> =
        plan.inputs().iter().filter(|input| is_required(input)).map(|input| &input.port.name).collect();
    json!({
        "type": "object",
        "properties": plan.inputs().iter().map(described).collect::<Map<_, _>>(),
        "required": required,
        "additionalProperties": false,
    })
}

/// Every form in which a result is given.
fn results(plan: &Plan, trace: &Json) -> Json {
    let properties = plan.outputs().iter().map(|output| (output.name.clone(), values::written(&output.kind)));
    // Which of them are there, `?output=` may decide.
    let outputs = json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
        "additionalProperties": false,
    });
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
    let any = |fits: fn(&Kind) -> bool| plan.outputs().iter().any(|output| fits(&output.kind));
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
