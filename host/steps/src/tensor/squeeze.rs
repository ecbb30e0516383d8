//! `squeeze`: without axes of one element.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::axes_option::Axes;
use super::shape;
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, Dim, Group, Metadata, Tensor, TensorKind};

/// Options of `squeeze`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Squeeze {
    /// The axes to remove, each of size 1: one, or a list; negative ones count from the last.
    /// Default: every axis of size 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    axes: Option<Axes>,
}

/// Removes axes of size 1, as `numpy.squeeze` does, without copying the elements.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "squeeze",
        summary: "Removes axes of size 1",
        group: Group::Tensor,
        follows: "NumPy: numpy.squeeze",
        example: "squeeze: { axes: 0 }",
        schema: || schemars::schema_for!(Squeeze),
        build: |options, _| {
            let squeeze: Squeeze = ports::options(options)?;
            Ok(unary::step(squeeze, "of any type and shape", "without these axes"))
        },
    }
}

impl Squeeze {
    /// Which axes go; `None` where that is not known. The size of each is `None` where it is not.
    fn removed_axes(&self, sizes: &[Option<usize>]) -> Result<Option<Vec<usize>>, String> {
        let Some(axes) = &self.axes else {
            let all = sizes.iter().all(Option::is_some);
            return Ok(all.then(|| (0..sizes.len()).filter(|axis| sizes[*axis] == Some(1)).collect()));
        };
        let axes = shape::normalize_axes(axes.list(), sizes.len())?;
        match axes.iter().find_map(|axis| sizes[*axis].filter(|size| *size != 1).map(|size| (axis, size))) {
            Some((axis, size)) => Err(format!("axis {axis} has size {size}, but only axes of size 1 can go")),
            None => Ok(Some(axes)),
        }
    }
}

fn rest<T: Clone>(shape: &[T], gone: &[usize]) -> Vec<T> {
    let kept = shape.iter().enumerate().filter(|(axis, _)| !gone.contains(axis));
    kept.map(|(_, size)| size.clone()).collect()
}

impl TensorOperation for Squeeze {
    const NAME: &'static str = "squeeze";

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        let shape = match &given.shape {
            None => None,
            Some(dims) => {
                let sizes: Vec<_> = dims.iter().map(ports::fixed).collect();
                self.removed_axes(&sizes)?.map(|gone| rest::<Dim>(dims, &gone))
            }
        };
        Ok(TensorKind { elements: given.elements, shape, layout: None })
    }

    fn apply(&self, given: Tensor, _: &Deadline) -> Result<Tensor, String> {
        let sizes: Vec<_> = given.shape().iter().copied().map(Some).collect();
        let gone = self.removed_axes(&sizes)?.unwrap_or_default();
        let shape = rest(given.shape(), &gone);
        let metadata = Metadata { layout: None, ..given.metadata };
        given.reshape(shape).map(|tensor| tensor.with_metadata(metadata)).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::ElementType;

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let apply = |axes: serde_json::Value, shape: &[usize]| {
            let tensor = Tensor::zeros(ElementType::Uint8, shape).unwrap();
            testing::apply(builtin(), json!({ "axes": axes }), tensor).map(|tensor| tensor.shape().to_vec())
        };
        assert_eq!(apply(json!(null), &[1, 2, 1]).unwrap(), [2]);
        assert_eq!(apply(json!(null), &[1, 1]).unwrap(), [0_usize; 0]);
        assert_eq!(apply(json!(null), &[]).unwrap(), [0_usize; 0]);
        assert_eq!(apply(json!(null), &[0, 1]).unwrap(), [0]);
        assert_eq!(apply(json!(-1), &[1, 2, 1]).unwrap(), [1, 2]);
        assert_eq!(apply(json!([]), &[1, 2]).unwrap(), [1, 2]);
        assert!(apply(json!(1), &[1, 2, 1]).unwrap_err().contains("axis 1 has size 2"));
        assert!(apply(json!([0, -3]), &[1, 2, 1]).unwrap_err().contains("twice"));
        assert!(apply(json!(0), &[]).unwrap_err().contains("single number"));
    }

    #[test]
    fn infers_removed_axes() {
        let plan =
            |options, dims: &[Dim]| testing::plan(builtin(), options, TensorKind::shaped(ElementType::Float32, dims));
        let open = [Dim::Dynamic, Dim::Fixed(1), Dim::Fixed(4)];
        assert_eq!(plan(json!({"axes": 0}), &open).unwrap(), "tensor float32[1, 4]");
        assert_eq!(plan(json!({}), &open).unwrap(), "tensor float32");
        assert_eq!(plan(json!({}), &[Dim::Fixed(1), Dim::Fixed(4)]).unwrap(), "tensor float32[4]");
        assert!(plan(json!({"axes": 2}), &open).unwrap_err().contains("axis 2 has size 4"));
    }
}
