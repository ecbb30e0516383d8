//! Tensors in gRPC messages: typed contents, or raw bytes.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value as Json;

use crate::ServeError;
use crate::protocol::oip::datatype;
use crate::protocol::oip::grpc::proto::infer_parameter::ParameterChoice;
use crate::protocol::oip::grpc::proto::model_infer_request::InferInputTensor;
use crate::protocol::oip::grpc::proto::model_infer_response::InferOutputTensor;
use crate::protocol::oip::grpc::proto::{InferParameter, InferTensorContents};
use crate::protocol::oip::infer::SelectedOutput;
use crate::protocol::oip::parameters;
use crate::protocol::oip::parameters::Parameters;
use crate::protocol::oip::tensors::{Data, InputTensor, OutputTensor};
use gpux_core::encoded_size;
use gpux_core::{ElementType, Tensor, TensorData, TensorElement};

/// The parameters of a message, converted to JSON as in REST.
pub(super) fn parameters(given: impl IntoIterator<Item = (String, InferParameter)>) -> Parameters {
    let json = |parameter: InferParameter| match parameter.parameter_choice {
        Some(ParameterChoice::BoolParam(value)) => Json::from(value),
        Some(ParameterChoice::Int64Param(value)) => Json::from(value),
        Some(ParameterChoice::StringParam(value)) => Json::from(value),
        Some(ParameterChoice::DoubleParam(value)) => Json::from(value),
        Some(ParameterChoice::Uint64Param(value)) => Json::from(value),
        None => Json::Null,
    };
    given.into_iter().map(|(name, parameter)| (name, json(parameter))).collect()
}

/// Texts as the parameters of a message.
pub(super) fn text_parameters<'a>(
    given: impl Iterator<Item = (&'static str, &'a str)>,
) -> HashMap<String, InferParameter> {
    let parameter = |(name, text): (&str, &str)| {
        let value = ParameterChoice::StringParam(text.to_owned());
        (name.to_owned(), InferParameter { parameter_choice: Some(value) })
    };
    given.map(parameter).collect()
}

/// The inputs of a message; `raw` holds the bytes of each input, or is empty.
pub(super) fn inputs(given: Vec<InferInputTensor>, raw: Vec<Bytes>) -> Result<Vec<InputTensor>, ServeError> {
    if !raw.is_empty() && raw.len() != given.len() {
        let message = format!("there are {} inputs, but raw contents of {}", given.len(), raw.len());
        return Err(ServeError::invalid(message));
    }
    let mut raw = raw.into_iter();
    given.into_iter().map(|given| input(given, raw.next())).collect()
}

fn input(given: InferInputTensor, raw: Option<Bytes>) -> Result<InputTensor, ServeError> {
    let InferInputTensor { name, datatype, shape, parameters: given, contents } = given;
    let wrong = |message: String| ServeError::invalid(format!("input `{name}`: {message}"));
    parameters::reject_shared_memory(&parameters(given), &name)?;
    let element = datatype::parse(&datatype).map_err(wrong)?;
    let size = |size: &i64| usize::try_from(*size).map_err(|_| wrong(format!("its shape has the size {size}")));
    let sizes = shape.iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let data = match (raw, contents) {
        (Some(raw), None) => Data::Raw(raw),
        (Some(raw), Some(contents)) if length(&contents) == 0 => Data::Raw(raw),
        (Some(_), Some(_)) => return Err(wrong("there are both contents and raw contents".to_owned())),
        (None, contents) => typed(element, contents.unwrap_or_default()).map_err(wrong)?,
    };
    Ok(InputTensor { name, element, shape: sizes, data })
}

/// The number of elements of any type.
fn length(contents: &InferTensorContents) -> usize {
    contents.bool_contents.len()
        + contents.int_contents.len()
        + contents.int64_contents.len()
        + contents.uint_contents.len()
        + contents.uint64_contents.len()
        + contents.fp32_contents.len()
        + contents.fp64_contents.len()
        + contents.bytes_contents.len()
}

