//! Values of every other kind than plain tensors, to and from ONNX Runtime: sequences, maps,
//! optionals, and tensors of elements that take less than a byte or are floats of eight bits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use ort::environment::Environment;
use ort::session::{Session as Native, SessionInputValue, SessionInputs, SessionOutputs};
use ort::value::{
    DynMapValueType, DynTensorValueType, DynValue, DynValueTypeMarker, IntoTensorElementType, Map,
    PrimitiveTensorElementType, Sequence, Tensor as NativeTensor,
};

use super::values;
use crate::graph::{NarrowType, OnnxType, cast_model, data_type, empty_sequence_model, expand_optional_outputs};
use crate::model_file::ModelFile;
use crate::value::OnnxValue;
use gpux_core::{ElementType, Tensor, TensorData, TensorElement};

/// Converts inputs and outputs of a model that has other values than plain tensors.
pub(super) struct NonTensorValues {
    inputs: Vec<OnnxType>,
    /// each output's name, type and place among those of the session
    outputs: Vec<(String, OnnxType, OutputLocation)>,
    /// casts from and to the pipeline's element type: `ort` does not pass such elements
    casts: BTreeMap<NarrowType, (Native, Native)>,
    /// sequences of no tensors, which ONNX Runtime makes only within a model
    empty: BTreeMap<ElementType, Native>,
}

/// Where an output is found among those of the session.
#[derive(Clone, Copy)]
enum OutputLocation {
    Value(usize),
    /// an optional: its value, and whether there is one
    Optional {
        value: usize,
        has: usize,
    },
}

/// The model as the session must load it: its optional outputs told apart, since ONNX Runtime's
/// value without a value cannot be looked at. `None` where the file itself will do.
pub(super) fn rewritten_model(file: &ModelFile) -> Result<Option<Vec<u8>>, String> {
    let optional = file.info().outputs.iter().find(|output| matches!(output.value, Some(OnnxType::Optional(_))));
    let Some(optional) = optional else { return Ok(None) };
    let refused = |why| format!("its output `{}` is {}, which is not read {why}", optional.name, optional.kind);
    let bytes = file.contents()?.ok_or_else(|| refused("from a large model, or one with weights in other files"))?;
    expand_optional_outputs(&bytes).map(Some).ok_or_else(|| refused("here"))
}

impl NonTensorValues {
    /// `None` where every input and output is a plain tensor.
    pub(super) fn new(environment: &Environment, file: &ModelFile) -> Result<Option<Self>, String> {
        let info = file.info();
        let inputs: Vec<_> = info.inputs.iter().filter_map(|input| input.value.clone()).collect();
        let outputs: Vec<_> =
            info.outputs.iter().filter_map(|output| Some((output.name.clone(), output.value.clone()?))).collect();
        let mut types = inputs.iter().chain(outputs.iter().map(|(_, kind)| kind));
        if inputs.len() < info.inputs.len() || outputs.len() < info.outputs.len() {
            return Err("a part of it is of a type that gpux does not carry".to_owned());
        }
        if types.all(|kind| kind.plain().is_some()) {
            return Ok(None);
        }
        let unreadable = outputs.iter().find(|(_, kind)| has_map_of_strings(kind));
        if let Some((name, kind)) = unreadable {
            return Err(format!("its output `{name}` is {kind}, whose strings cannot be read"));
        }
        let (mut casts, mut empty) = (BTreeMap::new(), BTreeMap::new());
        for kind in inputs.iter().chain(outputs.iter().map(|(_, kind)| kind)) {
            if let OnnxType::Tensor { narrow: Some(narrow), .. } = kind {
                let wide = data_type(narrow.carried_as());
                let cast = |from, to| {
                    session(environment, &cast_model(from, to, *narrow))
                        .map_err(|error| format!("it has no cast for {narrow}: {error}"))
                };
                casts.insert(*narrow, (cast(wide, narrow.data_type())?, cast(narrow.data_type(), wide)?));
            }
        }
        for element in inputs.iter().filter_map(sequence_of) {
            empty.insert(element, session(environment, &empty_sequence_model(data_type(element)))?);
        }
        Ok(Some(Self { inputs, outputs: locate_outputs(outputs), casts, empty }))
    }

