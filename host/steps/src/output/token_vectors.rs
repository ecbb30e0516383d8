//! The vectors that a language model gives for tokens, and their mask: shared by the pooling steps.

use crate::deadline::Deadline;
use crate::operation::Inputs;
use gpux_core::{Dim, ElementSet, ElementType, Kind, Port, Signature, StepFailure, Tensor, TensorKind, Value};

/// A vector for each token, and how much each counts.
pub(super) struct TokenVectors {
    pub(super) tensor: Tensor,
    /// batch, length, width
    pub(super) shape: [usize; 3],
    /// in float32; `None`: all count
    mask: Option<Tensor>,
}

/// The numbers in the type that they are added up in.
pub(super) enum Floats {
    Float32(Tensor),
    Float64(Tensor),
}

/// The ports of a step that makes one vector of each text's.
pub(super) fn hidden_ports() -> Signature {
    let floats = |rank: usize| Kind::Tensor(TensorKind::shaped(ElementSet::floats(), vec![Dim::Dynamic; rank]));
    let hidden = Port {
        description: "a vector for each token, batch × length × width".into(),
        ..Port::new("last_hidden_state", Kind::Tensor(TensorKind::of_elements(ElementSet::floats())))
    };
    let mask = Port {
        description: "1 for a token, 0 for padding, batch × length".into(),
        ..Port::optional(
            "attention_mask",
            Kind::Tensor(TensorKind::of_elements(ElementSet::numeric().with(ElementType::Bool))),
        )
    };
    let pooled = Port { description: "a vector for each text".into(), ..Port::new("embeddings", floats(2)) };
    Signature { inputs: vec![hidden, mask], outputs: vec![pooled] }
}

/// The kind of the pooled vectors.
pub(super) fn pooled_kind(given: &TensorKind) -> Result<Kind, String> {
    let elements = given.elements.intersection(ElementSet::floats());
    let shape = match given.shape.as_deref() {
        None => vec![Dim::Dynamic, Dim::Dynamic],
        Some([batch, _, width]) => vec![batch.clone(), width.clone()],
        Some(shape) => return Err(wrong_rank(shape.len())),
    };
    Ok(Kind::Tensor(TensorKind::shaped(elements, shape)))
}

/// Memory for a mask in float32, and for halves in float32.
pub(super) fn buffers(inputs: &[Option<Value>]) -> usize {
    inputs.iter().flatten().filter_map(Value::as_tensor).map(|tensor| tensor.len().saturating_mul(4)).sum()
}

fn wrong_rank(rank: usize) -> String {
    format!("vectors of tokens are batch × length × width, but there are {rank} axes")
}

impl TokenVectors {
    pub(super) fn read(mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Self, StepFailure> {
        let tensor = inputs.tensor()?;
        let [batch, length, width] = *tensor.shape() else {
            return Err(StepFailure::InvalidInput(wrong_rank(tensor.rank())));
        };
        let mask = inputs.optional().map(|mask| mask_of(mask, &[batch, length], deadline)).transpose()?;
        Ok(Self { shape: [batch, length, width], tensor, mask })
    }

    /// How much a token counts.
    pub(super) fn weight(&self, row: usize, token: usize) -> f32 {
        let weights = self.mask.as_ref().and_then(|mask| mask.as_slice::<f32>());
        weights.map_or(1.0, |weights| weights[row * self.shape[1] + token])
    }

    /// The first token of a text that counts; 0 if none does.
    pub(super) fn first(&self, row: usize, deadline: &Deadline) -> Result<usize, StepFailure> {
        deadline.check_after(self.shape[1])?;
        Ok((0..self.shape[1]).find(|token| self.weight(row, *token) != 0.0).unwrap_or(0))
    }

    pub(super) fn floats(&self, deadline: &Deadline) -> Result<Floats, StepFailure> {
        match self.tensor.element() {
            ElementType::Float64 => Ok(Floats::Float64(self.tensor.clone())),
            element if element.is_float() => {
                Ok(Floats::Float32(self.tensor.cast_cancellable(ElementType::Float32, deadline)?))
            }
            element => {
                let message = format!("vectors of tokens are floats, not {element}; cast them first");
                Err(StepFailure::InvalidInput(message))
            }
        }
    }
}

fn mask_of(mask: Value, shape: &[usize], deadline: &Deadline) -> Result<Tensor, StepFailure> {
    match &mask {
        Value::Tensor(tensor) if tensor.shape() == shape && tensor.element() != ElementType::String => {
            Ok(tensor.cast_cancellable(ElementType::Float32, deadline)?)
        }
        other => {
            let message = format!("`attention_mask` must have the shape {shape:?}, but is {}", other.kind());
            Err(StepFailure::InvalidInput(message))
        }
    }
}
