//! Schemas of a pipeline's tensors in JSON requests and results of the Open Inference Protocol.

use serde_json::{Value as Json, json};

use super::answers::reference;
use super::example;
use super::values::{Direction, element_schema};
use crate::LoadedPipeline;
use crate::protocol::oip::{datatype, tensor_json};
use gpux_core::{Dim, ElementType, Kind, PlanInput, PlanOutput, TensorKind};

/// The schema of a request: the general schema, restricted to the inputs of this pipeline. `None` if a required input
/// has no JSON form.
pub(super) fn request(loaded: &LoadedPipeline, any: &Json) -> Option<Json> {
    let inputs = loaded.signature().inputs();
    let mut forms = Vec::new();
    for input in inputs {
        match of_input(input) {
            some if !some.is_empty() => forms.extend(some),
            _ if input.is_required() => return None,
            _ => {}
        }
    }
    let needed = inputs.iter().filter(|input| input.is_required()).count();
    let names: Vec<_> = loaded.signature().outputs().iter().map(|output| &output.name).collect();
    let mut request = any.clone();
    request["properties"]["inputs"] = json!({ "type": "array", "items": either(forms), "minItems": needed });
    request["properties"]["outputs"] = json!({
        "type": "array",
        "items": { "allOf": [reference("RequestedOutput"), { "properties": { "name": { "enum": names } } }] },
    });
    if let Some(fields) = request.as_object_mut() {
        fields.remove("description");
    }
    Some(json!({ "schema": request }))
}

/// A request that users can try.
pub(super) fn example(loaded: &LoadedPipeline) -> Option<Json> {
    let inputs: Option<Vec<_>> =
        example::request(loaded)?.into_iter().map(|(name, value)| tensor_json(name, value)).collect();
    Some(json!({ "inputs": inputs? }))
}

/// The schema of this pipeline's result: the general schema, restricted to its outputs.
pub(super) fn result(loaded: &LoadedPipeline) -> Json {
    let outputs = loaded.signature().outputs().iter().map(of_output).chain([reference("Classes")]);
    result_of(either(outputs.collect()))
}

/// The schema of any pipeline's result.
pub(super) fn any_result() -> Json {
    result_of(tensor(json!({ "type": "string" }), json!({ "type": "string" }), json!({})))
}

/// The schema of an output with `classification`.
pub(super) fn classes() -> Json {
    let mut classes = tensor(json!({ "type": "string" }), json!({ "const": "BYTES" }), json!({ "type": "string" }));
    classes["description"] = json!("the best classes, each as `value:index` or `value:index:label`");
    classes
}

fn result_of(output: Json) -> Json {
    json!({
        "type": "object",
        "properties": {
            "model_name": { "type": "string" },
            "model_version": { "type": "string" },
            "id": { "type": "string" },
            "parameters": { "type": "object", "additionalProperties": { "type": "string" } },
            "outputs": { "type": "array", "items": output },
        },
        "required": ["model_name", "model_version", "outputs"],
        "additionalProperties": false,
    })
}

/// The schemas of an input: one per datatype, if there are few.
fn of_input(input: &PlanInput) -> Vec<Json> {
    let mut forms = match &input.port.kind {
        Kind::Text | Kind::Bytes | Kind::Json => vec![one_text(&input.port.kind)],
        Kind::Any => vec![loose(json!(datatype::names()), None)],
        Kind::Tensor(kind) => {
            let elements: Vec<_> = kind.elements.iter().filter(|element| datatype::is_written_out(*element)).collect();
            if elements.len() > FEW {
                let names = elements.iter().map(|element| datatype::name(*element)).collect::<Vec<_>>();
                vec![loose(json!(names), kind.shape.as_deref())]
            } else {
                elements.into_iter().map(|element| exact(element, kind)).collect()
            }
        }
    };
    for form in &mut forms {
        form["properties"]["name"] = json!({ "const": input.port.name });
        form["required"] = json!(["name", "datatype", "shape", "data"]);
        if !input.port.description.is_empty() {
            form["description"] = json!(input.port.description);
        }
    }
    forms
}

/// The most datatypes that get a schema each.
const FEW: usize = 3;

/// One element: a text, a file, a document.
fn one_text(kind: &Kind) -> Json {
    let item = match kind {
        Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
        Kind::Json => json!({ "type": "string", "contentMediaType": "application/json" }),
        _ => json!({ "type": "string" }),
    };
    json!({
        "type": "object",
        "properties": {
            "datatype": { "const": "BYTES" },
            "shape": { "type": "array", "items": { "const": 1 } },
            "data": { "type": "array", "items": item, "minItems": 1, "maxItems": 1 },
        },
    })
}

/// A tensor of one of several types.
fn loose(datatypes: Json, dims: Option<&[Dim]>) -> Json {
    json!({
        "type": "object",
        "properties": { "datatype": { "enum": datatypes }, "shape": shape(dims), "data": { "type": "array" } },
    })
}

/// A tensor of this type.
fn exact(element: ElementType, kind: &TensorKind) -> Json {
    json!({
        "type": "object",
        "properties": {
            "datatype": { "const": datatype::name(element) },
            "shape": shape(kind.shape.as_deref()),
            "data": data(element, kind.shape.as_deref()),
        },
    })
}

fn shape(dims: Option<&[Dim]>) -> Json {
    let any = || json!({ "type": "integer", "minimum": 0 });
    let Some(dims) = dims else { return json!({ "type": "array", "items": any() }) };
    let size = |dim: &Dim| if let Dim::Fixed(size) = dim { json!({ "const": size }) } else { any() };
    let sizes: Vec<_> = dims.iter().map(size).collect();
    let mut shape = json!({ "type": "array", "minItems": sizes.len(), "maxItems": sizes.len() });
    if !sizes.is_empty() {
        shape["prefixItems"] = json!(sizes);
    }
    shape
}

/// The elements in one list, or nested like the shape.
fn data(element: ElementType, dims: Option<&[Dim]>) -> Json {
    let item = element_schema(element, Direction::Request);
    let nested =
        if dims.is_some_and(|dims| dims.len() <= 1) { item } else { json!({ "anyOf": [item, { "type": "array" }] }) };
    json!({ "type": "array", "items": nested })
}

/// The schema of an output without `classification`.
fn of_output(output: &PlanOutput) -> Json {
    let name = json!({ "const": output.name });
    match &output.kind {
        Kind::Any => tensor(name, json!({ "enum": json!(datatype::names()) }), json!({})),
        Kind::Text | Kind::Bytes | Kind::Json => tensor(name, json!({ "const": "BYTES" }), json!({ "type": "string" })),
        Kind::Tensor(kind) => {
            let names: Vec<_> = kind.elements.iter().map(datatype::name).collect();
            let items =
                kind.element().map_or_else(|| json!({}), |element| element_schema(element, Direction::Response));
            tensor(name, json!({ "enum": names }), items)
        }
    }
}

/// An output. Without `data`, its bytes follow the JSON.
fn tensor(name: Json, datatype: Json, item: Json) -> Json {
    json!({
        "type": "object",
        "properties": {
            "name": name,
            "datatype": datatype,
            "shape": { "type": "array", "items": { "type": "integer", "minimum": 0 } },
            "data": { "type": "array", "items": item },
            "parameters": { "type": "object" },
        },
        "required": ["name", "datatype", "shape"],
        "additionalProperties": false,
    })
}

fn either(mut forms: Vec<Json>) -> Json {
    if forms.len() == 1 { forms.remove(0) } else { json!({ "anyOf": forms }) }
}
