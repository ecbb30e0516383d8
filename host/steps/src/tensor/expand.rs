//! `expand`: new axes, and elements repeated along them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::axes_option::Axes;
use super::shape::{self, MAX_RANK, check_size, longest_text};
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{BuildError, Builtin, Dim, Group, Metadata, Tensor, TensorKind, element_count};

/// Options of `expand`: at least one of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Expand {
    /// Where the result has new axes of size 1: one place, or a list; negative ones count from the
    /// result's last. `0` adds a batch axis. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    axes: Option<Axes>,
    /// The shape to repeat the elements to: axes of size 1 are repeated, missing ones are added in front,
    /// -1 keeps a size. This copies; new axes alone do not. Default: nothing is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(inner(range(min = -1)), length(max = 64))]
    broadcast: Option<Vec<i64>>,
}

/// Adds axes as `numpy.expand_dims` does, and then repeats as `numpy.broadcast_to` does.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "expand",
        summary: "Adds axes, and repeats elements along axes of size 1",
        group: Group::Tensor,
        follows: "NumPy: numpy.expand_dims, numpy.broadcast_to",
        example: "expand: { axes: 0 }",
        schema: || schemars::schema_for!(Expand),
        build: |options, _| {
            let expand: Expand = ports::options(options)?;
            if expand.axes.is_none() && expand.broadcast.is_none() {
                return Err(BuildError::option("axes", "neither `axes` nor `broadcast` says what to do")
                    .with_hint("`expand: { axes: 0 }` adds a batch axis"));
            }
            Ok(unary::step(expand, "of any type and shape", "with more axes, or larger ones"))
        },
    }
}

impl Expand {
    /// The shape with the new axes, each of them `one`.
    fn with_axes<T: Clone>(&self, given: &[T], one: &T) -> Result<Vec<T>, String> {
        let Some(new) = &self.axes else { return Ok(given.to_vec()) };
        let rank = given.len() + new.list().len();
        if rank > MAX_RANK {
            return Err(format!("the result would have {rank} axes, but at most {MAX_RANK} are made"));
        }
        let places = shape::normalize_axes(new.list(), rank)?;
        let mut old = given.iter();
        let dim = |axis| if places.contains(&axis) { Some(one) } else { old.next() };
        Ok((0..rank).map_while(dim).cloned().collect())
    }

    /// The size of each axis after repeating; `None` where it is not known.
    fn repeat_shape(&self, given: &[Option<usize>]) -> Result<Vec<Option<usize>>, String> {
        let Some(wanted) = &self.broadcast else { return Ok(given.to_vec()) };
        let Some(added) = wanted.len().checked_sub(given.len()) else {
            return Err(format!("`broadcast` names {} sizes, but there are {} axes", wanted.len(), given.len()));
        };
        let size = |(axis, size): (usize, &i64)| match (axis.checked_sub(added).map(|axis| given[axis]), *size) {
            (None, -1) => Err(format!("size {axis} of `broadcast` is -1, but there is no such axis yet")),
            (Some(given), -1) => Ok(given),
            (Some(Some(given)), size) if given != 1 && given != size as usize => {
                Err(format!("an axis of size {given} cannot be repeated to {size}: only those of size 1 can"))
            }
            (_, size) => Ok(Some(size as usize)),
        };
        wanted.iter().enumerate().map(size).collect()
    }
}

