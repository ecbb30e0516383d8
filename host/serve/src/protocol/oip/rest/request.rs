//! Parses JSON requests without a tree: the numbers of a tensor are parsed directly into its elements.

use std::fmt;

use bytes::Bytes;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed as _, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;

use super::bounded_fields::{BoundedList, BoundedName, BoundedShape, Parameterized, ParsedParameters};
use super::framing::Framing;
use super::object::Object;
use crate::ServeError;
use crate::engine::body_budget::RequestBudget;
use crate::protocol::http::json_text::{self, Scope};
use crate::protocol::oip::datatype;
use crate::protocol::oip::infer::{InferRequest, RequestedOutput};
use crate::protocol::oip::metadata::TensorMetadata;
use crate::protocol::oip::parameters;
use crate::protocol::oip::parameters::{MAX_PARTS, OutputParameters, Parameters, RequestParameters};
use crate::protocol::oip::tensors::{Data, InputTensor};
use gpux_core::{BoundedJsonTree, ElementType, Tensor, TensorSeed, element_count};

/// Tensors, and what is asked of them.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "InferRequest")]
struct JsonRequest {
    /// given back with the result
    #[serde(default)]
    #[schemars(with = "String")]
    id: BoundedName,
    #[serde(default)]
    #[schemars(with = "RequestParameters")]
    parameters: ParsedParameters,
    #[schemars(with = "Vec<JsonInput>")]
    inputs: BoundedList<JsonInput>,
    /// the outputs to give; all of them where none is named
    #[serde(default)]
    #[schemars(with = "Vec<JsonOutput>")]
    outputs: BoundedList<Object<JsonOutput>>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RequestedOutput")]
struct JsonOutput {
    #[schemars(with = "String")]
    name: BoundedName,
    #[serde(default)]
    #[schemars(with = "OutputParameters")]
    parameters: ParsedParameters,
}

#[derive(JsonSchema)]
#[schemars(rename = "InputTensor")]
struct JsonInput {
    name: String,
    #[schemars(rename = "datatype", schema_with = "datatype::schema")]
    element: ElementType,
    shape: Vec<usize>,
    #[schemars(default)]
    parameters: Parameters,
    /// its elements, flat or nested as the shape is
    #[schemars(with = "Option<Vec<Json>>")]
    data: Option<Tensor>,
}

/// The schema of a request; adds its parts to the generator's definitions.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Json {
    generator.subschema_for::<JsonRequest>();
    generator.definitions().get("InferRequest").cloned().unwrap_or_default()
}

/// Parses a request; also returns whether it had unquoted literals such as `NaN`. A raw request must be for a pipeline
/// with a single required input.
pub(super) fn read(
    framing: Framing,
    inputs: &[TensorMetadata],
    budget: &RequestBudget,
) -> Result<(InferRequest, bool), ServeError> {
    let (json, mut binary) = match framing {
        Framing::Raw(bytes) => return raw(bytes, inputs).map(|request| (request, false)),
        Framing::Json { json, binary } => (json, binary),
    };
    let (Object(written), has_literals) = of_text::<Object<JsonRequest>>(&json, budget)?;
    if written.parameters.0.len() + written.inputs.parameters() + written.outputs.parameters() > MAX_PARTS {
        return Err(ServeError::invalid(format!("a request has at most {MAX_PARTS} parameters")));
    }
    let inputs =
        written.inputs.0.into_iter().map(|input| input.with_data(&mut binary)).collect::<Result<Vec<_>, _>>()?;
    if !binary.is_empty() {
        return Err(ServeError::invalid(format!("{} bytes follow the data of the last input", binary.len())));
    }
    let output = |Object(output): Object<JsonOutput>| RequestedOutput::new(output.name.0, &output.parameters.0);
    let outputs = written.outputs.0.into_iter().map(output).collect::<Result<Vec<_>, _>>()?;
    Ok((InferRequest { id: written.id.0, parameters: written.parameters.0, inputs, outputs }, has_literals))
}

/// Parses JSON. If that fails, quotes its literals ([`json_text`]), within the budget, and tries again. Also returns whether it
/// did.
fn of_text<T: DeserializeOwned>(json: &[u8], budget: &RequestBudget) -> Result<(T, bool), ServeError> {
    let wrong = |error| ServeError::invalid(format!("not an inference request: {error}"));
    let error = match serde_json::from_slice(json) {
        Ok(read) => return Ok((read, false)),
        Err(error) => error,
    };
    if !error.is_syntax() || !json_text::are_in(json, Scope::Lists) {
        return Err(wrong(error));
    }
    let _permit = budget.reserve(json_text::budget(json))?;
    let quoted = json_text::quoted(json, Scope::Lists).unwrap_or_default();
    serde_json::from_slice(&quoted).map(|read| (read, true)).map_err(wrong)
}

