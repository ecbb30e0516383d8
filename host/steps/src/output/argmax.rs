//! `argmax`: numbers → where the largest of them stands.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use crate::simd::vectorize;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, Dim, ElementSet, ElementType, Group, Tensor, TensorData, TensorKind};

/// Options of `argmax`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Argmax {
    /// The axis along which the largest number is searched; negative ones count from the last. Default: -1.
    axis: i64,
    /// Whether the axis stays, with size 1. Default: false.
    keepdims: bool,
}

impl Default for Argmax {
    fn default() -> Self {
        Self { axis: -1, keepdims: false }
    }
}

/// Gives the index of the largest number along an axis, as int64.
///
/// Follows `numpy.argmax`: the first of equal numbers, and the first NaN before every number.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "argmax",
        summary: "Gives the index of the largest number along an axis",
        group: Group::Output,
        follows: "NumPy: numpy.argmax",
        example: "argmax: { axis: -1 }",
        schema: || schemars::schema_for!(Argmax),
        build: |options, _| {
            let argmax: Argmax = ports::options(options)?;
            Ok(unary::step(argmax, "numbers or bools of any shape", "an index for each place of the other axes"))
        },
    }
}

impl Argmax {
    fn without_axis<T: Clone>(&self, shape: &[T], one: T) -> Result<Vec<T>, String> {
        let rank = shape.len();
        let no_axis = || format!("it works along axis {}, but there are {rank} axes", self.axis);
        let axis = ports::axis(self.axis, rank).ok_or_else(no_axis)?;
        let mut rest = shape.to_vec();
        if self.keepdims {
            rest[axis] = one;
        } else {
            rest.remove(axis);
        }
        Ok(rest)
    }
}

