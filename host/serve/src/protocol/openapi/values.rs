//! Inputs and outputs of a pipeline as JSON Schemas, as `pipeline::from_json` reads them and `pipeline::write_json`
//! writes them.

use serde_json::{Value as Json, json};

use gpux_core::{Dim, ElementType, Kind, TensorKind, element_count};

/// The schema of an input of this kind.
pub(super) fn input_schema(kind: &Kind) -> Json {
    match kind {
        Kind::Any | Kind::Json => json!({}),
        Kind::Text => json!({ "type": "string" }),
        Kind::Bytes => json!({ "anyOf": [
            base64_object(),
            { "type": "string", "contentEncoding": "base64", "description": "base64, or a `data:` URL of it" },
        ] }),
        Kind::Tensor(tensor) => {
            let mut forms = vec![lists(tensor, Direction::Request)];
            forms.extend(flat(tensor));
            forms.push(explicit(tensor));
            json!({ "anyOf": forms })
        }
    }
}

/// The schema of an output of this kind.
pub(super) fn output_schema(kind: &Kind) -> Json {
    match kind {
        Kind::Any | Kind::Json => json!({}),
        Kind::Text => json!({ "type": "string" }),
        Kind::Bytes => base64_object(),
        Kind::Tensor(tensor) => lists(tensor, Direction::Response),
    }
}

/// The schema of an output of this kind as `generate` writes it: a tensor as a flat list, or as its only element.
pub(super) fn flat_output_schema(kind: &Kind) -> Json {
    let Kind::Tensor(tensor) = kind else { return output_schema(kind) };
    let element = elements(tensor, Direction::Response);
    let sizes = tensor.shape.iter().flat_map(|shape| shape.iter());
    let sizes: Option<Vec<_>> = sizes.map(|dim| if let Dim::Fixed(size) = dim { Some(*size) } else { None }).collect();
    let list = json!({ "type": "array", "items": element });
    match sizes.filter(|_| tensor.shape.is_some()).and_then(|sizes| element_count(&sizes)) {
        Some(1) => element,
        Some(_) => list,
        None => json!({ "anyOf": [element, list] }),
    }
}

/// The direction that a schema describes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// values in requests
    Request,
    /// values in responses
    Response,
}

fn base64_object() -> Json {
    json!({
        "type": "object",
        "properties": { "base64": { "type": "string", "contentEncoding": "base64" } },
        "required": ["base64"],
        "additionalProperties": false,
    })
}

/// Nested lists, one level per axis.
fn lists(tensor: &TensorKind, direction: Direction) -> Json {
    let number = elements(tensor, direction);
    let Some(shape) = &tensor.shape else {
        // Of unknown rank: a number, or lists of any depth.
        return json!({ "anyOf": [number, { "type": "array" }] });
    };
    let mut schema = shape.iter().rev().fold(number, |inner, dim| {
        let mut list = json!({ "type": "array", "items": inner });
        match dim {
            Dim::Fixed(size) => {
                list["minItems"] = json!(size);
                list["maxItems"] = json!(size);
            }
            // A list without inner lists does not determine the sizes of inner axes.
            Dim::Dynamic | Dim::Named(_) if direction == Direction::Request => list["minItems"] = json!(1),
            Dim::Dynamic | Dim::Named(_) => {}
        }
        list
    });
    schema["description"] = json!(format!("tensor {tensor}, row by row"));
    schema
}

/// All elements in one list, if they determine the shape.
fn flat(tensor: &TensorKind) -> Option<Json> {
    let shape = tensor.shape.as_ref().filter(|shape| shape.len() > 1)?;
    let fixed: Vec<_> = shape.iter().map(|dim| if let Dim::Fixed(size) = dim { *size } else { 1 }).collect();
    let count = element_count(&fixed)?;
    let mut list = json!({ "type": "array", "items": elements(tensor, Direction::Request), "minItems": count });
    list["description"] = json!("the elements in one list, in row-major order");
    // With one open axis, any multiple of the count fits; a schema cannot express that.
    if shape.iter().filter(|dim| !matches!(dim, Dim::Fixed(_))).count() != 1 {
        list["maxItems"] = json!(count);
    }
    Some(list)
}

/// A tensor as an object with type and shape, its data as numbers or bytes.
fn explicit(tensor: &TensorKind) -> Json {
    let names: Vec<_> = tensor.elements.iter().map(ElementType::name).collect();
    let mut shape = json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } });
    if let Some(dims) = &tensor.shape {
        (shape["minItems"], shape["maxItems"]) = (json!(dims.len()), json!(dims.len()));
    }
    json!({
        "type": "object",
        "properties": {
            "type": { "enum": names },
            "shape": shape,
            "data": {
                "type": ["array", "string"],
                "description": "the elements in row-major order, or their little-endian bytes in base64",
            },
        },
        "required": ["type", "shape", "data"],
        "additionalProperties": false,
    })
}

/// One element of the tensor.
fn elements(tensor: &TensorKind, direction: Direction) -> Json {
    let mut schemas: Vec<Json> = Vec::new();
    for element in tensor.elements.iter() {
        let schema = element_schema(element, direction);
        if !schemas.contains(&schema) {
            schemas.push(schema);
        }
    }
    if schemas.len() == 1 { schemas.remove(0) } else { json!({ "anyOf": schemas }) }
}