    /// The names of the session's outputs, in its order.
    pub(super) fn native_outputs(&self) -> Vec<Cow<'_, str>> {
        let at = |(_, _, given): &(_, _, OutputLocation)| match *given {
            OutputLocation::Value(index) | OutputLocation::Optional { value: index, .. } => index,
        };
        let mut outputs: Vec<_> = self.outputs.iter().collect();
        outputs.sort_by_key(|output| at(output));
        let mut names = Vec::new();
        for (name, _, given) in outputs {
            match given {
                OutputLocation::Value(_) => names.push(Cow::Borrowed(name.as_str())),
                OutputLocation::Optional { .. } => {
                    names.extend([format!("{name}:value").into(), format!("{name}:has").into()]);
                }
            }
        }
        names
    }

    /// The inputs as ONNX Runtime takes them; optionals without a value are left out.
    pub(super) fn inputs<'v>(
        &mut self,
        inputs: &[(usize, &'v OnnxValue)],
    ) -> Result<Vec<(usize, SessionInputValue<'v>)>, String> {
        let given = inputs.iter().filter(|(_, value)| !matches!(value, OnnxValue::None));
        let types = std::mem::take(&mut self.inputs);
        let made = given.map(|(index, value)| Ok((*index, self.input(value, &types[*index])?))).collect();
        self.inputs = types;
        made
    }

    fn input<'v>(&mut self, value: &'v OnnxValue, kind: &OnnxType) -> Result<SessionInputValue<'v>, String> {
        match (value, kind) {
            (value, OnnxType::Optional(inner)) => self.input(value, inner),
            (OnnxValue::Tensor(tensor), OnnxType::Tensor { narrow: None, .. }) => values::view(tensor).map_err(text),
            (OnnxValue::Tensor(tensor), OnnxType::Tensor { narrow: Some(narrow), .. }) => {
                check_range(tensor, *narrow)?;
                let (to, _) = self.casts.get_mut(narrow).ok_or("there is no cast for it")?;
                run_helper(to, Some(values::view(tensor).map_err(text)?)).map(SessionInputValue::from)
            }
            (OnnxValue::Map { keys, values }, OnnxType::Map { .. }) => map(keys, values).map(SessionInputValue::from),
            (OnnxValue::Sequence(items), OnnxType::Sequence(_)) if items.is_empty() => {
                let empty = sequence_of(kind).and_then(|element| self.empty.get_mut(&element));
                let empty = empty.ok_or("ONNX Runtime makes no empty sequence of maps")?;
                run_helper(empty, None).map(SessionInputValue::from)
            }
            (OnnxValue::Sequence(items), OnnxType::Sequence(_)) => sequence(items).map(SessionInputValue::from),
            (_, kind) => Err(format!("the value is no {kind}")),
        }
    }

    /// Copies of the session's outputs, in the model's order.
    pub(super) fn outputs(&mut self, outputs: &SessionOutputs<'_>) -> Result<Vec<OnnxValue>, String> {
        let declared = std::mem::take(&mut self.outputs);
        let read = |(name, kind, given): &(String, OnnxType, OutputLocation)| match *given {
            OutputLocation::Value(index) => self.output(name, &outputs[index], kind),
            OutputLocation::Optional { value, has } => {
                let has = values::copy(name, &outputs[has])?;
                if has.as_slice::<bool>() == Some(&[true]) {
                    self.output(name, &outputs[value], kind)
                } else {
                    Ok(OnnxValue::None)
                }
            }
        };
        let read = declared.iter().map(read).collect();
        self.outputs = declared;
        read
    }

    fn output(&mut self, name: &str, value: &DynValue, kind: &OnnxType) -> Result<OnnxValue, String> {
        let fault = |error: ort::Error| format!("output `{name}` cannot be read: {}", error.message());
        match kind {
            OnnxType::Optional(inner) => self.output(name, value, inner),
            OnnxType::Tensor { narrow: None, .. } => values::copy(name, value).map(OnnxValue::Tensor),
            OnnxType::Tensor { narrow: Some(narrow), .. } => {
                let (_, from) = self.casts.get_mut(narrow).ok_or("there is no cast for it")?;
                let wide = run_helper(from, Some(SessionInputValue::from(value)))?;
                values::copy(name, &wide).map(OnnxValue::Tensor)
            }
            OnnxType::Sequence(inner) => {
                let items = value.try_extract_sequence::<DynValueTypeMarker>().map_err(fault)?;
                items
                    .iter()
                    .map(|item| self.output(name, item, inner))
                    .collect::<Result<_, _>>()
                    .map(OnnxValue::Sequence)
            }
            OnnxType::Map { key, value: element } => entries(value, *key, *element).map_err(fault)?,
        }
    }
}

