//! The extension `classification`: the best classes of an output instead of its numbers.

use std::cmp::Ordering;

use crate::ServeError;
use gpux::internal::PipelineInfo;
use gpux_core::{Dim, ElementType, Kind, PlanOutput, Tensor, TensorData, Value};

const NO_TENSOR: &str = "it is no tensor";
const NO_AXES: &str = "it has no axes";
const NO_NUMBERS: &str = "it holds no numbers";

fn wrong(output: &PlanOutput, why: &str) -> ServeError {
    ServeError::invalid(format!("the output `{}` cannot be classified: {why}", output.name))
}

/// Rejects an output whose kind has no classes, before it has a value.
pub(super) fn check_output(output: &PlanOutput) -> Result<(), ServeError> {
    why_not(&output.kind).map_or(Ok(()), |why| Err(wrong(output, why)))
}

fn why_not(kind: &Kind) -> Option<&'static str> {
    match kind {
        Kind::Text | Kind::Bytes | Kind::Json => Some(NO_TENSOR),
        Kind::Tensor(kind) if kind.element() == Some(ElementType::String) => Some(NO_NUMBERS),
        Kind::Tensor(kind) if kind.shape.as_ref().is_some_and(Vec::is_empty) => Some(NO_AXES),
        Kind::Tensor(_) | Kind::Any => None,
    }
}

/// The `count` greatest elements along the last axis, as BYTES `value:index` or `value:index:label`.
pub(super) fn top_classes(
    pipeline: &PipelineInfo,
    output: &PlanOutput,
    value: &Value,
    count: usize,
) -> Result<Value, ServeError> {
    let classes = value.as_tensor().ok_or_else(|| NO_TENSOR.to_owned());
    let classes = classes.and_then(|tensor| top_classes_of(tensor, pipeline.labels(&output.name), count));
    let classes = classes.and_then(|classes| without_ones(classes, &output.kind));
    classes.map(Value::from).map_err(|why| wrong(output, &why))
}

/// Removes leading axes of rows that are fixed at 1: Triton has an axis of rows only if their number is dynamic.
fn without_ones(classes: Tensor, kind: &Kind) -> Result<Tensor, String> {
    let declared = if let Kind::Tensor(kind) = kind { kind.shape.as_deref() } else { None };
    let (_, rows) = declared.and_then(|shape| shape.split_last()).unwrap_or((&Dim::Dynamic, &[]));
    let ones = rows.iter().take_while(|dim| **dim == Dim::Fixed(1)).count();
    match classes.shape().split_at_checked(ones) {
        Some((_, shape)) if ones > 0 => {
            let shape = shape.to_vec();
            classes.reshape(shape).map_err(|error| error.to_string())
        }
        _ => Ok(classes),
    }
}

fn top_classes_of(tensor: &Tensor, labels: &[String], count: usize) -> Result<Tensor, String> {
    let Some((classes, outer)) = tensor.shape().split_last() else { return Err(NO_AXES.to_owned()) };
    let count = count.min(*classes);
    let rows = Rows { classes: *classes, count, labels };
    // Integers are compared and printed as they are: a float cannot hold all digits of 64 bits.
    macro_rules! whole {
        ($data:expr) => {
            rows.top_classes($data, Ord::cmp, ToString::to_string)
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
            rows.top_classes(numbers.as_slice::<u8>().unwrap_or_default(), Ord::cmp, ToString::to_string)
        }
        _ => {
            let numbers = tensor.cast(ElementType::Float64).map_err(|_| NO_NUMBERS.to_owned())?;
            let numbers = numbers.as_slice::<f64>().unwrap_or_default();
            rows.top_classes(numbers, f64::total_cmp, |number| format!("{number:.6}"))
        }
    };
    let shape: Vec<_> = outer.iter().copied().chain([count]).collect();
    Tensor::new(shape, texts).map_err(|error| error.to_string())
}

/// Rows of class scores in a tensor.
struct Rows<'a> {
    classes: usize,
    /// the number of best classes per row
    count: usize,
    labels: &'a [String],
}

impl Rows<'_> {
    fn top_classes<T>(
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
    use gpux_core::TensorKind;

    fn best(tensor: &Tensor, count: usize) -> (Vec<usize>, Vec<String>) {
        let labels = ["cat".to_owned(), "dog".to_owned()];
        let best = top_classes_of(tensor, &labels, count).unwrap();
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

    fn kind(element: ElementType, dims: &[Dim]) -> Kind {
        Kind::Tensor(TensorKind::shaped(element, dims))
    }

    #[test]
    fn drops_axes_of_constant_one() {
        let one = Dim::Fixed(1);
        for (dims, expected) in [
            (&[one.clone(), Dim::Fixed(3)][..], &[2][..]),
            (&[Dim::Named("N".into()), Dim::Fixed(3)], &[1, 2]),
            (&[Dim::Dynamic, one.clone()], &[1, 2]),
            (&[one], &[1, 2]),
        ] {
            let classes = Tensor::new([1, 2], vec!["a".to_owned(), "b".to_owned()]).unwrap();
            let given = without_ones(classes, &kind(ElementType::Float32, dims)).unwrap();
            assert_eq!(given.shape(), expected, "{dims:?}");
        }
    }

    #[test]
    fn rejects_outputs_without_classes() {
        assert_eq!(why_not(&Kind::Text), Some(NO_TENSOR));
        assert_eq!(why_not(&kind(ElementType::String, &[Dim::Dynamic])), Some(NO_NUMBERS));
        assert_eq!(why_not(&kind(ElementType::Float32, &[])), Some(NO_AXES));
        assert_eq!(why_not(&kind(ElementType::Float16, &[Dim::Dynamic])), None);
        assert_eq!(why_not(&Kind::Any), None);
    }

    #[test]
    fn selects_the_best_classes_per_row() {
        let rows = Tensor::new([2, 2], vec![0.25_f32, 0.5, 3.0, -1.0]).unwrap();
        let expected = ["0.500000:1:dog", "3.000000:0:cat"].map(str::to_owned).to_vec();
        assert_eq!(best(&rows, 1), (vec![2, 1], expected));
        assert_eq!(best(&Tensor::new([2, 0], Vec::<i8>::new()).unwrap(), 3).0, [2, 0]);
        assert!(top_classes_of(&Tensor::new([], vec![1_u8]).unwrap(), &[], 1).unwrap_err().contains("no axes"));
        assert!(
            top_classes_of(&Tensor::new([1], vec![String::new()]).unwrap(), &[], 1).unwrap_err().contains("no numbers")
        );
    }
}
