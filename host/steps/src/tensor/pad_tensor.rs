//! `pad-tensor`: more elements at the ends of the axes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::shape::{check_size, longest_text};
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::with_elements;
use gpux_core::{
    BuildError, Builtin, Dim, ElementType, Group, Kind, Metadata, Tensor, TensorElement, TensorKind, element_count,
    from_json,
};

/// Options of `pad-tensor`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Pad {
    /// How many elements are added: one number for both ends of every axis, or `[before, after]` for each axis. Required.
    pads: Pads,
    /// With what: `constant` (`value`), `edge` (the outermost element), `reflect` (mirrored, the outermost
    /// element not repeated). Default: constant.
    #[serde(default)]
    mode: Mode,
    /// What `constant` adds; it must fit the element type. Default: 0, false or an empty text.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    value: Json,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Pads {
    All(u32),
    Each(Vec<[u32; 2]>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Mode {
    #[default]
    Constant,
    Edge,
    Reflect,
}

/// Adds elements at the ends of the axes, as `numpy.pad` does. For pictures see `pad`.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "pad-tensor",
        summary: "Adds elements at the ends of the axes",
        group: Group::Tensor,
        follows: "NumPy: numpy.pad",
        example: "pad-tensor: { pads: [[0, 0], [0, 8]] }",
        schema: || schemars::schema_for!(Pad),
        build: |options, _| {
            let pad: Pad = ports::options(options)?;
            if pad.mode != Mode::Constant && !pad.value.is_null() {
                return Err(BuildError::option("value", "only `mode: constant` adds a value"));
            }
            if pad.value.is_array() || pad.value.is_object() {
                return Err(BuildError::option("value", "the value is one number, bool or text"));
            }
            Ok(unary::step(pad, "of any type and shape", "the tensor with what was added"))
        },
    }
}

impl Pad {
    fn pads(&self, rank: usize) -> Result<Vec<[usize; 2]>, String> {
        let pads = match &self.pads {
            Pads::All(pad) => vec![[*pad; 2]; rank],
            Pads::Each(pads) if pads.len() == rank => pads.clone(),
            Pads::Each(pads) => return Err(format!("`pads` has {} axes, but there are {rank}", pads.len())),
        };
        Ok(pads.into_iter().map(|pad| pad.map(|pad| pad as usize)).collect())
    }

    /// The elements that `constant` adds.
    fn value<T: TensorElement>(&self) -> Result<T, String> {
        if self.value.is_null() {
            return Ok(T::default());
        }
        let kind = Kind::Tensor(TensorKind::shaped(T::TYPE, Vec::new()));
        let value = from_json(self.value.clone(), &kind).map_err(|error| format!("`value`: {error}"))?;
        let value = value.as_tensor().and_then(|tensor| tensor.as_slice::<T>()?.first().cloned());
        value.ok_or_else(|| "`value` is not one value".into())
    }

    /// Which place of an axis of `size` stands at each place of the padded axis; `None` for the constant.
    fn places(&self, size: usize, [before, after]: [usize; 2]) -> Vec<Option<usize>> {
        let place = |at: usize| match self.mode {
            _ if (before..before + size).contains(&at) => Some(at - before),
            Mode::Constant => None,
            Mode::Edge => Some(at.saturating_sub(before).min(size - 1)),
            Mode::Reflect => Some(mirror_index(at as i64 - before as i64, size as i64)),
        };
        (0..before + size + after).map(place).collect()
    }

    fn shape(&self, given: &[usize]) -> Result<Vec<usize>, String> {
        let pads = self.pads(given.len())?;
        for (axis, (size, [before, after])) in given.iter().zip(&pads).enumerate() {
            if *size == 0 && before + after > 0 && self.mode != Mode::Constant {
                return Err(format!("axis {axis} is empty: there is nothing to add but a constant"));
            }
        }
        Ok(given.iter().zip(pads).map(|(size, [before, after])| size.saturating_add(before + after)).collect())
    }

