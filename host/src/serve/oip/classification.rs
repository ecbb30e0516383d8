//! The extension `classification`: the best classes of an output, instead of its numbers.

use std::cmp::Ordering;

use crate::assemble::Pipeline;
use crate::pipeline::{ElementType, Tensor, TensorData, Value};
use crate::serve::ServeError;

/// The `count` greatest elements along the last axis, as BYTES `value:index` or `value:index:label`.
pub(super) fn best(pipeline: &Pipeline, output: &str, value: &Value, count: usize) -> Result<Value, ServeError> {
    let classes = value.as_tensor().ok_or_else(|| "it is no tensor".to_owned());
    let classes = classes.and_then(|tensor| best_of(tensor, pipeline.labels(output), count));
    let wrong = |why| ServeError::invalid(format!("the output `{output}` cannot be classified: {why}"));
    classes.map(Value::from).map_err(wrong)
}

fn best_of(tensor: &Tensor, labels: &[String], count: usize) -> Result<Tensor, String> {
    let Some((classes, outer)) = tensor.shape().split_last() else { return Err("it has no axes".to_owned()) };
    let count = count.min(*classes);
    let rows = Rows { classes: *classes, count, labels };
    // Whole numbers are compared and written as they are: a float has not all digits of 64 bits.
    macro_rules! whole {
        ($data:expr) => {
            rows.best($data, Ord::cmp, ToString::to_string)
        };
    }
    let texts = match tensor.data() {
        TensorData::Uint8(data) => whole!(data),
        TensorData::Int8(data) => whole!(data),
        TensorData::Uint16(data) => whole!(data),
        TensorData::Int16(data) => whole!(data),
        TensorData::Uint32(data) => whole!(data),
        TensorData::Int32(data) => whole!(data),
        TensorData::Uint64(data) => whole!(data),
        TensorData::Int64(data) => whole!(data),
        TensorData::Bool(_) => {
            let numbers = tensor.cast(ElementType::Uint8).map_err(|error| error.to_string())?;
            rows.best(numbers.as_slice::<u8>().unwrap_or_default(), Ord::cmp, ToString::to_string)
        }
        _ => {
            let numbers = tensor.cast(ElementType::Float64).map_err(|_| "it holds no numbers".to_owned())?;
            let numbers = numbers.as_slice::<f64>().unwrap_or_default();
            rows.best(numbers, f64::total_cmp, |number| format!("{number:.6}"))
        }
    };
    let shape: Vec<_> = outer.iter().copied().chain([count]).collect();
    Tensor::new(shape, texts).map_err(|error| error.to_string())
}

/// How the numbers of a tensor are classes.
struct Rows<'a> {
    classes: usize,
    /// how many of them are wanted of each row
    count: usize,
    labels: &'a [String],
}

impl Rows<'_> {
    fn best<T>(
        &self,
        numbers: &[T],
        compare: impl Fn(&T, &T) -> Ordering,
        written: impl Fn(&T) -> String,
    ) -> Vec<String> {
        let mut texts = Vec::with_capacity(numbers.len().checked_div(self.classes).unwrap_or(0) * self.count);
        for row in numbers.chunks(self.classes.max(1)) {
            let mut order: Vec<(usize, &T)> = row.iter().enumerate().collect();
            order.sort_by(|(_, a), (_, b)| compare(b, a));
            texts.extend(order.into_iter().take(self.count).map(|(index, number)| {
                let number = written(number);
                match self.labels.get(index) {
                    Some(label) => format!("{number}:{index}:{label}"),
                    None => format!("{number}:{index}"),
                }
            }));
        }
        texts
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn best(tensor: &Tensor, count: usize) -> (Vec<usize>, Vec<String>) {
        let labels = ["cat".to_owned(), "dog".to_owned()];
        let best = best_of(tensor, &labels, count).unwrap();
        (best.shape().to_vec(), best.as_slice::<String>().unwrap().to_vec())
    }

    #[test]
    fn whole_numbers_keep_every_digit() {
        let large = Tensor::new([3], vec![i64::MAX - 1, i64::MAX, i64::MIN]).unwrap();
        let expected = ["9223372036854775807:1:dog", "9223372036854775806:0:cat", "-9223372036854775808:2"];
        assert_eq!(best(&large, 9), (vec![3], expected.map(str::to_owned).to_vec()));
        let large = Tensor::new([1, 2], vec![u64::MAX - 1, u64::MAX]).unwrap();
        assert_eq!(best(&large, 1), (vec![1, 1], vec!["18446744073709551615:1:dog".to_owned()]));
        assert_eq!(best(&Tensor::new([2], vec![false, true]).unwrap(), 1).1, ["1:1:dog"]);
    }

    #[test]
    fn each_row_has_its_best() {
        let rows = Tensor::new([2, 2], vec![0.25_f32, 0.5, 3.0, -1.0]).unwrap();
        let expected = ["0.500000:1:dog", "3.000000:0:cat"].map(str::to_owned).to_vec();
        assert_eq!(best(&rows, 1), (vec![2, 1], expected));
        assert_eq!(best(&Tensor::new([2, 0], Vec::<i8>::new()).unwrap(), 3).0, [2, 0]);
        assert!(best_of(&Tensor::new([], vec![1_u8]).unwrap(), &[], 1).unwrap_err().contains("no axes"));
        assert!(best_of(&Tensor::new([1], vec![String::new()]).unwrap(), &[], 1).unwrap_err().contains("no numbers"));
    }
}
