//! `transpose`: the axes in another order.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{BuildError, Builtin, Dim, Group, Layout, Metadata, Tensor, TensorKind};

/// Options of `transpose`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Transpose {
    /// Which axis of the given tensor each axis of the result is, each named once; negative ones count
    /// from the last. `[2, 0, 1]` puts the last first. Default: all in reverse order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    axes: Option<Vec<i64>>,
}

/// Puts the axes into another order, as `numpy.transpose` does. A picture's layout is kept up with.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "transpose",
        summary: "Puts the axes into another order",
        group: Group::Tensor,
        follows: "NumPy: numpy.transpose",
        example: "transpose: { axes: [2, 0, 1] }",
        schema: || schemars::schema_for!(Transpose),
        build: |options, _| {
            let transpose: Transpose = ports::options(options)?;
            if let Some(axes) = &transpose.axes {
                // Whether each axis is named once shows without the tensor, but for negative names.
                transpose.order(axes.len()).map_err(|why| BuildError::option("axes", why))?;
            }
            Ok(unary::step(transpose, "of any type and shape", "with its axes in the new order"))
        },
    }
}

impl Transpose {
    fn order(&self, rank: usize) -> Result<Vec<usize>, String> {
        let Some(axes) = &self.axes else { return Ok((0..rank).rev().collect()) };
        if axes.len() != rank {
            return Err(format!("{} axes are named, but there are {rank}", axes.len()));
        }
        super::shape::normalize_axes(axes, rank)?;
        Ok(axes.iter().filter_map(|axis| ports::axis(*axis, rank)).collect())
    }
}

/// The layout of an image after the order.
fn layout(given: Option<Layout>, order: &[usize]) -> Option<Layout> {
    match (given?, order) {
        (layout, [0, 1, 2]) => Some(layout),
        (Layout::Hwc, [2, 0, 1]) => Some(Layout::Chw),
        (Layout::Chw, [1, 2, 0]) => Some(Layout::Hwc),
        _ => None,
    }
}

impl TensorOperation for Transpose {
    const NAME: &'static str = "transpose";

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        let Some(dims) = &given.shape else {
            let shape = self.axes.as_ref().map(|axes| vec![Dim::Dynamic; axes.len()]);
            return Ok(TensorKind { elements: given.elements, shape, layout: None });
        };
        let order = self.order(dims.len())?;
        let shape = order.iter().map(|axis| dims[*axis].clone()).collect();
        Ok(TensorKind { elements: given.elements, shape: Some(shape), layout: layout(given.layout, &order) })
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let order = self.order(given.rank())?;
        let metadata = Metadata { layout: layout(given.metadata.layout, &order), ..given.metadata };
        if moves_nothing(&order, given.shape()) {
            let shape: Vec<_> = order.iter().map(|axis| given.shape()[*axis]).collect();
            return given.reshape(shape).map(|tensor| tensor.with_metadata(metadata)).map_err(|why| why.to_string());
        }
        given
            .permute_cancellable(&order, deadline)
            .map(|tensor| tensor.with_metadata(metadata))
            .map_err(|error| error.to_string())
    }
}

/// Whether only axes of one element change places.
fn moves_nothing(order: &[usize], shape: &[usize]) -> bool {
    let long: Vec<_> = order.iter().filter(|axis| shape[**axis] != 1).collect();
    long.is_sorted()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::ElementType;

    #[test]
    fn transpose_keeps_image_metadata() {
        let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
        let picture = || Tensor::new([2, 2, 3], (0..12_u8).collect()).unwrap().with_metadata(metadata);
        let planes = testing::apply(builtin(), json!({"axes": [2, 0, 1]}), picture()).unwrap();
        assert_eq!(planes.metadata.layout, Some(Layout::Chw));
        assert_eq!(planes.as_slice::<u8>().unwrap()[..4], [0, 3, 6, 9]);
        let back = testing::apply(builtin(), json!({"axes": [1, 2, 0]}), planes).unwrap();
        assert_eq!(back, picture());
        assert_eq!(testing::apply(builtin(), json!({}), picture()).unwrap().metadata.layout, None);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let apply = |axes: serde_json::Value, tensor| testing::apply(builtin(), json!({ "axes": axes }), tensor);
        assert_eq!(apply(json!(null), Tensor::scalar(1_f32)).unwrap().rank(), 0);
        assert_eq!(apply(json!([1, 0]), Tensor::new([0, 3], vec![0_u8; 0]).unwrap()).unwrap().shape(), [3, 0]);
        assert_eq!(apply(json!([-1, 0]), Tensor::new([1, 3], vec![0_u8; 3]).unwrap()).unwrap().shape(), [3, 1]);
        assert!(apply(json!([0, 1]), Tensor::scalar(1_f32)).unwrap_err().contains("2 axes are named"));
        assert!(testing::build(builtin(), json!({"axes": [0, -2]})).err().unwrap().message.contains("twice"));
        assert!(testing::build(builtin(), json!({"axes": [0, 2]})).is_err());
    }

    #[test]
    fn infers_shape() {
        let given = TensorKind::image(ElementType::Uint8, None, Some(4), Some(3));
        let plan = |options| testing::plan(builtin(), options, given.clone());
        assert_eq!(plan(json!({"axes": [2, 0, 1]})).unwrap(), "tensor uint8[3, ?, 4] CHW");
        assert!(plan(json!({"axes": [1, 0]})).unwrap_err().contains("there are 3"));
    }
}