    fn pad_elements<T: TensorElement>(
        &self,
        data: &[T],
        given: &Tensor,
        shape: Vec<usize>,
        deadline: &Deadline,
    ) -> Result<Tensor, String> {
        let value = self.value::<T>()?;
        let pads = self.pads(given.rank())?;
        // The axes behind the last padded one are copied as one run.
        let last = pads.iter().rposition(|[before, after]| before + after > 0).unwrap_or(0);
        let piece: usize = given.shape()[last + 1..].iter().product();
        let places: Vec<_> = given.shape().iter().zip(&pads).map(|(size, pad)| self.places(*size, *pad)).collect();
        let (outer, row) = (&places[..last], &places[last]);
        let (before, size) = (pads[last][0], given.shape()[last]);
        let mut result = Vec::with_capacity(element_count(&shape).unwrap_or(0));
        let mut fill = |from: Option<usize>| {
            // After the deadline, the result is discarded.
            if deadline.check_after(row.len() * piece).is_err() {
                return;
            }
            let Some(from) = from else {
                result.extend(std::iter::repeat_n(&value, row.len() * piece).cloned());
                return;
            };
            let ends = |places: &[Option<usize>], result: &mut Vec<T>| {
                for place in places {
                    match place {
                        Some(place) => result.extend_from_slice(&data[from + place * piece..][..piece]),
                        None => result.extend(std::iter::repeat_n(&value, piece).cloned()),
                    }
                }
            };
            ends(&row[..before], &mut result);
            result.extend_from_slice(&data[from..from + size * piece]);
            ends(&row[before + size..], &mut result);
        };
        rows(outer, &given.strides(), Some(0), &mut fill);
        deadline.check_cached()?;
        Tensor::new(shape, result).map_err(|error| error.to_string())
    }
}

/// Calls `fill` for each row with where it starts; `None` for a row of nothing but the constant.
fn rows(places: &[Vec<Option<usize>>], strides: &[isize], from: Option<usize>, fill: &mut impl FnMut(Option<usize>)) {
    let Some((first, rest)) = places.split_first() else { return fill(from) };
    for place in first {
        let from = from.zip(*place).map(|(from, place)| from + place * strides[0] as usize);
        rows(rest, &strides[1..], from, fill);
    }
}

/// The place that a mirror at both ends shows: `… 2 1 | 0 1 2 | 1 0 1 …`.
fn mirror_index(at: i64, size: i64) -> usize {
    let period = (2 * (size - 1)).max(1);
    let at = at.rem_euclid(period);
    at.min(period - at).min(size - 1) as usize
}

impl TensorOperation for Pad {
    const NAME: &'static str = "pad-tensor";

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        if let Some(element) = given.element() {
            let tensor = Tensor::zeros(element, Vec::new()).map_err(|error| error.to_string())?;
            with_elements!(tensor.data(), data => self.fits_type(data))?;
        }
        let Some(dims) = &given.shape else { return Ok(TensorKind::of_elements(given.elements)) };
        let pads = self.pads(dims.len())?;
        let dim = |(dim, [before, after]): (&Dim, [usize; 2])| match ports::fixed(dim) {
            Some(size) => Dim::Fixed(size.saturating_add(before + after)),
            None if before + after == 0 => dim.clone(),
            None => Dim::Dynamic,
        };
        Ok(TensorKind::shaped(given.elements, dims.iter().zip(pads).map(dim).collect::<Vec<_>>()))
    }

    fn buffers(&self, given: &Tensor) -> usize {
        let Ok(shape) = self.shape(given.shape()) else { return 0 };
        let places = shape.iter().fold(0_usize, |sum, size| sum.saturating_add(*size));
        let text = element_count(&shape).unwrap_or(0).saturating_mul(self.longest(given));
        places.saturating_mul(size_of::<Option<usize>>()).saturating_add(text)
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let shape = self.shape(given.shape())?;
        if shape == given.shape() {
            return Ok(given);
        }
        check_size(given.element(), &shape, self.longest(&given))?;
        let metadata = Metadata { layout: None, geometry: None, transform: None, ..given.metadata };
        let padded = with_elements!(given.data(), data => self.pad_elements(data, &given, shape, deadline))?;
        Ok(padded.with_metadata(metadata))
    }
}

