//! `slice`: a part of a tensor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::slice_notation::{self, AxisSlice};
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{BuildError, Builtin, Dim, Group, Metadata, Tensor, TensorKind};

/// Options of `slice`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// What to keep of each axis, in NumPy's notation, axes separated by commas: `start:stop:step`, where each may be
    /// left out and negative ones count from the end; a single number takes one place and removes the axis; `...`
    /// stands for whole axes. `":, 0"` is the first column, `"..., ::-1"` turns the last axis round. Required.
    index: Index,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Index {
    Place(i64),
    Text(String),
}

#[derive(Clone, Debug, Serialize)]
struct Slice {
    index: String,
    #[serde(skip)]
    parts: Vec<AxisSlice>,
}

/// Most bytes of an index: 64 axes need fewer.
const MAX_INDEX: usize = 8 << 10;

/// Keeps a part of a tensor, by the rules of NumPy's basic indexing.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "slice",
        summary: "Keeps a part of a tensor",
        group: Group::Tensor,
        follows: "NumPy: basic indexing",
        example: "slice: { index: \":, 1:-1\" }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| {
            let slice = Slice::new(ports::options(options)?)?;
            Ok(unary::step(slice, "of any type and shape", "the part that is kept"))
        },
    }
}

impl Slice {
    fn new(options: Options) -> Result<Self, BuildError> {
        let index = match options.index {
            Index::Place(place) => place.to_string(),
            Index::Text(text) => text,
        };
        let refuse = |why: String| BuildError::option("index", why).with_hint("write as in NumPy: `1:-1, ::2, ..., 0`");
        if index.len() > MAX_INDEX {
            return Err(refuse(format!("`index` is {} bytes long", index.len())));
        }
        let parts = slice_notation::parse(&index).map_err(refuse)?;
        Ok(Self { index, parts })
    }

    /// One part for each axis.
    fn parts(&self, rank: usize) -> Result<Vec<AxisSlice>, String> {
        let named = self.parts.iter().filter(|part| **part != AxisSlice::Rest).count();
        let Some(rest) = rank.checked_sub(named) else {
            return Err(format!("`{}` names {named} axes, but there are {rank}", self.index));
        };
        let at = self.parts.iter().position(|part| *part == AxisSlice::Rest).unwrap_or(self.parts.len());
        let after = self.parts.get(at + 1..).unwrap_or_default();
        Ok([&self.parts[..at], &vec![AxisSlice::WHOLE; rest], after].concat())
    }
}

fn place(place: i64, axis: usize, size: usize) -> Result<usize, String> {
    let found = ports::axis(place, size);
    found.ok_or_else(|| format!("there is no place {place} on axis {axis}, whose size is {size}"))
}

impl TensorOperation for Slice {
    const NAME: &'static str = "slice";

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        let Some(dims) = &given.shape else { return Ok(TensorKind::of_elements(given.elements)) };
        let mut shape = Vec::with_capacity(dims.len());
        for (axis, (part, dim)) in self.parts(dims.len())?.into_iter().zip(dims).enumerate() {
            match (part, ports::fixed(dim)) {
                (AxisSlice::At(at), Some(size)) => drop(place(at, axis, size)?),
                (AxisSlice::At(_), None) => {}
                (AxisSlice::WHOLE | AxisSlice::Rest, _) => shape.push(dim.clone()),
                (AxisSlice::Range { start, stop, step }, Some(size)) => {
                    shape.push(Dim::Fixed(slice_notation::places(start, stop, step, size).1));
                }
                (AxisSlice::Range { .. }, None) => shape.push(Dim::Dynamic),
            }
        }
        Ok(TensorKind::shaped(given.elements, shape))
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let strides = given.strides();
        let (mut start, mut axes) = (0, Vec::with_capacity(given.rank()));
        let parts = self.parts(given.rank())?;
        let whole = parts.iter().all(|part| *part == AxisSlice::WHOLE);
        for (axis, (part, size)) in parts.into_iter().zip(given.shape()).enumerate() {
            let (first, taken) = match part {
                AxisSlice::At(at) => (place(at, axis, *size)?, None),
                AxisSlice::Range { start, stop, step } => {
                    let (first, count) = slice_notation::places(start, stop, step, *size);
                    // The step is only taken where there is a next place.
                    let step = if count > 1 { step as isize * strides[axis] } else { 0 };
                    (first, Some((count, step)))
                }
                AxisSlice::Rest => (0, Some((*size, strides[axis]))),
            };
            start += first * strides[axis] as usize;
            axes.extend(taken);
        }
        if whole {
            return Ok(given);
        }
        // The layout no longer holds.
        let metadata = Metadata { layout: None, geometry: None, transform: None, ..given.metadata };
        given
            .pick_cancellable(start, &axes, deadline)
            .map(|tensor| tensor.with_metadata(metadata))
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::ElementType;

    fn slice(index: serde_json::Value, shape: &[usize]) -> Result<Tensor, String> {
        let count: usize = shape.iter().product();
        let tensor = Tensor::new(shape, (0..count as i32).collect::<Vec<_>>()).unwrap();
        testing::apply(builtin(), json!({ "index": index }), tensor)
    }

    #[test]
    fn slices_as_numpy_does() {
        let given = slice(json!("..., ::-2"), &[2, 3]).unwrap();
        assert_eq!((given.shape(), given.as_slice::<i32>().unwrap()), ([2, 2].as_slice(), [2, 0, 5, 3].as_slice()));
        assert_eq!(slice(json!(-1), &[2, 3]).unwrap().as_slice::<i32>().unwrap(), [3, 4, 5]);
        assert_eq!(slice(json!("1, 1"), &[2, 3]).unwrap().shape(), [0_usize; 0]);
        assert_eq!(slice(json!("5:"), &[2, 3]).unwrap().shape(), [0, 3]);
        assert_eq!(slice(json!("..."), &[]).unwrap().shape(), [0_usize; 0]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        assert!(slice(json!("0, 0, 0"), &[2, 3]).unwrap_err().contains("names 3 axes"));
        assert!(slice(json!(2), &[2, 3]).unwrap_err().contains("no place 2 on axis 0"));
        assert!(slice(json!(0), &[0]).is_err());
        assert!(slice(json!(0), &[]).is_err());
        assert_eq!(slice(json!("::9223372036854775807"), &[2, 3]).unwrap().shape(), [1, 3]);
        assert_eq!(slice(json!("::-9223372036854775808"), &[2, 3]).unwrap().shape(), [1, 3]);
        for index in [json!("::0"), json!(""), json!("1:2:3:4"), json!("x"), json!("1,".repeat(9999))] {
            assert!(testing::build(builtin(), json!({ "index": index })).is_err());
        }
    }

    #[test]
    fn infers_shape() {
        let plan = |index: &str| {
            let dims = vec![Dim::Named("N".into()), Dim::Fixed(5), Dim::Fixed(3)];
            testing::plan(builtin(), json!({ "index": index }), TensorKind::shaped(ElementType::Float32, dims))
        };
        assert_eq!(plan("..., 0").unwrap(), "tensor float32[N, 5]");
        assert_eq!(plan("1:, 1:-1").unwrap(), "tensor float32[?, 3, 3]");
        assert!(plan("0, 7").unwrap_err().contains("no place 7"));
    }
}
