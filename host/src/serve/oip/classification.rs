//! The extension `classification`: the best classes of an output, instead of its numbers.

use crate::assemble::Pipeline;
use crate::pipeline::{ElementType, Tensor, Value};
use crate::serve::ServeError;

/// The `count` greatest elements along the last axis, as BYTES `value:index` or `value:index:label`.
pub(super) fn best(pipeline: &Pipeline, output: &str, value: &Value, count: usize) -> Result<Value, ServeError> {
    let wrong = |why: &str| ServeError::invalid(format!("the output `{output}` cannot be classified: {why}"));
    let tensor = value.as_tensor().ok_or_else(|| wrong("it is no tensor"))?;
    let Some((classes, outer)) = tensor.shape().split_last() else { return Err(wrong("it has no axes")) };
    let numbers = tensor.cast(ElementType::Float64).map_err(|_| wrong("it holds no numbers"))?;
    let numbers = numbers.as_slice::<f64>().unwrap_or_default();
    let labels = pipeline.labels(output);
    let count = count.min(*classes);
    let mut texts = Vec::with_capacity(numbers.len().checked_div(*classes).unwrap_or(0) * count);
    for row in numbers.chunks((*classes).max(1)) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        texts.extend(order.into_iter().take(count).map(|index| {
            let number =
                if tensor.element().is_float() { format!("{:.6}", row[index]) } else { row[index].to_string() };
            match labels.get(index) {
                Some(label) => format!("{number}:{index}:{label}"),
                None => format!("{number}:{index}"),
            }
        }));
    }
    let shape: Vec<_> = outer.iter().copied().chain([count]).collect();
    Tensor::new(shape, texts).map(Value::from).map_err(|error| wrong(&error.to_string()))
}