/// Locates each output: optional ones are two, after all others.
fn locate_outputs(outputs: Vec<(String, OnnxType)>) -> Vec<(String, OnnxType, OutputLocation)> {
    let optional = |kind: &OnnxType| matches!(kind, OnnxType::Optional(_));
    let mut plain = 0..;
    let mut optional_index = outputs.iter().filter(|(_, kind)| !optional(kind)).count();
    let mut place = |kind: &OnnxType| {
        if optional(kind) {
            optional_index += 2;
            OutputLocation::Optional { value: optional_index - 2, has: optional_index - 1 }
        } else {
            OutputLocation::Value(plain.next().unwrap_or(0))
        }
    };
    outputs
        .into_iter()
        .map(|(name, kind)| {
            let given = place(&kind);
            (name, kind, given)
        })
        .collect()
}

fn has_map_of_strings(kind: &OnnxType) -> bool {
    match kind {
        OnnxType::Map { value, .. } => *value == ElementType::String,
        OnnxType::Sequence(inner) | OnnxType::Optional(inner) => has_map_of_strings(inner),
        OnnxType::Tensor { .. } => false,
    }
}

/// The elements of the tensors of a sequence.
fn sequence_of(kind: &OnnxType) -> Option<ElementType> {
    match kind {
        OnnxType::Sequence(inner) => inner.plain()?.element(),
        OnnxType::Optional(inner) => sequence_of(inner),
        OnnxType::Tensor { .. } | OnnxType::Map { .. } => None,
    }
}

fn session(environment: &Environment, model: &[u8]) -> Result<Native, String> {
    let builder = Native::builder(environment).map_err(|error| error.to_string())?;
    let mut builder = super::own_threads(builder, 1)?;
    builder.commit_from_memory(model).map_err(|error| error.to_string())
}

/// The only output of a small model.
fn run_helper(session: &mut Native, input: Option<SessionInputValue<'_>>) -> Result<DynValue, String> {
    let input: smallvec::SmallVec<[_; 1]> = input.into_iter().collect();
    let mut outputs = session.run(SessionInputs::<0>::ValueSlice(&input)).map_err(text)?;
    let name = outputs.keys().next().map(str::to_owned).unwrap_or_default();
    outputs.remove(name).ok_or_else(|| "a small model gave nothing".to_owned())
}

fn text(error: ort::Error) -> String {
    error.message().to_owned()
}

/// A cast wraps numbers around that the narrow type has not, or makes them infinite.
fn check_range(tensor: &Tensor, narrow: NarrowType) -> Result<(), String> {
    let outside = match tensor.data() {
        TensorData::Int8(data) => data.iter().map(|item| f32::from(*item)).find(|item| !narrow.contains(*item)),
        TensorData::Uint8(data) => data.iter().map(|item| f32::from(*item)).find(|item| !narrow.contains(*item)),
        TensorData::Float32(data) => data.iter().copied().find(|item| !narrow.contains(*item)),
        _ => None,
    };
    let (least, most) = narrow.range();
    outside.map_or(Ok(()), |outside| Err(format!("{outside} is no {narrow}: those are {least} to {most}")))
}

