//! `join`: a model's output for each window of a text → one result for each text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK, rows_per_check};
use crate::operation::{self, BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Dim, ElementSet, ElementType, Group, Kind, Mismatch, Port, Signature, StepFailure, Tensor,
    TensorElement, TensorKind, Value,
};

/// Options of `join`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// `mean` (default), `max`, or `concat`: the windows of a text one after the other, without what
    /// the masks call padding or special tokens.
    how: Reduction,
    /// With `concat`: how many tokens of each window but a text's first are left out, because the window
    /// before has them; the `stride` of `chunk`. Default: 0.
    stride: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Reduction {
    #[default]
    Mean,
    Max,
    Concat,
}

/// Puts the windows that `chunk` made together again: a tensor of windows × … becomes one of texts × ….
///
/// The port `window_of` says which text each window is from; without it, all are from one. With
/// `concat` the tensor is windows × length × …, and `attention_mask` and `special_tokens_mask` (both
/// optional) say which of the positions are text. Follows NumPy's `mean`, `max` and `concatenate`.
struct Join {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "join",
        summary: "Puts together what a model gave for the windows of a text",
        group: Group::Text,
        follows: "NumPy: numpy.mean, numpy.max and numpy.concatenate",
        example: "join: { how: mean }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Join::new(ports::options(options)?)?)),
    }
}

impl Join {
    fn new(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        if options.stride > 0 && options.how != Reduction::Concat {
            let message = "`stride` says what `concat` leaves out; mean and max take every position";
            return Err(BuildError::option("stride", message));
        }
        let numbers = |name: &str, elements: ElementSet, rank: usize, description: &str| {
            let shape = (rank > 0).then(|| vec![Dim::Dynamic; rank]);
            let kind = Kind::Tensor(TensorKind { shape, ..TensorKind::of_elements(elements) });
            Port { description: description.into(), ..Port::optional(name, kind) }
        };
        let floats = ElementSet::floats();
        let mut inputs = vec![
            Port { optional: false, ..numbers("values", floats, 0, "a row for each window") },
            numbers("window_of", ElementSet::numeric(), 1, "which text each window is from"),
        ];
        if options.how == Reduction::Concat {
            let mask = |name, description| numbers(name, ElementSet::numeric(), 2, description);
            inputs.push(mask("attention_mask", "1 for a token, 0 for padding"));
            inputs.push(mask("special_tokens_mask", "1 for a special token and for padding"));
        }
        let output = Port { optional: false, ..numbers("values", floats, 0, "a row for each text") };
        let signature = Signature { inputs, outputs: vec![output] };
        Ok(BuiltinStep::new(signature, json!(options), Self { options }))
    }

    fn least_rank(&self) -> usize {
        if self.options.how == Reduction::Concat { 2 } else { 1 }
    }

    /// Every row of `width` numbers, put together by text.
    fn fold<T: ReducedFloat>(
        &self,
        rows: &[T],
        width: usize,
        windows: &[usize],
        deadline: &Deadline,
    ) -> Result<Vec<T>, DeadlineExceeded> {
        let mut joined = Vec::with_capacity(windows.len() * width);
        let mut from = 0;
        for count in windows {
            let text = &rows[from * width..(from + count) * width];
            from += count;
            deadline.check_after(width + 1)?;
            let (first, rest) = text.split_at(width);
            let start = joined.len();
            joined.extend_from_slice(first);
            let sum = &mut joined[start..];
            for block in rest.chunks(rows_per_check(width) * width.max(1)) {
                deadline.check_after(block.len())?;
                for row in block.chunks_exact(width.max(1)) {
                    for (sum, value) in sum.iter_mut().zip(row) {
                        *sum = if self.options.how == Reduction::Max { sum.larger(*value) } else { *sum + *value };
                    }
                }
            }
            if self.options.how == Reduction::Mean {
                for sum in sum {
                    *sum = *sum / T::from_count(*count);
                }
            }
        }
        Ok(joined)
    }