/// The elements of a datatype, from the field of that type.
fn typed(element: ElementType, contents: InferTensorContents) -> Result<Data, String> {
    let all = length(&contents);
    let (data, found) = match element {
        ElementType::Bool => whole(contents.bool_contents),
        ElementType::Int8 => narrow::<_, i8>(contents.int_contents),
        ElementType::Int16 => narrow::<_, i16>(contents.int_contents),
        ElementType::Int32 => whole(contents.int_contents),
        ElementType::Int64 => whole(contents.int64_contents),
        ElementType::Uint8 => narrow::<_, u8>(contents.uint_contents),
        ElementType::Uint16 => narrow::<_, u16>(contents.uint_contents),
        ElementType::Uint32 => whole(contents.uint_contents),
        ElementType::Uint64 => whole(contents.uint64_contents),
        ElementType::Float32 => whole(contents.fp32_contents),
        ElementType::Float64 => whole(contents.fp64_contents),
        ElementType::String => {
            let count = contents.bytes_contents.len();
            Ok((Data::Items(contents.bytes_contents), count))
        }
        ElementType::Float16 | ElementType::Bfloat16 => {
            return Err(format!("{} is sent in raw_input_contents only", datatype::name(element)));
        }
    }?;
    if found < all {
        return Err(format!("its contents are not those of {}", datatype::name(element)));
    }
    Ok(data)
}

type Found = Result<(Data, usize), String>;

fn whole<T: TensorElement>(items: Vec<T>) -> Found {
    let count = items.len();
    let tensor = Tensor::new([count], items).map_err(|error| error.to_string())?;
    Ok((Data::Elements(tensor), count))
}

/// Elements that the message holds in a wider type.
fn narrow<W: Copy + ToString, T: TensorElement + TryFrom<W>>(items: Vec<W>) -> Found {
    let one = |item: W| T::try_from(item).map_err(|_| format!("{} is not a {}", item.to_string(), T::TYPE));
    whole(items.into_iter().map(one).collect::<Result<Vec<_>, _>>()?)
}

/// Upper bound of the bytes that an output takes while it is encoded: its value, the contents of the message, the
/// message, and its compressed form.
pub(super) fn size(output: &SelectedOutput, raw: bool) -> usize {
    let value = &output.tensor.value;
    let written = match value.as_tensor() {
        // Narrow integers take four bytes in contents, and at most ten in a message.
        Some(tensor) if !raw && tensor.element() != ElementType::String => 10 * tensor.len(),
        _ => encoded_size::raw(value),
    };
    encoded_size::memory(value) + 3 * written
}

/// The outputs as messages, with their raw bytes if `raw`. If typed contents cannot hold one of the types, all outputs
/// are raw: a message has either form.
pub(super) fn outputs(
    given: Vec<SelectedOutput>,
    raw: bool,
) -> Result<(Vec<InferOutputTensor>, Vec<Bytes>), ServeError> {
    let raw = raw || given.iter().any(|output| !datatype::is_written_out(output.tensor.element()));
    let mut outputs = Vec::with_capacity(given.len());
    let mut raws = Vec::new();
    for SelectedOutput { tensor, .. } in given {
        if raw {
            let mut bytes = Vec::new();
            tensor.write_raw(&mut bytes).map_err(ServeError::invalid)?;
            raws.push(bytes.into());
        }
        outputs.push(InferOutputTensor {
            datatype: datatype::name(tensor.element()).to_owned(),
            shape: tensor.shape().iter().map(|size| *size as i64).collect(),
            parameters: HashMap::default(),
            contents: (!raw).then(|| contents(&tensor)),
            name: tensor.name,
        });
    }
    Ok((outputs, raws))
}

fn contents(output: &OutputTensor) -> InferTensorContents {
    fn wider<T: Copy + Into<W>, W>(data: &[T]) -> Vec<W> {
        data.iter().map(|item| (*item).into()).collect()
    }
    let mut contents = InferTensorContents::default();
    match output.value.as_tensor().map(Tensor::data) {
        Some(TensorData::Bool(data)) => contents.bool_contents = data.to_vec(),
        Some(TensorData::Int8(data)) => contents.int_contents = wider(data),
        Some(TensorData::Int16(data)) => contents.int_contents = wider(data),
        Some(TensorData::Int32(data)) => contents.int_contents = data.to_vec(),
        Some(TensorData::Int64(data)) => contents.int64_contents = data.to_vec(),
        Some(TensorData::Uint8(data)) => contents.uint_contents = wider(data),
        Some(TensorData::Uint16(data)) => contents.uint_contents = wider(data),
        Some(TensorData::Uint32(data)) => contents.uint_contents = data.to_vec(),
        Some(TensorData::Uint64(data)) => contents.uint64_contents = data.to_vec(),
        Some(TensorData::Float32(data)) => contents.fp32_contents = data.to_vec(),
        Some(TensorData::Float64(data)) => contents.fp64_contents = data.to_vec(),
        // These types are always raw.
        Some(TensorData::Float16(_) | TensorData::Bfloat16(_)) => {}
        Some(TensorData::String(_)) | None => contents.bytes_contents = output.items(),
    }
    contents
}
