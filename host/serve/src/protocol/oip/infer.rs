//! Inference for REST and gRPC.

use super::classification;
use super::metadata;
use super::parameters;
use super::parameters::Parameters;
use super::tensors::{InputTensor, OutputTensor};
use crate::{Execution, ServeError};
use gpux_core::{
    ElementType, MAX_STRINGS, Outputs, PlanOutput, PlanSignature, Request, ValidationError, Value, element_count,
};

/// A parsed request.
#[derive(Debug)]
pub(super) struct InferRequest {
    /// the client's id, returned with the result
    pub(super) id: String,
    pub(super) parameters: Parameters,
    pub(super) inputs: Vec<InputTensor>,
    /// the outputs to return; all if empty
    pub(super) outputs: Vec<RequestedOutput>,
}

/// An output that a client requests.
#[derive(Debug, Default)]
pub(super) struct RequestedOutput {
    pub(super) name: String,
    /// whether it is returned raw; `None`: as the request says
    pub(super) binary: Option<bool>,
    /// the number of best classes to return instead of the numbers
    pub(super) classification: Option<usize>,
}

impl RequestedOutput {
    pub(super) fn new(name: String, parameters: &Parameters) -> Result<Self, ServeError> {
        parameters::reject_shared_memory(parameters, &name)?;
        let classification = parameters::count(parameters, "classification")?.filter(|count| *count > 0);
        let binary = parameters::flag(parameters, "binary_data")?;
        Ok(Self { name, binary, classification: classification.map(|count| count as usize) })
    }
}

/// An output with its requested form.
#[derive(Debug)]
pub(super) struct SelectedOutput {
    pub(super) tensor: OutputTensor,
    pub(super) binary: Option<bool>,
}

/// The values of outputs.
pub(super) fn given_values(outputs: &[SelectedOutput]) -> impl Iterator<Item = &Value> {
    outputs.iter().map(|output| &output.tensor.value)
}

/// The parameters of a response with vectors: in which space they lie, and what computed them. Classes lie in none.
pub(super) fn space_parameters<'a>(
    execution: &'a Execution,
    asked: &[RequestedOutput],
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let has_vectors = asked.iter().all(|asked| asked.classification.is_none());
    has_vectors.then(|| metadata::space_parameters(execution.loaded())).into_iter().flatten()
}

/// The pipeline's inputs. Fails if it does not have the requested outputs.
pub(super) fn pipeline_request(
    execution: &Execution,
    inputs: Vec<InputTensor>,
    outputs: &[RequestedOutput],
) -> Result<Request, ServeError> {
    let signature = execution.loaded().signature();
    for asked in outputs {
        let output = output(signature, &asked.name)?;
        if asked.classification.is_some() {
            classification::check_output(output)?;
        }
    }
    Ok(values(signature, inputs)?)
}

fn output<'a>(signature: &'a PlanSignature, name: &str) -> Result<&'a PlanOutput, ServeError> {
    signature.outputs().iter().find(|output| output.name == name).ok_or_else(|| {
        let known: Vec<_> = signature.outputs().iter().map(|output| format!("`{}`", output.name)).collect();
        ServeError::invalid(format!("there is no output `{name}`, but {}", known.join(", ")))
    })
}

fn values(signature: &PlanSignature, inputs: Vec<InputTensor>) -> Result<Request, ValidationError> {
    let mut strings = 0_usize;
    let value = |input: InputTensor| {
        if input.element == ElementType::String {
            strings = strings.saturating_add(element_count(&input.shape).unwrap_or(usize::MAX));
        }
        if strings > MAX_STRINGS {
            return Err(ValidationError::request(format!("a request has at most {MAX_STRINGS} strings")));
        }
        let port = signature.port(&input.name).ok_or_else(|| {
            ValidationError::input(
                &input.name,
                format_args!("the pipeline has none; it takes {}", signature.describe_inputs()),
            )
        })?;
        let name = input.name.clone();
        let value = input.into_value(&port.kind).map_err(|fault| ValidationError::input(&name, fault))?;
        Ok((name, value))
    };
    inputs.into_iter().map(value).collect()
}

/// The outputs in the requested order.
pub(super) fn select_outputs(
    execution: &Execution,
    mut given: Outputs,
    asked: Vec<RequestedOutput>,
) -> Result<Vec<SelectedOutput>, ServeError> {
    if asked.is_empty() {
        let output = |(name, value)| SelectedOutput { tensor: OutputTensor { name, value }, binary: None };
        return Ok(given.into_iter().map(output).collect());
    }
    let mut outputs = Vec::with_capacity(asked.len());
    for asked in asked {
        // An optional output may be missing; an output that is requested twice is returned once.
        let Some(index) = given.iter().position(|(name, _)| *name == asked.name) else { continue };
        let (name, value) = given.swap_remove(index);
        let value = match asked.classification {
            Some(count) => {
                let loaded = execution.loaded();
                classification::top_classes(loaded.info(), output(loaded.signature(), &name)?, &value, count)?
            }
            None => value,
        };
        outputs.push(SelectedOutput { tensor: OutputTensor { name, value }, binary: asked.binary });
    }
    Ok(outputs)
}