    /// The positions of each window that are kept.
    fn keep_text_positions(
        &self,
        windows: &[usize],
        length: usize,
        masks: &Masks,
        deadline: &Deadline,
    ) -> Result<Vec<Vec<usize>>, DeadlineExceeded> {
        let mut row = 0;
        let mut texts = Vec::with_capacity(windows.len());
        for count in windows {
            let mut kept = Vec::new();
            for window in 0..*count {
                deadline.check_after(length + 1)?;
                let at = row * length;
                let left_out = if window == 0 { 0 } else { self.options.stride };
                kept.extend((at..at + length).filter(|position| masks.keep(*position)).skip(left_out));
                row += 1;
            }
            texts.push(kept);
        }
        Ok(texts)
    }

    fn concat<T: ReducedFloat>(
        &self,
        tensor: &Tensor,
        data: &[T],
        windows: &[usize],
        masks: &Masks,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let (length, width) = (tensor.shape()[1], tensor.shape()[2..].iter().product::<usize>());
        let texts = self.keep_text_positions(windows, length, masks, deadline)?;
        let kept = texts.first().map_or(0, Vec::len);
        if let Some(other) = texts.iter().find(|text| text.len() != kept) {
            let message = format!(
                "the texts have {kept} and {} tokens, which make no tensor; send them one at a time",
                other.len()
            );
            return Err(StepFailure::InvalidInput(message));
        }
        let mut joined = Vec::with_capacity(texts.len() * kept * width);
        for block in texts.iter().flat_map(|text| text.chunks(rows_per_check(width))) {
            deadline.check_after(block.len() * (width + 1))?;
            for position in block {
                joined.extend_from_slice(&data[position * width..(position + 1) * width]);
            }
        }
        Ok(Tensor::new([&[texts.len(), kept], &tensor.shape()[2..]].concat(), joined)?)
    }
}

/// Which positions of windows × length are text.
#[derive(Default)]
struct Masks {
    attention: Option<Vec<i64>>,
    special: Option<Vec<i64>>,
}

impl Masks {
    fn keep(&self, position: usize) -> bool {
        let is = |mask: &Option<Vec<i64>>, default: i64| mask.as_ref().map_or(default, |mask| mask[position]) != 0;
        is(&self.attention, 1) && !is(&self.special, 0)
    }
}

/// A float that rows are added up in.
trait ReducedFloat: TensorElement + Copy + std::ops::Add<Output = Self> + std::ops::Div<Output = Self> {
    fn from_count(count: usize) -> Self;
    /// The larger one; NaN if either is, as in NumPy.
    fn larger(self, other: Self) -> Self;
}

macro_rules! numbers {
    ($($type:ty),+) => {$(impl ReducedFloat for $type {
        fn from_count(count: usize) -> Self {
            count as Self
        }
        fn larger(self, other: Self) -> Self {
            if other > self || other.is_nan() { other } else { self }
        }
    })+};
}
numbers!(f32, f64);