/// The size of the widest number in a request, in bytes, found by searching for datatypes: each ends in its number of
/// bits. Escaped names may be any datatype.
pub(super) fn widest(json: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(json) else { return 8 };
    let found = |(ends, _): &(&str, usize)| text.contains(ends);
    [("64\"", 8), ("\\u", 8), ("32\"", 4), ("16\"", 2)].into_iter().find(found).map_or(1, |(_, size)| size)
}

/// A body without JSON: one element of BYTES, or as many elements as the bytes hold.
fn raw(bytes: Bytes, inputs: &[TensorMetadata]) -> Result<InferRequest, ServeError> {
    let mut needed = inputs.iter().filter(|input| !input.optional);
    let (Some(input), None) = (needed.next(), needed.next()) else {
        return Err(ServeError::invalid("a raw request is for a pipeline with one input"));
    };
    let (shape, data) = match input.element.size() {
        None => (input.shape.iter().map(|_| 1).collect(), Data::Items(vec![bytes])),
        Some(size) => (raw_shape(input, bytes.len() / size)?, Data::Raw(bytes)),
    };
    let input = InputTensor { name: input.name.clone(), element: input.element, shape, data };
    // A raw request gets a raw response.
    let parameters = Parameters::from_iter([("binary_data_output".to_owned(), Json::Bool(true))]);
    Ok(InferRequest { id: String::new(), parameters, inputs: vec![input], outputs: Vec::new() })
}

/// The shape of the only input. One open dimension is computed from the number of elements.
fn raw_shape(input: &TensorMetadata, elements: usize) -> Result<Vec<usize>, ServeError> {
    let known: Vec<_> = input.shape.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
    let open = input.shape.len() - known.len();
    let known = element_count(&known).unwrap_or(0);
    if open > 1 {
        let message = format!("`{}` has {open} open dimensions, which a raw request cannot give", input.name);
        return Err(ServeError::invalid(message));
    }
    let rest = elements.checked_div(known).unwrap_or(0);
    Ok(input.shape.iter().map(|size| usize::try_from(*size).unwrap_or(rest)).collect())
}

impl Parameterized for JsonInput {
    fn parameters(&self) -> usize {
        self.parameters.len()
    }

    fn strings(&self) -> usize {
        self.data.as_ref().filter(|_| self.element == ElementType::String).map_or(0, Tensor::len)
    }
}

impl Parameterized for Object<JsonOutput> {
    fn parameters(&self) -> usize {
        self.0.parameters.0.len()
    }
}

impl JsonInput {
    fn with_data(self, binary: &mut Bytes) -> Result<InputTensor, ServeError> {
        let Self { name, element, shape, parameters, data } = self;
        let wrong = |message: String| ServeError::invalid(format!("input `{name}`: {message}"));
        parameters::reject_shared_memory(&parameters, &name)?;
        let data = match (data, parameters::count(&parameters, "binary_data_size")?) {
            (Some(tensor), None) => Data::Elements(tensor),
            (None, Some(size)) => match usize::try_from(size) {
                Ok(size) if size <= binary.len() => Data::Raw(binary.split_to(size)),
                _ => return Err(wrong(format!("its data is {size} bytes, but {} follow", binary.len()))),
            },
            (None, None) => return Err(wrong("there is neither `data` nor `binary_data_size`".to_owned())),
            (Some(_), Some(_)) => return Err(wrong("there is both `data` and `binary_data_size`".to_owned())),
        };
        Ok(InputTensor { name, element, shape, data })
    }
}

impl<'de> Deserialize<'de> for JsonInput {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(JsonInputVisitor)
    }
}

struct JsonInputVisitor;

impl<'de> Visitor<'de> for JsonInputVisitor {
    type Value = JsonInput;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an input: name, datatype, shape and data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<JsonInput, A::Error> {
        let (mut name, mut element, mut shape) = (None, None, None::<Vec<usize>>);
        let (mut parameters, mut data, mut early) = (None, None, None);
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "name" => once(&mut name, "name", || fields.next_value().map(|BoundedName(name)| name))?,
                "datatype" => once(&mut element, "datatype", || {
                    datatype::parse(&fields.next_value::<BoundedName>()?.0).map_err(A::Error::custom)
                })?,
                "shape" => once(&mut shape, "shape", || fields.next_value().map(|BoundedShape(shape)| shape))?,
                "parameters" => once(&mut parameters, "parameters", || fields.next_value())?,
                "data" if early.is_some() => return Err(A::Error::duplicate_field("data")),
                "data" => match element {
                    Some(element) => {
                        once(&mut data, "data", || fields.next_value_seed(seed(element, shape.as_deref())?))?;
                    }
                    // The datatype follows later.
                    None => early = Some(fields.next_value()?),
                },
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        let element = element.ok_or_else(|| A::Error::missing_field("datatype"))?;
        let shape = shape.ok_or_else(|| A::Error::missing_field("shape"))?;
        if let Some(BoundedJsonTree(early)) = early {
            let read = seed(element, Some(&shape))?.deserialize(early);
            data = Some(read.map_err(|error| A::Error::custom(format_args!("input `{name}`: {error}")))?);
        }
        let ParsedParameters(parameters) = parameters.unwrap_or_default();
        Ok(JsonInput { name, element, shape, parameters, data })
    }
}