impl TensorOperation for Argmax {
    const NAME: &'static str = "argmax";
    const PORTS: [&'static str; 2] = ["scores", "indices"];

    fn takes(&self) -> ElementSet {
        ElementSet::numeric().with(ElementType::Bool)
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        Ok(match &given.shape {
            Some(shape) => TensorKind::shaped(ElementType::Int64, self.without_axis(shape, Dim::Fixed(1))?),
            None => TensorKind::of_elements(ElementType::Int64),
        })
    }

    /// The best of each column so far.
    fn buffers(&self, given: &Tensor) -> usize {
        given.byte_len()
    }

    fn apply(&self, tensor: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let rest = self.without_axis(tensor.shape(), 1)?;
        let axis = ports::axis(self.axis, tensor.rank()).unwrap_or(0);
        let along = (tensor.shape()[axis], tensor.shape()[axis + 1..].iter().product());
        if along.0 == 0 {
            return Err(format!("axis {axis} is empty"));
        }
        let indices = match tensor.data() {
            TensorData::Bool(data) => largest(data, along, deadline, |a, b| a && !b),
            TensorData::Uint8(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Int8(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Uint16(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Int16(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Uint32(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Int32(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Uint64(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Int64(data) => largest(data, along, deadline, |a, b| a > b),
            TensorData::Float16(data) => {
                largest(data, along, deadline, |a: f16, b: f16| a > b || a.is_nan() && !b.is_nan())
            }
            TensorData::Bfloat16(data) => {
                largest(data, along, deadline, |a: bf16, b: bf16| a > b || a.is_nan() && !b.is_nan())
            }
            TensorData::Float32(data) => largest(data, along, deadline, |a, b| (a > b) | (a.is_nan() & !b.is_nan())),
            TensorData::Float64(data) => largest(data, along, deadline, |a, b| (a > b) | (a.is_nan() & !b.is_nan())),
            TensorData::String(_) => Ok(Vec::new()),
        }?;
        Tensor::new(rest, indices).map_err(|error| error.to_string())
    }
}

/// Elements between two deadline checks, about.
const PART: usize = 1 << 20;

/// The index of the first element that no other of its `length` elements, which lie `stride` apart, beats.
fn largest<T: Copy>(
    data: &[T],
    (length, stride): (usize, usize),
    deadline: &Deadline,
    beats: impl Fn(T, T) -> bool + Copy,
) -> Result<Vec<i64>, DeadlineExceeded> {
    if data.is_empty() {
        return Ok(Vec::new());
    }
    if stride == 1 {
        let mut indices = vec![0; data.len() / length];
        let rows = (PART / length).max(1);
        for (indices, data) in indices.chunks_mut(rows).zip(data.chunks(rows * length)) {
            deadline.check_after(data.len())?;
            vectorize(
                #[inline(always)]
                || {
                    for (index, row) in indices.iter_mut().zip(data.chunks_exact(length)) {
                        *index = first_of_row(row, beats) as i64;
                    }
                },
            );
        }
        return Ok(indices);
    }
    // Place by place, all columns at a time: memory is read in its order.
    let mut indices = Vec::with_capacity(data.len() / length);
    for block in data.chunks_exact(length * stride) {
        deadline.check_after(stride)?;
        let (first, rest) = block.split_at(stride);
        let (mut best, mut winners) = (first.to_vec(), vec![0_i64; stride]);
        for (index, row) in (1_i64..).zip(rest.chunks_exact(stride)) {
            deadline.check_after(stride)?;
            for ((value, best), winner) in row.iter().zip(&mut best).zip(&mut winners) {
                let wins = beats(*value, *best);
                *best = if wins { *value } else { *best };
                *winner = if wins { index } else { *winner };
            }
        }
        indices.append(&mut winners);
    }
    Ok(indices)
}

/// The index of the first element of a row that no other beats: in eight lanes, then of these and the rest.
#[inline(always)]
fn first_of_row<T: Copy>(row: &[T], beats: impl Fn(T, T) -> bool) -> usize {
    let (parts, _) = row.as_chunks::<8>();
    let (mut best, mut index) = (row[0], 0);
    if let Some((first, parts)) = parts.split_first() {
        let (mut lanes, mut winners) = (*first, [0_u32; 8]);
        for (number, part) in (1..).zip(parts) {
            for lane in 0..8 {
                let wins = beats(part[lane], lanes[lane]);
                lanes[lane] = if wins { part[lane] } else { lanes[lane] };
                winners[lane] = if wins { number } else { winners[lane] };
            }
        }
        for (lane, (value, winner)) in lanes.into_iter().zip(winners).enumerate() {
            let place = winner as usize * 8 + lane;
            if beats(value, best) || place < index && !beats(best, value) {
                (best, index) = (value, place);
            }
        }
    }
    for (place, value) in row.iter().enumerate().skip(parts.len() * 8) {
        if beats(*value, best) {
            (best, index) = (*value, place);
        }
    }
    index
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, Kind, StepFailure};

    fn run(axis: i64, tensor: Tensor) -> Result<Tensor, StepFailure> {
        let step = crate::reference::build(builtin(), serde_json::json!({"axis": axis})).unwrap();
        let mut values = step.run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn stops_at_the_deadline() {
        let data = vec![0_u8; 3 << 20];
        for along in [(1 << 20, 1), (2, 1), (3, 1 << 20), (1, 2)] {
            let run = |looks| largest(&data, along, &Deadline::exceeded_after(looks), |a, b| a > b);
            assert_eq!(run(0), Err(DeadlineExceeded), "{along:?}");
            assert_eq!(run(9).unwrap().len(), data.len() / along.0, "{along:?}");
        }
    }

    #[test]
    fn returns_the_first_maximum() {
        let table = || Tensor::new([2, 3], vec![1, 3, 3, 9, 0, 3_u8]).unwrap();
        assert_eq!(run(-1, table()).unwrap().as_slice::<i64>().unwrap(), [1, 0]);
        assert_eq!(run(0, table()).unwrap().as_slice::<i64>().unwrap(), [1, 0, 0]);
        let nan = Tensor::new([4], vec![1.0, f32::NAN, f32::INFINITY, f32::NAN]).unwrap();
        assert_eq!(run(0, nan).unwrap(), Tensor::scalar(1_i64));
        assert_eq!(run(0, Tensor::new([3], vec![false, true, true]).unwrap()).unwrap(), Tensor::scalar(1_i64));
    }

    #[test]
    fn long_rows_return_the_first_maximum() {
        for length in 1..70 {
            for places in [[0, 0], [length / 3, length / 2], [length / 2, length - 1], [length - 1, length - 1]] {
                let mut row = vec![-1.0_f32; length];
                row[places[1]] = 5.0;
                row[places[0]] = 5.0;
                let of = |row: &[f32]| run(-1, Tensor::new([1, length], row.to_vec()).unwrap()).unwrap();
                assert_eq!(of(&row).as_slice::<i64>().unwrap(), [places[0] as i64], "{row:?}");
                row[places[1]] = f32::NAN;
                assert_eq!(of(&row).as_slice::<i64>().unwrap(), [places[1] as i64], "{row:?}");
            }
        }
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        assert_eq!(run(-1, Tensor::new([0, 3], Vec::<f32>::new()).unwrap()).unwrap().shape(), [0]);
        for (axis, tensor) in [
            (-1, Tensor::new([3, 0], Vec::<f32>::new()).unwrap()),
            (0, Tensor::scalar(1_f32)),
            (2, Tensor::new([1, 1], vec![1_f32]).unwrap()),
            (i64::MIN, Tensor::new([1], vec![1_f32]).unwrap()),
            (0, Tensor::new([1], vec![String::new()]).unwrap()),
        ] {
            assert!(matches!(run(axis, tensor), Err(StepFailure::InvalidInput(_))));
        }
    }

    #[test]
    fn infers_type_and_shape() {
        let infer = |axis, keepdims| {
            let kind = TensorKind::shaped(ElementType::Float32, vec![Dim::Dynamic, Dim::Fixed(3)]);
            crate::reference::build(builtin(), serde_json::json!({"axis": axis, "keepdims": keepdims}))
                .unwrap()
                .infer(&[Some(Kind::Tensor(kind))])
                .map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(-1, false).unwrap(), "tensor int64[?]");
        assert_eq!(infer(0, true).unwrap(), "tensor int64[1, 3]");
        assert!(infer(2, false).is_err());
    }
}