impl Operation for Join {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let Some(given) = operation::known_tensor(inputs) else { return Ok(operation::output_kinds(signature)) };
        let elements = given.elements.intersection(ElementSet::floats());
        let Some(shape) = &given.shape else { return Ok(vec![Kind::Tensor(TensorKind::of_elements(elements))]) };
        if shape.len() < self.least_rank() {
            return Err(operation::mismatch(signature, given, no_axis(self.least_rank(), shape.len())));
        }
        let one = inputs.get(1).is_none_or(Option::is_none);
        let texts = if one { Dim::Fixed(1) } else { Dim::Dynamic };
        let mut joined = [&[texts], &shape[1..]].concat();
        if self.options.how == Reduction::Concat {
            joined[1] = Dim::Dynamic;
        }
        Ok(vec![Kind::Tensor(TensorKind::shaped(elements, joined))])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let bytes = |value: &Value| match value {
            // As float32 before and after; or as an int64, twice, and which positions are kept.
            Value::Tensor(tensor) => tensor.len().saturating_mul(16).saturating_add(2 * tensor.byte_len()),
            _ => 0,
        };
        // Positions of nothing take room too.
        let positions = ports::given_tensor(inputs).map_or(0, |tensor| tensor.shape().iter().take(2).product());
        let kept = if self.options.how == Reduction::Concat { size_of::<usize>() * 2 } else { 0 };
        inputs.iter().flatten().map(bytes).fold(kept.saturating_mul(positions), usize::saturating_add)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let invalid = |message: String| Err(StepFailure::InvalidInput(message));
        if tensor.rank() < self.least_rank() {
            return invalid(no_axis(self.least_rank(), tensor.rank()));
        }
        let element = tensor.element();
        if !element.is_float() {
            return invalid(format!("join takes floats, but gets {element}; cast them first"));
        }
        let rows = tensor.shape()[0];
        if rows == 0 {
            return invalid("there are no windows".into());
        }
        let window_of = inputs.optional().map(|value| whole(value, "window_of", &[rows], deadline)).transpose()?;
        let windows = windows(rows, window_of.as_deref(), deadline)?;
        let masks = if self.options.how == Reduction::Concat {
            let positions = &tensor.shape()[..2];
            let mut mask = |name| inputs.optional().map(|value| whole(value, name, positions, deadline)).transpose();
            Masks { attention: mask("attention_mask")?, special: mask("special_tokens_mask")? }
        } else {
            Masks::default()
        };
        let wide = if element == ElementType::Float64 { ElementType::Float64 } else { ElementType::Float32 };
        let tensor = tensor.cast_cancellable(wide, deadline)?;
        let joined = match (tensor.as_slice::<f32>(), tensor.as_slice::<f64>()) {
            (Some(data), _) => self.join(&tensor, data, &windows, &masks, deadline)?,
            (_, Some(data)) => self.join(&tensor, data, &windows, &masks, deadline)?,
            _ => return invalid(format!("join takes floats, but gets {element}")),
        };
        Ok(vec![joined.cast_cancellable(element, deadline)?.into()])
    }
}

impl Join {
    fn join<T: ReducedFloat>(
        &self,
        tensor: &Tensor,
        data: &[T],
        windows: &[usize],
        masks: &Masks,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        if self.options.how == Reduction::Concat {
            return self.concat(tensor, data, windows, masks, deadline);
        }
        let width = tensor.shape()[1..].iter().product();
        let joined = self.fold(data, width, windows, deadline)?;
        Ok(Tensor::new([&[windows.len()], &tensor.shape()[1..]].concat(), joined)?)
    }
}

fn no_axis(least: usize, rank: usize) -> String {
    let axes = if least == 1 { "windows × …" } else { "windows × length × …" };
    format!("join takes {axes}, but gets {rank} axes")
}

/// Whole numbers of this shape.
fn whole(value: Value, name: &str, shape: &[usize], deadline: &Deadline) -> Result<Vec<i64>, StepFailure> {
    match &value {
        Value::Tensor(tensor) if tensor.shape() == shape && tensor.element() != ElementType::String => {
            Ok(tensor.cast_cancellable(ElementType::Int64, deadline)?.as_slice::<i64>().unwrap_or_default().to_vec())
        }
        other => {
            Err(StepFailure::InvalidInput(format!("`{name}` must have the shape {shape:?}, but is {}", other.kind())))
        }
    }
}