/// Parses a field that may occur only once.
fn once<T, E: Error>(place: &mut Option<T>, name: &'static str, read: impl FnOnce() -> Result<T, E>) -> Result<(), E> {
    if place.is_some() {
        return Err(E::duplicate_field(name));
    }
    *place = Some(read()?);
    Ok(())
}

fn seed<E: Error>(element: ElementType, shape: Option<&[usize]>) -> Result<TensorSeed, E> {
    if !datatype::is_written_out(element) {
        let name = datatype::name(element);
        return Err(E::custom(format_args!("{name} is not sent as JSON; send it as binary data")));
    }
    Ok(TensorSeed { element, room: shape.and_then(element_count).unwrap_or(0) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::body_budget::BodyBudget;
    use crate::engine::metrics::Metrics;
    use crate::{Rejection, Settings};

    fn budget() -> RequestBudget {
        BodyBudget::requests(&Settings::default(), &Metrics::new()).for_request()
    }

    fn request(json: &str, binary: &'static [u8]) -> Result<InferRequest, String> {
        let framing =
            Framing::Json { json: Bytes::copy_from_slice(json.as_bytes()), binary: Bytes::from_static(binary) };
        read(framing, &[], &budget()).map(|(request, _)| request).map_err(|error| error.to_string())
    }

    #[test]
    fn accepts_fields_in_any_order() {
        for json in [
            r#"{"id":"7","inputs":[{"name":"x","datatype":"INT8","shape":[2],"data":[1,-2]}]}"#,
            r#"{"inputs":[{"data":[1,-2],"shape":[2],"datatype":"INT8","extra":{"a":[]},"name":"x"}],"id":"7"}"#,
        ] {
            let request = request(json, b"").unwrap();
            assert_eq!(request.id, "7");
            let Data::Elements(tensor) = &request.inputs[0].data else { unreachable!() };
            assert_eq!(tensor.as_slice::<i8>().unwrap(), [1, -2]);
        }
    }

    #[test]
    fn consumes_binary_data_in_order() {
        let two = r#"{"inputs":[
            {"name":"a","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}},
            {"name":"j","datatype":"UINT8","shape":[1],"data":[9]},
            {"name":"b","datatype":"FP16","shape":[1],"parameters":{"binary_data_size":2}}]}"#;
        let read = request(two, b"abcd").unwrap();
        assert!(matches!(&read.inputs[2].data, Data::Raw(bytes) if bytes == "cd"));
        assert!(request(two, b"abc").unwrap_err().contains("2 bytes, but 1 follow"));
        assert!(request(two, b"abcde").unwrap_err().contains("1 bytes follow"));
    }

    #[test]
    fn reports_errors() {
        for (json, why) in [
            ("", "EOF"),
            ("{}", "missing field `inputs`"),
            (r#"{"inputs":[{"name":"x","shape":[1],"data":[1]}]}"#, "missing field `datatype`"),
            (r#"{"inputs":[{"name":"x","shape":3,"datatype":"INT8","data":[1]}]}"#, "a list of sizes"),
            (r#"{"inputs":[{"name":"x","shape":[-1],"datatype":"INT8","data":[1]}]}"#, "-1"),
            (r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[300]}]}"#, "300 is not a int8"),
            (r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP16","data":[1]}]}"#, "FP16 is not sent as JSON"),
            (r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP7","data":[1]}]}"#, "not a datatype"),
            (r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8"}]}"#, "neither `data`"),
            (r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]}"#, "true or false"),
            (
                r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","parameters":{"shared_memory_region":"r"}}]}"#,
                "shared memory is not supported",
            ),
            (r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[NaN]}]}"#, "\"NaN\" is not a int8"),
            (r#"{"id":NaN,"inputs":[]}"#, "expected value"),
            (&format!(r#"{{"id":"{}","inputs":[]}}"#, "7".repeat(4097)), "at most 4096 bytes"),
        ] {
            let error = request(json, b"").unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn bounds_parameters_of_a_request() {
        let request = |of_each: usize| {
            let names = (0..of_each).map(|name| (name.to_string(), Json::Null));
            let parameters = Json::Object(names.collect());
            let json = serde_json::json!({
                "parameters": parameters,
                "inputs": [{ "name": "x", "datatype": "INT8", "shape": [1], "data": [1], "parameters": parameters }],
                "outputs": [{ "name": "y", "parameters": parameters }],
            });
            request(&json.to_string(), b"").map(|request| request.parameters.len())
        };
        assert_eq!(request(MAX_PARTS / 3), Ok(MAX_PARTS / 3));
        assert!(request(MAX_PARTS / 3 + 1).unwrap_err().contains("at most 4096 parameters"));
    }

    #[test]
    fn counts_strings_of_inputs() {
        let of = |datatype: &str, data: &str| {
            let json = format!(r#"{{"name":"x","datatype":"{datatype}","shape":[2],"data":{data}}}"#);
            serde_json::from_str::<JsonInput>(&json).unwrap().strings()
        };
        assert_eq!((of("BYTES", r#"["a","b"]"#), of("INT8", "[1,2]")), (2, 0));
    }

    #[test]
    fn reads_literals_as_floats() {
        for (data, has_literals) in [("[NaN,-Infinity]", true), (r#"["NaN","-Infinity"]"#, false)] {
            let json = format!(
                r#"{{"parameters":{{"timeout":7}},"inputs":[{{"name":"x","datatype":"FP32","shape":[2],"data":{data}}}]}}"#
            );
            let framing = Framing::Json { json: Bytes::from(json), binary: Bytes::new() };
            let (request, found) = read(framing, &[], &budget()).unwrap();
            assert_eq!(found, has_literals);
            let Data::Elements(tensor) = &request.inputs[0].data else { unreachable!() };
            let [nan, infinite] = tensor.as_slice::<f32>().unwrap() else { unreachable!() };
            assert!(nan.is_nan() && *infinite == f32::NEG_INFINITY);
        }
    }

    #[test]
    fn reserves_memory_for_quoted_literals() {
        let request = |data: &str, left: usize| {
            let data = format!("1,{}{data}", " ".repeat(4 << 10));
            let json = format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[2],"data":[{data}]}}]}}"#);
            let framing = Framing::Json { json: Bytes::from(json), binary: Bytes::new() };
            let settings = Settings { body_memory: 64 << 10, ..Settings::default() };
            let request_budget = BodyBudget::requests(&settings, &Metrics::new());
            let _held = request_budget.for_request().reserve((64 << 10) - left).unwrap();
            read(framing, &[], &request_budget.for_request()).map(drop)
        };
        assert!(request("2", 4 << 10).is_ok());
        assert!(matches!(request("NaN", 4 << 10), Err(ServeError::Overload(Rejection::Memory))));
        assert!(request("NaN", 8 << 10).is_ok());
        let wrong = request("2,", 4 << 10).unwrap_err();
        assert!(wrong.is_invalid(), "a comma too many needs no room: {wrong}");
    }

    #[test]
    fn finds_the_widest_datatype() {
        for (datatype, size) in
            [("BOOL", 1), ("INT8", 1), ("UINT16", 2), ("FP32", 4), ("INT64", 8), ("FP64", 8), ("FP\\u00364", 8)]
        {
            let json = |other: &str| format!(r#"{{"inputs":[{{"datatype":"{other}"}},{{"datatype":"{datatype}"}}]}}"#);
            assert_eq!(widest(json("BOOL").as_bytes()), size, "{datatype}");
            assert_eq!(widest(json("UINT64").as_bytes()), 8);
        }
        assert_eq!(widest(b"\xff"), 8);
    }

    #[test]
    fn infers_the_shape_of_raw_bodies() {
        let input = |element, shape: &[i64]| {
            [TensorMetadata { name: "x".to_owned(), element, shape: shape.to_vec(), optional: false }]
        };
        let shape = |inputs: &[TensorMetadata], bytes: &'static [u8]| {
            raw(Bytes::from_static(bytes), inputs)
                .map(|request| request.inputs[0].shape.clone())
                .map_err(|error| error.to_string())
        };
        assert_eq!(shape(&input(ElementType::Float32, &[-1, 2]), &[0; 24]), Ok(vec![3, 2]));
        assert_eq!(shape(&input(ElementType::String, &[1]), b"hello"), Ok(vec![1]));
        assert!(shape(&input(ElementType::Float32, &[-1, -1]), &[0; 24]).unwrap_err().contains("2 open"));
        assert!(shape(&[], b"").unwrap_err().contains("one input"));
    }

    proptest! {
        #[test]
        fn never_panics_on_any_text(text in "[\\[\\]{}\",:0-9a-zA-Z -]{0,80}", binary in prop::collection::vec(any::<u8>(), 0..9)) {
            let framing = Framing::Json { json: Bytes::from(text), binary: binary.into() };
            let _ = read(framing, &[], &budget());
        }
    }
}
