//! Declared inputs and outputs, converted to the plan's types.

use gpux_config::{Diagnostic, Dimension, InputSpec, PortType, Spec};
use gpux_core::{Dim, ElementType, Kind, PlanInput, Port, Signature, TableColumns, TensorKind, from_json};

/// The kind of value that a declared type and shape describe. Text without a shape is text, not a
/// tensor of strings.
pub(super) fn kind(port: PortType, shape: Option<&[Dimension]>) -> Kind {
    let PortType::Tensor(element) = port else {
        return match port {
            PortType::Text => Kind::Text,
            PortType::Json => Kind::Json,
            _ => Kind::Bytes,
        };
    };
    let element = element.parse().unwrap_or(ElementType::Float32);
    let Some(shape) = shape else {
        let text = element == ElementType::String;
        return if text { Kind::Text } else { Kind::Tensor(TensorKind::of_elements(element)) };
    };
    let dim = |dimension: &Dimension| match dimension {
        Dimension::Fixed(size) => Dim::Fixed(usize::try_from(*size).unwrap_or(usize::MAX)),
        Dimension::Dynamic => Dim::Dynamic,
        Dimension::Named(name) => Dim::Named(name.clone()),
    };
    Kind::Tensor(TensorKind::shaped(element, shape.iter().map(dim).collect::<Vec<_>>()))
}

/// The declared inputs; `None` if the steps determine them. Under `preprocessing:` a declared
/// tensor of numbers describes the model's input, and the request has the inputs of the first step.
pub(super) fn inputs(spec: &Spec, first: Option<&Signature>) -> Result<Option<Vec<PlanInput>>, Vec<Diagnostic>> {
    let (mut inputs, mut faults) = (Vec::new(), Vec::new());
    for declared in &spec.inputs {
        match input(declared) {
            Ok(input) => inputs.push(input),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let numbers = |input: &PlanInput| match &input.port.kind {
        Kind::Tensor(kind) => kind.element() != Some(ElementType::String),
        _ => false,
    };
    if spec.preprocessed && inputs.iter().all(numbers) {
        match (inputs.as_mut_slice(), first.and_then(|first| first.inputs.first())) {
            ([only], Some(port)) => only.port.kind = port.kind.clone(),
            _ => return Ok(None),
        }
    }
    Ok((!inputs.is_empty()).then_some(inputs))
}

/// A declared input of the pipeline.
fn input(spec: &InputSpec) -> Result<PlanInput, Diagnostic> {
    let kind = kind(spec.kind.value, spec.shape.as_ref().map(|shape| shape.value.as_slice()));
    let default = match &spec.default {
        None => None,
        Some(default) => {
            let fault = |error: &dyn std::fmt::Display| {
                let message = format!("the default of `{}` does not fit its type: {error}", spec.name.value);
                Diagnostic::new("default", default.span.clone(), message)
            };
            let value = from_json(default.value.clone(), &kind).map_err(|error| fault(&error))?;
            kind.accepts(&value.kind()).map_err(|mismatch| fault(&mismatch))?;
            Some(value)
        }
    };
    let port = Port {
        name: spec.name.value.clone(),
        kind,
        optional: !spec.required,
        description: spec.description.clone().unwrap_or_default(),
    };
    let columns = columns(spec, &port.kind)?;
    Ok(PlanInput { port, default, columns })
}

/// The columns of a table that the input's elements are; as many as its shape has elements for.
fn columns(spec: &InputSpec, kind: &Kind) -> Result<Option<TableColumns>, Diagnostic> {
    let Some(columns) = &spec.columns else {
        let ignores_extra = spec.ignores_extra_columns;
        return Ok(ignores_extra.then(|| TableColumns { names: Vec::new(), ignores_extra }));
    };
    let wrong = |message: String| Err(Diagnostic::new("columns", columns.span.clone(), message));
    let (name, names) = (&spec.name.value, &columns.value);
    let Kind::Tensor(kind) = kind else {
        return wrong(format!("`columns` are the elements of a tensor, but `{name}` is {kind}"));
    };
    if let Some(twice) = names.iter().enumerate().find(|(number, column)| names[..*number].contains(column)) {
        return wrong(format!("`columns` of `{name}` has `{}` twice", twice.1));
    }
    let sizes = kind.shape.iter().flatten().map(|dim| if let Dim::Fixed(size) = dim { Some(*size) } else { None });
    let known: Option<usize> = sizes.clone().flatten().try_fold(1, usize::checked_mul);
    let is_open = kind.shape.is_none() || sizes.clone().any(|size| size.is_none());
    if !is_open && known != Some(names.len()) || kind.shape.is_some() && known.is_some_and(|size| size > names.len()) {
        let elements = known.unwrap_or(usize::MAX);
        return wrong(format!("`{name}` has {elements} elements, but `columns` names {}", names.len()));
    }
    Ok(Some(TableColumns { names: names.clone(), ignores_extra: spec.ignores_extra_columns }))
}