/// How many windows each text has.
fn windows(rows: usize, window_of: Option<&[i64]>, deadline: &Deadline) -> Result<Vec<usize>, StepFailure> {
    let Some(window_of) = window_of else { return Ok(vec![rows]) };
    let mut counts: Vec<usize> = Vec::new();
    for (place, text) in window_of.iter().enumerate() {
        if place.is_multiple_of(ELEMENTS_PER_CHECK) {
            deadline.check_after(ELEMENTS_PER_CHECK)?;
        }
        let known = counts.len();
        match usize::try_from(*text) {
            Ok(text) if text == known => counts.push(1),
            Ok(text) if text + 1 == known => counts[text] += 1,
            _ => {
                let message =
                    format!("`window_of` counts texts from 0 without a gap, but has {text} after {known} texts");
                return Err(StepFailure::InvalidInput(message));
            }
        }
    }
    Ok(counts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, Step as _};

    fn step(options: serde_json::Value) -> BuiltinStep<Join> {
        Join::new(ports::options(options).unwrap()).unwrap()
    }

    #[test]
    fn joins_tokens_of_windows() {
        let step = step(json!({"how": "concat", "stride": 1}));
        let values = Tensor::new([2, 4, 1], (0_u8..8).map(f32::from).collect::<Vec<_>>()).unwrap();
        let special = Tensor::new([2, 4], vec![1_i64, 0, 0, 0, 1, 0, 0, 1]).unwrap();
        let attention = Tensor::new([2, 4], vec![1_i64; 8]).unwrap();
        let window_of = Tensor::new([2], vec![0_i64, 0]).unwrap();
        let joined =
            reference::run(&step, vec![values.into(), window_of.into(), attention.into(), special.into()]).remove(0);
        let joined = joined.as_tensor().unwrap();
        assert_eq!((joined.shape(), joined.as_slice::<f32>().unwrap()), (&[1, 4, 1][..], &[1.0, 2.0, 3.0, 6.0][..]));
    }

    #[test]
    fn stops_at_the_deadline() {
        let values = |shape: [usize; 3]| Tensor::zeros(ElementType::Float32, shape).unwrap();
        // One text and many, long rows and short ones.
        for (how, shape, windows) in [
            ("mean", [1 << 11, 1 << 10, 1], vec![1 << 11]),
            ("max", [1 << 20, 1, 1], vec![1; 1 << 20]),
            ("concat", [1 << 10, 1 << 11, 1], vec![1 << 10]),
        ] {
            let (step, tensor) = (step(json!({"how": how})), values(shape));
            let data = tensor.as_slice::<f32>().unwrap();
            let run = |looks| {
                step.operation.join(&tensor, data, &windows, &Masks::default(), &Deadline::exceeded_after(looks))
            };
            assert_eq!(run(0), Err(StepFailure::Timeout), "{how} {shape:?}");
            assert!(run(99).is_ok(), "{how} {shape:?}");
        }
        assert_eq!(windows(2 << 20, Some(&vec![0; 2 << 20]), &Deadline::exceeded_after(1)), Err(StepFailure::Timeout));
    }

    #[test]
    fn infers_type_and_shape() {
        let kind = |shape: &[Dim]| Some(Kind::Tensor(TensorKind::shaped(ElementType::Float16, shape)));
        let infer = |inputs: &[Option<Kind>]| step(json!({})).infer(inputs).map(|kinds| kinds[0].to_string());
        assert_eq!(infer(&[kind(&[Dim::Dynamic, Dim::Fixed(8)]), None]).unwrap(), "tensor float16[1, 8]");
        assert!(infer(&[kind(&[]), None]).is_err());
        assert!(infer(&[Some(Kind::Text), None]).is_err());
        assert!(Join::new(ports::options(json!({"stride": 2})).unwrap()).is_err());
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let run = |options, inputs: Vec<Value>| {
            step(options).run(inputs.into_iter().map(Some).collect(), &mut Context::default())
        };
        let rows = |rows: usize| Value::from(Tensor::zeros(ElementType::Float32, [rows, 2]).unwrap());
        let of = |texts: &[i64]| Value::from(Tensor::new([texts.len()], texts.to_vec()).unwrap());
        let concat = || json!({"how": "concat"});
        for result in [
            run(json!({}), vec![rows(0)]),
            run(json!({}), vec![rows(2), of(&[0, 2])]),
            run(json!({}), vec![rows(2), of(&[-1, 0])]),
            run(json!({}), vec![rows(2), of(&[0])]),
            run(json!({}), vec![rows(2), "text".into()]),
            run(json!({}), vec![Tensor::scalar(1_f32).into()]),
            run(json!({}), vec![Tensor::new([1], vec![1_u8]).unwrap().into()]),
            run(concat(), vec![rows(3), of(&[0, 0, 1])]),
            run(json!({}), vec![]),
        ] {
            assert!(matches!(result, Err(StepFailure::InvalidInput(_))), "{result:?}");
        }
        assert!(run(json!({}), vec![Tensor::zeros(ElementType::Float32, [2, 0]).unwrap().into()]).is_ok());
        assert!(run(json!({"how": "concat", "stride": 9}), vec![rows(2)]).is_ok());
    }
}
