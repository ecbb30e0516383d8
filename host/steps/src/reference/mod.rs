//! Shared by the groups' tests against their reference libraries. The numbers of those libraries lie in
//! `tests/reference/builtin/`, whose `make.py` wrote them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

pub(crate) mod boxes;
mod random;
mod readers;

use serde_json::Value as Json;

use gpux_core::{BuildError, Builtin, Context, ElementType, OptionOrigin, ProjectFiles, Step, Tensor, Value};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/builtin/");

pub(crate) fn read(path: &str) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Numbers below a bound, the same in every run.
pub(crate) fn random() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

pub(crate) fn read_json(path: &str) -> Json {
    serde_json::from_slice(&read(path)).unwrap()
}

/// Bytes that were packed as the pixels of a gray PNG.
pub(crate) fn unpack(path: &str) -> Vec<u8> {
    image::load_from_memory(&read(path)).unwrap().into_luma8().into_raw()
}

pub(crate) fn step(name: &str, options: Json) -> Box<dyn Step> {
    try_step(name, options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Builds a step of a pipeline in the folder of the reference's files.
pub(crate) fn try_step(name: &str, options: Json) -> Result<Box<dyn Step>, BuildError> {
    let files = ProjectFiles::new(FOLDER, false);
    let builtin = crate::all().into_iter().find(|builtin| builtin.name == name).unwrap();
    build_at(builtin, options, &OptionOrigin::folder(&files))
}

/// Builds a step as a component does.
pub(crate) fn build(builtin: Builtin, options: Json) -> Result<Box<dyn Step>, BuildError> {
    build_at(builtin, options, &OptionOrigin::Component)
}

/// Builds a step from options that fit its schema, as its callers do.
pub(crate) fn build_at(
    builtin: Builtin,
    options: Json,
    origin: &OptionOrigin<'_>,
) -> Result<Box<dyn Step>, BuildError> {
    check_options(builtin, &options)?;
    (builtin.build)(options, origin)
}

pub(crate) fn check_options(builtin: Builtin, options: &Json) -> Result<(), BuildError> {
    jsonschema::validate((builtin.schema)().as_value(), options).map_err(|error| BuildError {
        option: error.instance_path().as_str().split('/').skip(1).map(str::to_owned).collect(),
        message: error.to_string(),
        hint: None,
    })
}

/// Runs a step and checks its outputs against its inferred kinds.
pub(crate) fn run(step: &dyn Step, inputs: Vec<Value>) -> Vec<Value> {
    run_inputs(step, inputs.into_iter().map(Some).collect()).unwrap()
}

/// The same, where optional inputs may be missing and the step may fail.
pub(crate) fn run_inputs(step: &dyn Step, inputs: Vec<Option<Value>>) -> Result<Vec<Value>, String> {
    let kinds: Vec<_> = inputs.iter().map(|value| value.as_ref().map(Value::kind)).collect();
    let promised = step.infer(&kinds).map_err(|error| format!("{error:?}"))?;
    let given = step.run(inputs, &mut Context::default()).map_err(|error| format!("{error:?}"))?;
    assert_eq!(promised.len(), given.len());
    for (promised, given) in promised.iter().zip(&given) {
        promised.accepts(&given.kind()).unwrap();
    }
    Ok(given)
}

pub(crate) fn run_tensor(step: &dyn Step, input: impl Into<Value>) -> Tensor {
    run(step, vec![input.into()]).remove(0).as_tensor().unwrap().clone()
}

pub(crate) fn numbers(value: &Json) -> (Vec<usize>, Vec<f64>) {
    let shape = value["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap() as usize).collect();
    // Infinities are text.
    let number = |number: &Json| number.as_f64().or_else(|| number.as_str()?.parse().ok()).unwrap_or(f64::NAN);
    (shape, value["data"].as_array().unwrap().iter().map(number).collect())
}

pub(crate) fn tensor(value: &Json, element: &Json) -> Tensor {
    let (shape, data) = numbers(value);
    Tensor::new(shape, data).unwrap().cast(element.as_str().unwrap().parse().unwrap()).unwrap()
}

/// A tensor of any type: `{"element", "shape", "data"}`, where the data are strings, or bytes in hexadecimal.
pub(crate) fn exact(value: &Json) -> Tensor {
    let shape: Vec<usize> = serde_json::from_value(value["shape"].clone()).unwrap();
    let element: ElementType = value["element"].as_str().unwrap().parse().unwrap();
    if element == ElementType::String {
        return Tensor::new(shape, serde_json::from_value::<Vec<String>>(value["data"].clone()).unwrap()).unwrap();
    }
    let digits = value["data"].as_str().unwrap().as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    Tensor::from_bytes(element, shape, &bytes).unwrap()
}

/// Cases that were packed with [`unpack`]'s counterpart.
pub(crate) fn packed(path: &str) -> Vec<Json> {
    let text = unpack(path);
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    serde_json::from_slice(&text[..end]).unwrap()
}

/// The largest difference, relative where numbers are larger than 1; anything but a float must be the same.
pub(crate) fn difference(ours: &Tensor, theirs: &Tensor) -> f64 {
    assert_eq!((ours.element(), ours.shape()), (theirs.element(), theirs.shape()));
    if !ours.element().is_float() {
        assert_eq!(ours.data(), theirs.data());
        return 0.0;
    }
    let floats = |tensor: &Tensor| tensor.cast(ElementType::Float64).unwrap().as_slice::<f64>().unwrap().to_vec();
    let one = |(ours, theirs): (f64, f64)| {
        let same = ours.is_nan() && theirs.is_nan() || ours.to_bits() == theirs.to_bits();
        if same { 0.0 } else { (ours - theirs).abs() / theirs.abs().max(1.0) }
    };
    floats(ours).into_iter().zip(floats(theirs)).map(one).fold(0.0, f64::max)
}

/// Checks that the tensor is the expected one, and tells the largest difference (in parts of numbers above 1).
pub(crate) fn assert_close(tensor: &Tensor, expected: &Json, tolerance: f64, what: &Json) -> f64 {
    let (shape, expected) = numbers(expected);
    assert_eq!(tensor.shape(), shape);
    // Numbers are written shortest, so they are read back in their own type.
    let exact = |tensor: &Tensor| tensor.cast(ElementType::Float64).unwrap().as_slice::<f64>().unwrap().to_vec();
    let expected = exact(&Tensor::new(shape, expected).unwrap().cast(tensor.element()).unwrap());
    let mut largest = 0_f64;
    for (ours, theirs) in exact(tensor).into_iter().zip(expected) {
        let is_equal = ours.to_bits() == theirs.to_bits();
        let difference = if is_equal { 0.0 } else { (ours - theirs).abs() / theirs.abs().max(1.0) };
        let same = ours.is_nan() && theirs.is_nan() || difference <= tolerance;
        assert!(same, "{ours} is not {theirs}: {what}");
        largest = largest.max(difference);
    }
    largest
}
