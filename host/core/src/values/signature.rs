//! Signatures of steps: input and output ports, and the compatibility of kinds.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::element::{ElementSet, ElementType};
use super::tensor::Layout;
use super::tensor::Tensor;

/// One dimension of a described tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dim {
    /// exactly this many
    Fixed(usize),
    /// any number, decided by each request
    Dynamic,
    /// any number, the same wherever this name stands (ONNX's `dim_param`)
    Named(String),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Dynamic => f.write_str("?"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// The facts about a tensor that a plan knows before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorKind {
    /// which element types it may have
    pub elements: ElementSet,
    /// its dimensions; `None` when even the rank is open
    pub shape: Option<Vec<Dim>>,
    /// the order of its axes, if it is known to be an image
    pub layout: Option<Layout>,
}

impl TensorKind {
    /// Any tensor of the given element types.
    pub fn of_elements(elements: impl Into<ElementSet>) -> Self {
        Self { elements: elements.into(), shape: None, layout: None }
    }

    /// A tensor of `elements` with these dimensions.
    pub fn shaped(elements: impl Into<ElementSet>, shape: impl Into<Vec<Dim>>) -> Self {
        Self { elements: elements.into(), shape: Some(shape.into()), layout: None }
    }

    /// An image of `elements`, height × width × channels (`None` where open).
    pub fn image(
        elements: impl Into<ElementSet>,
        height: Option<usize>,
        width: Option<usize>,
        channels: Option<usize>,
    ) -> Self {
        let dim = |size: Option<usize>| size.map_or(Dim::Dynamic, Dim::Fixed);
        Self {
            elements: elements.into(),
            shape: Some(vec![dim(height), dim(width), dim(channels)]),
            layout: Some(Layout::Hwc),
        }
    }

    /// Everything about an existing tensor.
    pub fn of(tensor: &Tensor) -> Self {
        Self {
            elements: tensor.element().into(),
            shape: Some(tensor.shape().iter().map(|size| Dim::Fixed(*size)).collect()),
            layout: tensor.metadata.layout,
        }
    }

    /// The element type, if only one is possible.
    pub fn element(&self) -> Option<ElementType> {
        self.elements.single()
    }
}

impl fmt::Display for TensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.elements)?;
        if let Some(shape) = &self.shape {
            let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
            write!(f, "[{}]", dims.join(", "))?;
        }
        if let Some(layout) = self.layout {
            write!(f, " {layout}")?;
        }
        Ok(())
    }
}

/// The facts about a value that a plan knows before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// anything
    Any,
    /// a tensor
    Tensor(TensorKind),
    /// UTF-8 text
    Text,
    /// bytes
    Bytes,
    /// JSON
    Json,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any value"),
            Self::Tensor(tensor) => write!(f, "tensor {tensor}"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("bytes"),
            Self::Json => f.write_str("JSON"),
        }
    }
}

/// Two descriptions that cannot both hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes {expected}, but gets {given}{}", .because.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
pub struct Mismatch {
    /// the expected kind
    pub expected: Kind,
    /// the given kind
    pub given: Kind,
    /// which part does not fit, where that is not plain
    pub because: Option<String>,
}

impl Kind {
    /// Whether a value of kind `given` may be used where this kind is expected. Only values that are
    /// certain to fail are refused: an open dimension fits any.
    pub fn accepts(&self, given: &Self) -> Result<(), Mismatch> {
        let fault = |because: Option<String>| Mismatch { expected: self.clone(), given: given.clone(), because };
        match (self, given) {
            (Self::Any, _) | (_, Self::Any) => Ok(()),
            (Self::Tensor(wanted), Self::Tensor(given)) => {
                tensor_fault(wanted, given).map_or(Ok(()), |why| Err(fault(Some(why))))
            }
            (wanted, given) if std::mem::discriminant(wanted) == std::mem::discriminant(given) => Ok(()),
            _ => Err(fault(None)),
        }
    }

    /// The same with any shape.
    #[must_use]
    pub fn without_shape(&self) -> Self {
        match self {
            Self::Tensor(kind) => Self::Tensor(TensorKind { shape: None, ..kind.clone() }),
            other => other.clone(),
        }
    }
}

fn tensor_fault(wanted: &TensorKind, given: &TensorKind) -> Option<String> {
    if wanted.elements.intersection(given.elements).is_empty() {
        return Some(format!("the element type is {}, not {}", given.elements, wanted.elements));
    }
    if let (Some(wanted), Some(given)) = (wanted.layout, given.layout)
        && wanted != given
    {
        return Some(format!("the layout is {given}, not {wanted}"));
    }
    let (Some(wanted), Some(given)) = (&wanted.shape, &given.shape) else { return None };
    if wanted.len() != given.len() {
        return Some(format!("it has {} axes, not {}", given.len(), wanted.len()));
    }
    wanted.iter().zip(given).enumerate().find_map(|(axis, dims)| match dims {
        (Dim::Fixed(wanted), Dim::Fixed(given)) if wanted != given => {
            Some(format!("axis {axis} is {given}, not {wanted}"))
        }
        _ => None,
    })
}

/// A named input or output of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// its name in the frame
    pub name: String,
    /// its kind
    pub kind: Kind,
    /// whether it may be left out
    pub optional: bool,
    /// one line for people
    pub description: String,
}

impl Port {
    /// A port that must be filled.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind, optional: false, description: String::new() }
    }

    /// A port that may be left out.
    pub fn optional(name: impl Into<String>, kind: Kind) -> Self {
        Self { optional: true, ..Self::new(name, kind) }
    }
}

/// The inputs and outputs of a step with its options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// inputs, in order
    pub inputs: Vec<Port>,
    /// outputs, in order
    pub outputs: Vec<Port>,
}

impl Signature {
    /// One value in, one value out, under these names.
    pub fn unary(input: Port, output: Port) -> Self {
        Self { inputs: vec![input], outputs: vec![output] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(element: ElementType, shape: &[Dim]) -> Kind {
        Kind::Tensor(TensorKind::shaped(element, shape))
    }

    #[test]
    fn open_dimensions_fit_and_fixed_ones_must_agree() {
        use ElementType::{Float32, Int64};
        let wanted = tensor(Float32, &[Dim::Named("N".into()), Dim::Fixed(3)]);
        assert!(wanted.accepts(&tensor(Float32, &[Dim::Dynamic, Dim::Dynamic])).is_ok());
        assert!(wanted.accepts(&Kind::Any).is_ok());
        let message = |given: &Kind| wanted.accepts(given).unwrap_err().to_string();
        assert_eq!(
            message(&tensor(Float32, &[Dim::Fixed(1), Dim::Fixed(4)])),
            "takes tensor float32[N, 3], but gets tensor float32[1, 4]: axis 1 is 4, not 3"
        );
        assert!(message(&tensor(Int64, &[Dim::Fixed(1), Dim::Fixed(3)])).contains("element type is int64"));
        assert!(message(&tensor(Float32, &[Dim::Fixed(3)])).contains("it has 1 axes, not 2"));
        assert_eq!(message(&Kind::Text), "takes tensor float32[N, 3], but gets text");
    }
}