impl TensorOperation for Expand {
    const NAME: &'static str = "expand";

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        let Some(dims) = &given.shape else { return Ok(TensorKind::of_elements(given.elements)) };
        let dims = self.with_axes(dims, &Dim::Fixed(1))?;
        let sizes: Vec<_> = dims.iter().map(ports::fixed).collect();
        let repeated = self.repeat_shape(&sizes)?;
        let added = repeated.len() - dims.len();
        let dim = |(axis, size): (usize, Option<usize>)| match size {
            Some(size) => Dim::Fixed(size),
            None => axis.checked_sub(added).map_or(Dim::Dynamic, |axis| dims[axis].clone()),
        };
        Ok(TensorKind::shaped(given.elements, repeated.into_iter().enumerate().map(dim).collect::<Vec<_>>()))
    }

    fn buffers(&self, given: &Tensor) -> usize {
        let made = || {
            let sizes: Vec<_> = self.with_axes(given.shape(), &1).ok()?.into_iter().map(Some).collect();
            let made: Option<Vec<_>> = self.repeat_shape(&sizes).ok()?.into_iter().collect();
            element_count(&made?)
        };
        made().unwrap_or(0).saturating_mul(longest_text(given))
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let metadata = Metadata { layout: None, ..given.metadata };
        let shape = self.with_axes(given.shape(), &1)?;
        let sizes: Vec<_> = shape.iter().copied().map(Some).collect();
        let repeated: Vec<_> = self.repeat_shape(&sizes)?.into_iter().flatten().collect();
        let given = given.reshape(shape).map_err(|error| error.to_string())?.with_metadata(metadata);
        if repeated == given.shape() {
            return Ok(given);
        }
        check_size(given.element(), &repeated, longest_text(&given))?;
        let added = repeated.len() - given.rank();
        let strides = given.strides();
        let axis = |(axis, size): (usize, usize)| match axis.checked_sub(added) {
            Some(axis) if given.shape()[axis] == size => (size, strides[axis]),
            _ => (size, 0),
        };
        let axes: Vec<_> = repeated.into_iter().enumerate().map(axis).collect();
        given.pick_cancellable(0, &axes, deadline).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::ElementType;

    fn expand(options: serde_json::Value, tensor: Tensor) -> Result<Tensor, String> {
        testing::apply(builtin(), options, tensor)
    }

    #[test]
    fn new_axes_share_memory() {
        let tensor = Tensor::new([2], vec![1_f32, 2.0]).unwrap();
        let same = expand(json!({"axes": [0, -1]}), tensor.clone()).unwrap();
        assert_eq!(same.shape(), [1, 2, 1]);
        assert_eq!(same.as_slice::<f32>().unwrap().as_ptr(), tensor.as_slice::<f32>().unwrap().as_ptr());
        assert_eq!(expand(json!({"axes": 0}), Tensor::scalar(1_u8)).unwrap().shape(), [1]);
    }

    #[test]
    fn repeats_elements() {
        let column = Tensor::new([2, 1], vec![1_u8, 2]).unwrap();
        let table = expand(json!({"broadcast": [2, -1, 3]}), column).unwrap();
        assert_eq!(table.as_slice::<u8>().unwrap(), [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
        let texts = expand(json!({"broadcast": [2]}), Tensor::scalar("x".to_owned())).unwrap();
        assert_eq!(texts.as_slice::<String>().unwrap(), ["x", "x"]);
        assert_eq!(expand(json!({"broadcast": [0]}), Tensor::scalar(1_u8)).unwrap().shape(), [0]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let one = || Tensor::new([1], vec![1_f32]).unwrap();
        assert!(expand(json!({"broadcast": [1_u64 << 40]}), one()).unwrap_err().contains("1 GiB"));
        assert!(expand(json!({"broadcast": [i64::MAX, i64::MAX, 0]}), one()).is_err());
        assert!(expand(json!({"broadcast": [3]}), Tensor::new([2], vec![0_u8; 2]).unwrap()).is_err());
        assert!(expand(json!({"broadcast": []}), one()).unwrap_err().contains("names 0 sizes"));
        assert!(expand(json!({"broadcast": [-1, 1]}), one()).unwrap_err().contains("no such axis"));
        assert!(expand(json!({"axes": [3]}), one()).is_err());
        assert!(expand(json!({"axes": [0, 0]}), one()).unwrap_err().contains("twice"));
        let texts = Tensor::scalar("x".repeat(1 << 20));
        assert!(expand(json!({"broadcast": [1 << 12]}), texts).unwrap_err().contains("1 GiB"));
        assert!(testing::build(builtin(), json!({})).is_err());
        assert!(testing::build(builtin(), json!({"broadcast": [-2]})).is_err());
        assert!(testing::build(builtin(), json!({"axes": vec![0; 65]})).is_err());
    }

    #[test]
    fn infers_shape() {
        let plan = |options| {
            let given = TensorKind::shaped(ElementType::Float32, vec![Dim::Named("N".into()), Dim::Fixed(1)]);
            testing::plan(builtin(), options, given)
        };
        assert_eq!(plan(json!({"axes": 0})).unwrap(), "tensor float32[1, N, 1]");
        assert_eq!(plan(json!({"broadcast": [4, -1, 3]})).unwrap(), "tensor float32[4, N, 3]");
        assert!(plan(json!({"broadcast": [3]})).is_err());
    }
}
