//! What gpux.yml says about inputs and outputs, as the plan's own types.

use crate::config::{Diagnostic, Dimension, InputSpec, PortType};
use crate::pipeline::{Dim, ElementType, Kind, PlanInput, Port, TensorKind, from_json};

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

/// A declared input of the pipeline.
pub(super) fn input(spec: &InputSpec) -> Result<PlanInput, Diagnostic> {
    let kind = kind(spec.kind.value, spec.shape.as_ref().map(|shape| shape.value.as_slice()));
    let default = match &spec.default {
        None => None,
        Some(default) => Some(from_json(default.value.clone(), &kind).map_err(|error| {
            let message = format!("the default of `{}` does not fit its type: {error}", spec.name.value);
            Diagnostic::new("default", default.span.clone(), message)
        })?),
    };
    let port = Port {
        name: spec.name.value.clone(),
        kind,
        optional: !spec.required,
        description: spec.description.clone().unwrap_or_default(),
    };
    Ok(PlanInput { port, default })
}
