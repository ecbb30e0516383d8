//! Synthetic inputs: deterministic pseudo-random numbers.

use super::graph::{ModelInfo, OnnxType};
use gpux_core::{Dim, ElementType, Tensor, TensorKind, Value, element_count};

/// The most elements of a synthetic tensor.
const MOST: usize = 1 << 26;
/// How long an axis is that the model leaves open; the first, which counts the items, is 1.
const OPEN: usize = 8;

/// A tensor of pseudo-random numbers between -1 and 1; integers are 0 or 1, texts `text`. Another
/// `seed` gives other numbers. `None` if the tensor would be too large.
pub fn synthetic_tensor(element: ElementType, shape: Vec<usize>, seed: u64) -> Option<Value> {
    let count = element_count(&shape).filter(|count| *count <= MOST)?;
    if element == ElementType::String {
        return Tensor::new(shape, vec!["text".to_owned(); count]).ok().map(Value::Tensor);
    }
    let number = |at: usize| {
        let mixed = (at as u64).wrapping_add(seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        if element.is_float() { mixed as f64 / f64::from(1_u32 << 23) - 1.0 } else { (mixed % 2) as f64 }
    };
    let wide = Tensor::new(shape, (0..count).map(number).collect::<Vec<f64>>()).ok()?;
    wide.cast(element).ok().map(Value::Tensor)
}

/// The sizes of a tensor of this kind: open ones are 8, on the first axis 1.
pub fn synthetic_shape(kind: &TensorKind) -> Vec<usize> {
    shape_with_sizes(kind, 1, OPEN)
}

/// The sizes of a tensor whose first axis is of `items`, and others of `open`, where the model leaves them open.
pub(super) fn shape_with_sizes(kind: &TensorKind, items: usize, open: usize) -> Vec<usize> {
    let size = |(axis, dim): (usize, &Dim)| match (dim, axis) {
        (Dim::Fixed(size), _) => *size,
        (_, 0) => items,
        _ => open,
    };
    kind.shape.iter().flatten().enumerate().map(size).collect()
}

/// A value for each input of a model that must be given. `None` where one is no tensor, or too large.
pub fn synthetic_inputs(info: &ModelInfo, seed: u64) -> Option<Vec<Option<Value>>> {
    synthetic_inputs_sized(info, seed, 1, OPEN)
}

/// The same, with these sizes where the model leaves them open.
pub(super) fn synthetic_inputs_sized(
    info: &ModelInfo,
    seed: u64,
    items: usize,
    open: usize,
) -> Option<Vec<Option<Value>>> {
    let mut values = Vec::with_capacity(info.inputs.len());
    for input in &info.inputs {
        values.push(match &input.value {
            _ if !input.required => None,
            Some(OnnxType::Tensor { kind, narrow: None }) => {
                let element = kind.element().unwrap_or(ElementType::Float32);
                Some(synthetic_tensor(element, shape_with_sizes(kind, items, open), seed)?)
            }
            _ => return None,
        });
    }
    Some(values)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn synthetic_tensors_depend_on_the_seed_only() {
        let made = |seed| synthetic_tensor(ElementType::Float32, vec![2, 50], seed).unwrap();
        assert_eq!(made(0), made(0));
        assert_ne!(made(0), made(1));
        let Value::Tensor(tensor) = made(3) else { return };
        let numbers = tensor.as_slice::<f32>().unwrap();
        assert!(numbers.iter().all(|number| (-1.0..=1.0).contains(number)));
        let mean = numbers.iter().sum::<f32>() / 100.0;
        assert!(mean.abs() < 0.3, "{mean}");
        assert!(synthetic_tensor(ElementType::Uint8, vec![1 << 30], 0).is_none());
    }
}