fn sequence(items: &[OnnxValue]) -> Result<DynValue, String> {
    if matches!(items.first(), Some(OnnxValue::Map { .. })) {
        let item = |item: &OnnxValue| match item {
            OnnxValue::Map { keys, values } => map(keys, values)?.downcast::<DynMapValueType>().map_err(text),
            _ => Err("a sequence holds values of one type".to_owned()),
        };
        let items = items.iter().map(item).collect::<Result<Vec<_>, _>>()?;
        return Sequence::<DynMapValueType>::new(items).map(Sequence::into_dyn).map_err(text);
    }
    let item = |item: &OnnxValue| match item {
        OnnxValue::Tensor(tensor) => values::owned(tensor).map_err(text),
        _ => Err("a sequence holds values of one type".to_owned()),
    };
    let items = items.iter().map(item).collect::<Result<Vec<_>, _>>()?;
    Sequence::<DynTensorValueType>::new(items).map(Sequence::into_dyn).map_err(text)
}

fn map(keys: &Tensor, values: &Tensor) -> Result<DynValue, String> {
    fn with_keys<K>(keys: NativeTensor<K>, values: &Tensor) -> ort::Result<DynValue>
    where
        K: IntoTensorElementType + Debug + Clone + std::hash::Hash + Eq + 'static,
    {
        let shape = [values.len()];
        macro_rules! of {
            ($data:expr) => {
                Map::new_kv(keys, NativeTensor::from_array((shape, $data.to_vec()))?).map(Map::into_dyn)
            };
        }
        match values.data() {
            TensorData::Float32(data) => of!(data),
            TensorData::Float64(data) => of!(data),
            TensorData::Int64(data) => of!(data),
            TensorData::String(data) => {
                Map::new_kv(keys, NativeTensor::from_string_array((shape, data.as_slice()))?).map(Map::into_dyn)
            }
            other => Err(ort::Error::new(format!("ONNX Runtime has no maps to {}", other.element()))),
        }
    }
    let shape = [keys.len()];
    let made = match keys.data() {
        TensorData::Int64(keys) => {
            NativeTensor::from_array((shape, keys.to_vec())).and_then(|keys| with_keys(keys, values))
        }
        TensorData::String(keys) => {
            NativeTensor::from_string_array((shape, keys.as_slice())).and_then(|keys| with_keys(keys, values))
        }
        other => return Err(format!("ONNX Runtime has no maps from {}", other.element())),
    };
    made.map_err(text)
}

/// The entries of a map, in the order of their keys.
fn entries(map: &DynValue, key: ElementType, value: ElementType) -> ort::Result<Result<OnnxValue, String>> {
    fn split<K, V>(map: &DynValue) -> ort::Result<Result<OnnxValue, String>>
    where
        K: TensorElement + IntoTensorElementType + std::hash::Hash + Eq,
        V: TensorElement + PrimitiveTensorElementType,
    {
        let (keys, values): (Vec<K>, Vec<V>) = map.try_extract_key_values::<K, V>()?.into_iter().unzip();
        let fault = |error: gpux_core::TensorError| error.to_string();
        let tensors = Tensor::new([keys.len()], keys).and_then(|keys| Ok((keys, Tensor::new([values.len()], values)?)));
        Ok(tensors.map(|(keys, values)| OnnxValue::Map { keys, values }).map_err(fault))
    }
    match (key, value) {
        (ElementType::String, ElementType::Float32) => split::<String, f32>(map),
        (ElementType::String, ElementType::Float64) => split::<String, f64>(map),
        (ElementType::String, ElementType::Int64) => split::<String, i64>(map),
        (ElementType::Int64, ElementType::Float32) => split::<i64, f32>(map),
        (ElementType::Int64, ElementType::Float64) => split::<i64, f64>(map),
        (ElementType::Int64, ElementType::Int64) => split::<i64, i64>(map),
        (key, value) => Err(ort::Error::new(format!("ONNX Runtime has no map({key}, {value})"))),
    }
}
