//! `split`: one tensor → several, along an axis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shape;
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Dim, ElementSet, Group, Kind, Metadata, Port, Signature, StepFailure, Tensor, TensorKind,
    Value,
};

/// Options of `split`: `parts` or `sizes`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// The axis that is cut; negative ones count from the last. Default: 0.
    axis: i64,
    /// Into how many parts of equal size, 1 to 64. The axis must be a multiple of it. No default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    parts: Option<usize>,
    /// The size of each part along the axis, up to 64 of them. One may be -1: it gets the rest. No default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(inner(range(min = -1)), length(min = 1, max = 64))]
    sizes: Option<Vec<i64>>,
}

/// Cuts a tensor along an axis into `part-1`, `part-2` …, as `numpy.split` does. `out: [a, b]` names them.
struct Split {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "split",
        summary: "Cuts a tensor into parts along an axis",
        group: Group::Tensor,
        follows: "NumPy: numpy.split",
        example: "split: { axis: -1, sizes: [4, -1], out: [boxes, scores] }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Split::new(ports::options(options)?)?)),
    }
}

impl Split {
    fn new(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        let count = match (options.parts, &options.sizes) {
            (Some(parts), None) => parts,
            (None, Some(sizes)) => sizes.len(),
            (Some(_), Some(_)) => {
                return Err(BuildError::option("parts", "only one of `parts` and `sizes` can be said"));
            }
            (None, None) => {
                let hint = "`parts: 2` cuts in halves, `sizes: [4, -1]` takes the first 4 and the rest";
                return Err(
                    BuildError::option("parts", "neither `parts` nor `sizes` says where to cut").with_hint(hint)
                );
            }
        };
        let sizes = options.sizes.as_deref().unwrap_or_default();
        if sizes.iter().filter(|size| **size == -1).count() > 1 {
            return Err(BuildError::option("sizes", "only one size can be -1, which is the rest"));
        }
        let any = || Kind::Tensor(TensorKind::of_elements(ElementSet::ANY));
        let part = |number: usize| Port::new(format!("part-{number}"), any());
        let signature = Signature {
            inputs: vec![Port { description: "of any type and shape".into(), ..Port::new("tensor", any()) }],
            outputs: (1..=count).map(part).collect(),
        };
        Ok(BuiltinStep::new(signature, json!(options), Self { options }))
    }

    /// The size of each part of an axis of `size`.
    fn sizes(&self, size: usize) -> Result<Vec<usize>, String> {
        if let Some(parts) = self.options.parts {
            return if size.is_multiple_of(parts) {
                Ok(vec![size / parts; parts])
            } else {
                Err(format!("an axis of size {size} cannot be cut into {parts} equal parts"))
            };
        }
        let sizes = self.options.sizes.as_deref().unwrap_or_default();
        let misfit = || format!("the sizes {sizes:?} do not make up an axis of size {size}");
        let known = sizes.iter().filter_map(|size| usize::try_from(*size).ok());
        let sum = known.fold(0_usize, usize::saturating_add);
        let rest = size.checked_sub(sum).ok_or_else(misfit)?;
        if rest > 0 && !sizes.contains(&-1) {
            return Err(misfit());
        }
        Ok(sizes.iter().map(|size| usize::try_from(*size).unwrap_or(rest)).collect())
    }

    fn kinds(&self, given: &TensorKind, parts: usize) -> Result<Vec<TensorKind>, String> {
        let Some(dims) = &given.shape else { return Ok(vec![TensorKind::of_elements(given.elements); parts]) };
        let axis = shape::normalize_axis(self.options.axis, dims.len())?;
        let sizes: Vec<_> = match (ports::fixed(&dims[axis]), &self.options.sizes) {
            (Some(size), _) => self.sizes(size)?.into_iter().map(Dim::Fixed).collect(),
            (None, Some(sizes)) => {
                sizes.iter().map(|size| usize::try_from(*size).map_or(Dim::Dynamic, Dim::Fixed)).collect()
            }
            (None, None) => vec![Dim::Dynamic; parts],
        };
        let part = |size| {
            let mut dims = dims.clone();
            dims[axis] = size;
            TensorKind::shaped(given.elements, dims)
        };
        Ok(sizes.into_iter().map(part).collect())
    }