impl Pad {
    fn fits_type<T: TensorElement>(&self, _: &[T]) -> Result<(), String> {
        self.value::<T>().map(drop)
    }

    /// Bytes of the longest text of the result.
    fn longest(&self, given: &Tensor) -> usize {
        match given.element() {
            ElementType::String => longest_text(given).max(self.value.as_str().map_or(0, str::len)),
            _ => 0,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;

    fn pad(options: Json, tensor: Tensor) -> Result<Tensor, String> {
        testing::apply(builtin(), options, tensor)
    }

    fn row() -> Tensor {
        Tensor::new([3], vec![1_i32, 2, 3]).unwrap()
    }

    #[test]
    fn pads_as_numpy_does() {
        let numbers = |options| pad(options, row()).unwrap().as_slice::<i32>().unwrap().to_vec();
        assert_eq!(numbers(json!({"pads": 1})), [0, 1, 2, 3, 0]);
        assert_eq!(numbers(json!({"pads": [[0, 2]], "value": -1})), [1, 2, 3, -1, -1]);
        assert_eq!(numbers(json!({"pads": [[2, 1]], "mode": "edge"})), [1, 1, 1, 2, 3, 3]);
        assert_eq!(numbers(json!({"pads": [[5, 2]], "mode": "reflect"})), [2, 1, 2, 3, 2, 1, 2, 3, 2, 1]);
        let one = Tensor::new([1], vec![7_u8]).unwrap();
        assert_eq!(pad(json!({"pads": 2, "mode": "reflect"}), one).unwrap().as_slice::<u8>().unwrap(), [7; 5]);
        let texts = Tensor::new([1], vec!["a".to_owned()]).unwrap();
        let texts = pad(json!({"pads": [[0, 1]], "value": "b"}), texts).unwrap();
        assert_eq!(texts.as_slice::<String>().unwrap(), ["a", "b"]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        assert_eq!(pad(json!({"pads": 3}), Tensor::scalar(1_u8)).unwrap(), Tensor::scalar(1_u8));
        let empty = || Tensor::new([0, 2], Vec::<u8>::new()).unwrap();
        assert_eq!(pad(json!({"pads": 1}), empty()).unwrap().as_slice::<u8>().unwrap(), [0; 8]);
        assert!(pad(json!({"pads": 1, "mode": "edge"}), empty()).unwrap_err().contains("axis 0 is empty"));
        assert_eq!(pad(json!({"pads": [[0, 0], [1, 1]], "mode": "edge"}), empty()).unwrap().shape(), [0, 4]);
        assert!(pad(json!({"pads": u32::MAX}), row()).unwrap_err().contains("1 GiB"));
        assert!(pad(json!({"pads": [[0, 1], [0, 1]]}), row()).unwrap_err().contains("2 axes"));
        assert!(pad(json!({"pads": 1, "value": 0.5}), row()).unwrap_err().contains("0.5 is not a int32"));
        assert!(pad(json!({"pads": 1, "value": "x"}), row()).is_err());
        for options in [
            json!({}),
            json!({"pads": -1}),
            json!({"pads": 1, "mode": "edge", "value": 1}),
            json!({"pads": 1, "value": [1]}),
            json!({"pads": 1, "mode": "wrap"}),
        ] {
            assert!(testing::build(builtin(), options).is_err());
        }
    }

    #[test]
    fn infers_shape() {
        let given = TensorKind::shaped(ElementType::Float32, vec![Dim::Named("N".into()), Dim::Fixed(3)]);
        let plan = |options| testing::plan(builtin(), options, given.clone());
        assert_eq!(plan(json!({"pads": [[0, 0], [1, 2]]})).unwrap(), "tensor float32[N, 6]");
        assert_eq!(plan(json!({"pads": 1})).unwrap(), "tensor float32[?, 5]");
        assert!(plan(json!({"pads": [[0, 0]]})).is_err());
        assert!(plan(json!({"pads": 1, "value": "x"})).is_err());
    }
}