pub(super) fn element_schema(element: ElementType, direction: Direction) -> Json {
    let integer = |min: i128, max: i128| {
        let bound = |bound: i128| u64::try_from(bound).map_or_else(|_| json!(bound as i64), |bound| json!(bound));
        json!({ "type": "integer", "minimum": bound(min), "maximum": bound(max) })
    };
    // `step` is the distance between the largest number and the one before it. Inputs above the largest number are
    // rounded down to it if they are within half a step, else rejected.
    let float = |max: f64, step: f64| {
        let max = if step > 0.0 { (max + step / 2.0).next_down() } else { max };
        let mut number = json!({ "type": "number" });
        let mut others = json!(["NaN", "Infinity", "-Infinity"]);
        if direction == Direction::Request {
            (number["minimum"], number["maximum"]) = (json!(-max), json!(max));
            // A missing value is NaN.
            others = json!(["NaN", "Infinity", "-Infinity", null]);
        }
        json!({ "anyOf": [number, { "enum": others }] })
    };
    match element {
        ElementType::Bool => json!({ "type": "boolean" }),
        ElementType::String => json!({ "type": "string" }),
        ElementType::Uint8 => integer(0, u8::MAX.into()),
        ElementType::Int8 => integer(i8::MIN.into(), i8::MAX.into()),
        ElementType::Uint16 => integer(0, u16::MAX.into()),
        ElementType::Int16 => integer(i16::MIN.into(), i16::MAX.into()),
        ElementType::Uint32 => integer(0, u32::MAX.into()),
        ElementType::Int32 => integer(i32::MIN.into(), i32::MAX.into()),
        ElementType::Uint64 => integer(0, u64::MAX.into()),
        ElementType::Int64 => integer(i64::MIN.into(), i64::MAX.into()),
        ElementType::Float16 => float(half::f16::MAX.to_f64(), 2_f64.powi(5)),
        ElementType::Bfloat16 => float(half::bf16::MAX.to_f64(), 2_f64.powi(120)),
        ElementType::Float32 => float(f32::MAX.into(), 2_f64.powi(104)),
        ElementType::Float64 => float(f64::MAX, 0.0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Tensor, TensorElement, Value, from_json, to_json};

    fn fits(schema: &Json, json: &Json) -> bool {
        jsonschema::validator_for(schema).unwrap().is_valid(json)
    }

    /// A written value matches the output schema and the input schema.
    fn both_ways<T: TensorElement>(shape: &[usize], data: Vec<T>, dims: Vec<Dim>) {
        let kind = Kind::Tensor(TensorKind::shaped(T::TYPE, dims));
        let json = to_json(&Value::from(Tensor::new(shape, data).unwrap()));
        assert!(fits(&output_schema(&kind), &json), "{json}");
        assert!(fits(&input_schema(&kind), &json), "{json}");
    }

    #[test]
    fn extremes_of_every_type_fit_their_schema() {
        both_ways(&[2], vec![u64::MAX, 0], vec![Dim::Fixed(2)]);
        both_ways(&[2], vec![i64::MIN, i64::MAX], vec![Dim::Dynamic]);
        both_ways(&[1, 3], vec![f32::MAX, f32::NAN, f32::NEG_INFINITY], vec![Dim::Dynamic, Dim::Fixed(3)]);
        both_ways(&[], vec![true], vec![]);
        both_ways(&[1], vec!["x".to_owned()], vec![Dim::Named("N".into())]);
    }

    #[test]
    fn generate_returns_a_single_element_as_scalar() {
        for (dims, json, right) in [
            (vec![Dim::Fixed(1), Dim::Fixed(1)], json!(1), true),
            (vec![Dim::Fixed(1), Dim::Fixed(1)], json!([1]), false),
            (vec![Dim::Fixed(2)], json!([1, 2]), true),
            (vec![Dim::Fixed(2)], json!(1), false),
            (vec![Dim::Dynamic, Dim::Fixed(2)], json!([1, 2, 3, 4]), true),
            (vec![Dim::Dynamic], json!(1), true),
            (vec![Dim::Dynamic, Dim::Fixed(2)], json!([[1, 2]]), false),
        ] {
            let kind = Kind::Tensor(TensorKind::shaped(ElementType::Int8, dims.clone()));
            assert_eq!(fits(&flat_output_schema(&kind), &json), right, "{dims:?} {json}");
        }
    }

    #[test]
    fn schema_matches_the_parser() {
        let kind = Kind::Tensor(TensorKind::shaped(ElementType::Int8, vec![Dim::Dynamic, Dim::Fixed(2)]));
        for (json, right) in [
            (json!([[1, 2], [3, 4]]), true),
            (json!([1, 2]), true),
            (json!({ "type": "int8", "shape": [1, 2], "data": [1, 2] }), true),
            (json!([[1, 200]]), false),
            (json!([1]), false),
            (json!("x"), false),
            (json!({ "type": "float32", "shape": [1, 2], "data": [1, 2] }), false),
        ] {
            let read = from_json(json.clone(), &kind).is_ok_and(|value| kind.accepts(&value.kind()).is_ok());
            assert_eq!((fits(&input_schema(&kind), &json), read), (right, right), "{json}");
        }
        let bytes = json!({ "base64": "AAE=" });
        assert!(fits(&input_schema(&Kind::Bytes), &bytes) && fits(&output_schema(&Kind::Bytes), &bytes));
        assert!(!fits(&input_schema(&Kind::Text), &bytes));
    }
}