    fn cut(&self, given: &Tensor, deadline: &Deadline) -> Result<Vec<Value>, String> {
        let axis = shape::normalize_axis(self.options.axis, given.rank())?;
        let strides = given.strides();
        let whole: Vec<_> = given.shape().iter().copied().zip(strides.iter().copied()).collect();
        let metadata = Metadata { layout: None, geometry: None, transform: None, ..given.metadata };
        let mut at = 0;
        let part = |size| {
            let mut axes = whole.clone();
            axes[axis].0 = size;
            let start = if size == 0 { 0 } else { at * strides[axis] as usize };
            at += size;
            given
                .pick_cancellable(start, &axes, deadline)
                .map(|part| part.with_metadata(metadata).into())
                .map_err(|error| error.to_string())
        };
        self.sizes(given.shape()[axis])?.into_iter().map(part).collect()
    }
}

impl Operation for Split {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        *outputs = self.kinds(given, outputs.len())?.into_iter().map(Kind::Tensor).collect();
        Ok(())
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let parts = self.cut(&tensor, deadline);
        deadline.check_cached()?;
        parts.map_err(|why| StepFailure::InvalidInput(format!("split: {why}")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::unary::testing;
    use gpux_core::{Context, ElementType};

    fn split(options: serde_json::Value, tensor: Tensor) -> Result<Vec<Tensor>, StepFailure> {
        let step = testing::build(builtin(), options).unwrap();
        let parts = step.run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(parts.iter().map(|part| part.as_tensor().unwrap().clone()).collect())
    }

    #[test]
    fn parts_cover_the_axis() {
        let table = || Tensor::new([2, 3], vec![1, 2, 3, 4, 5, 6]).unwrap();
        let parts = split(json!({"axis": 1, "sizes": [1, -1]}), table()).unwrap();
        assert_eq!(parts[0], Tensor::new([2, 1], vec![1, 4]).unwrap());
        assert_eq!(parts[1], Tensor::new([2, 2], vec![2, 3, 5, 6]).unwrap());
        assert_eq!(split(json!({"parts": 3, "axis": -1}), table()).unwrap().len(), 3);
        assert_eq!(split(json!({"sizes": [0, 2, 0]}), table()).unwrap()[2].shape(), [0, 3]);
        let empty = Tensor::new([0, 2], Vec::<f32>::new()).unwrap();
        assert_eq!(split(json!({"parts": 2}), empty).unwrap()[1].shape(), [0, 2]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let row = || Tensor::new([5], vec![0_u8; 5]).unwrap();
        for options in [
            json!({"parts": 2}),
            json!({"sizes": [3, 3]}),
            json!({"sizes": [i64::MAX, i64::MAX]}),
            json!({"sizes": [4]}),
            json!({"sizes": [6, -1]}),
            json!({"parts": 1, "axis": 1}),
        ] {
            assert!(matches!(split(options, row()), Err(StepFailure::InvalidInput(_))));
        }
        assert!(split(json!({"parts": 1}), Tensor::scalar(1_u8)).is_err());
        for options in [
            json!({}),
            json!({"parts": 0}),
            json!({"parts": 65}),
            json!({"parts": 1, "sizes": [1]}),
            json!({"sizes": []}),
            json!({"sizes": [-1, -1]}),
            json!({"sizes": [-2]}),
        ] {
            assert!(testing::build(builtin(), options).is_err());
        }
    }

    #[test]
    fn infers_each_part() {
        let step = testing::build(builtin(), json!({"axis": 1, "sizes": [4, -1]})).unwrap();
        let infer = |dims: &[Dim]| step.infer(&[Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims)))]);
        let kinds = infer(&[Dim::Dynamic, Dim::Fixed(84)]).unwrap();
        assert_eq!(kinds[1].to_string(), "tensor float32[?, 80]");
        assert_eq!(infer(&[Dim::Fixed(2), Dim::Dynamic]).unwrap()[0].to_string(), "tensor float32[2, 4]");
        assert!(infer(&[Dim::Fixed(2), Dim::Fixed(3)]).is_err());
        assert!(infer(&[Dim::Fixed(2)]).is_err());
    }
}
