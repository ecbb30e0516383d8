//! `reshape`: the same elements under other axes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shape::{MAX_RANK, static_shape};
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{BuildError, Builtin, Dim, Group, Metadata, Tensor, TensorKind, element_count};

/// Options of `reshape`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reshape {
    /// The sizes of the axes. One may be -1: it becomes what the elements leave for it. 0 keeps the
    /// size that the given tensor has at this place. `[]` makes a single element a tensor without axes. Required.
    #[schemars(inner(range(min = -1)), length(max = 64))]
    shape: Vec<i64>,
}

/// Gives the elements another shape, without copying them.
///
/// Follows ONNX's `Reshape` (`allowzero` is 0), and so `numpy.reshape` but for the meaning of 0.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "reshape",
        summary: "Gives the same elements another shape",
        group: Group::Tensor,
        follows: "NumPy: numpy.reshape; ONNX: Reshape",
        example: "reshape: { shape: [0, -1] }",
        schema: || schemars::schema_for!(Reshape),
        build: |options, _| {
            let reshape: Reshape = ports::options(options)?;
            reshape.check()?;
            Ok(unary::step(reshape, "of any type and shape", "the same elements in the new shape"))
        },
    }
}

impl Reshape {
    fn check(&self) -> Result<(), BuildError> {
        let refuse = |why: String| Err(BuildError::option("shape", why));
        if self.shape.len() > MAX_RANK {
            return refuse(format!("there are {} axes, but at most {MAX_RANK} are made", self.shape.len()));
        }
        if let Some(size) = self.shape.iter().find(|size| **size < -1) {
            return refuse(format!("{size} is not a size: sizes are numbers from 0, or one -1"));
        }
        if self.shape.iter().filter(|size| **size == -1).count() > 1 {
            return refuse("only one size can be -1: there would be many ways to share the elements".into());
        }
        Ok(())
    }

    /// The sizes, 0 replaced by the size in `given`; `None` for -1 and for unknown sizes.
    fn sizes(&self, given: &[Dim]) -> Result<Vec<Option<usize>>, String> {
        let size = |(axis, size): (usize, &i64)| match *size {
            -1 => Ok(None),
            0 => {
                let rank = given.len();
                let dim = given.get(axis).ok_or_else(|| {
                    format!("size {axis} is 0, which keeps the size of axis {axis}, but there are {rank} axes")
                })?;
                Ok(ports::fixed(dim))
            }
            size => Ok(Some(size as usize)),
        };
        self.shape.iter().enumerate().map(size).collect()
    }

    fn shape(&self, given: &[usize]) -> Result<Vec<usize>, String> {
        let dims: Vec<_> = given.iter().map(|size| Dim::Fixed(*size)).collect();
        let sizes = self.sizes(&dims)?;
        let misfit = || format!("the elements of {given:?} do not fill the shape {:?}", self.shape);
        let count = element_count(given).ok_or_else(misfit)?;
        let known: Vec<_> = sizes.iter().copied().flatten().collect();
        let open = known.len() < sizes.len();
        let product = element_count(&known).ok_or_else(misfit)?;
        if open && product == 0 {
            return Err(format!("{:?}: beside an axis of size 0, -1 could be any size", self.shape));
        }
        let rest = if open { count / product } else { 1 };
        let shape: Vec<_> = sizes.into_iter().map(|size| size.unwrap_or(rest)).collect();
        if element_count(&shape) == Some(count) { Ok(shape) } else { Err(misfit()) }
    }
}

impl TensorOperation for Reshape {
    const NAME: &'static str = "reshape";

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        let open = || self.shape.iter().map(|size| if *size > 0 { Dim::Fixed(*size as usize) } else { Dim::Dynamic });
        let dims = match &given.shape {
            None => open().collect::<Vec<_>>(),
            Some(dims) => {
                if let Some(sizes) = static_shape(dims) {
                    self.shape(&sizes)?.into_iter().map(Dim::Fixed).collect()
                } else {
                    self.sizes(dims)?;
                    let kept = |(axis, dim): (usize, Dim)| if self.shape[axis] == 0 { dims[axis].clone() } else { dim };
                    open().enumerate().map(kept).collect()
                }
            }
        };
        Ok(TensorKind::shaped(given.elements, dims))
    }

    fn apply(&self, given: Tensor, _: &Deadline) -> Result<Tensor, String> {
        let shape = self.shape(given.shape())?;
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

    fn reshape(shape: &[i64], tensor: Tensor) -> Result<Tensor, String> {
        testing::apply(builtin(), json!({ "shape": shape }), tensor)
    }

    #[test]
    fn infers_sizes_without_copying() {
        let tensor = Tensor::new([2, 6], (0..12_i32).collect()).unwrap();
        let same = reshape(&[0, -1, 3], tensor.clone()).unwrap();
        assert_eq!(same.shape(), [2, 2, 3]);
        assert_eq!(same.as_slice::<i32>().unwrap().as_ptr(), tensor.as_slice::<i32>().unwrap().as_ptr());
        assert_eq!(reshape(&[-1], Tensor::scalar(1_f32)).unwrap().shape(), [1]);
        assert_eq!(reshape(&[], Tensor::new([1, 1], vec![1_f32]).unwrap()).unwrap().shape(), [0_usize; 0]);
        assert_eq!(reshape(&[0, 5], Tensor::new([0, 5], Vec::<f32>::new()).unwrap()).unwrap().shape(), [0, 5]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let empty = || Tensor::new([0, 5], Vec::<f32>::new()).unwrap();
        assert!(reshape(&[0, -1], empty()).unwrap_err().contains("any size"));
        assert!(reshape(&[i64::MAX, i64::MAX], empty()).is_err());
        assert!(reshape(&[i64::MAX, i64::MAX], Tensor::scalar(1_u8)).is_err());
        assert!(reshape(&[0], Tensor::scalar(1_u8)).unwrap_err().contains("there are 0 axes"));
        assert!(reshape(&[5, -1], Tensor::new([2, 6], vec![0_u8; 12]).unwrap()).unwrap_err().contains("do not fill"));
        assert!(testing::build(builtin(), json!({"shape": [-1, -1]})).is_err());
        assert!(testing::build(builtin(), json!({"shape": [-2]})).is_err());
        assert!(testing::build(builtin(), json!({"shape": vec![1; 65]})).is_err());
        assert!(testing::build(builtin(), json!({})).is_err());
    }

    #[test]
    fn infers_shape() {
        let plan = |shape: &[i64], given: &[Dim]| {
            testing::plan(builtin(), json!({ "shape": shape }), TensorKind::shaped(ElementType::Float32, given))
        };
        assert_eq!(plan(&[0, -1], &[Dim::Fixed(2), Dim::Fixed(3), Dim::Fixed(4)]).unwrap(), "tensor float32[2, 12]");
        assert_eq!(plan(&[0, -1, 4], &[Dim::Named("N".into()), Dim::Fixed(8)]).unwrap(), "tensor float32[N, ?, 4]");
        assert!(plan(&[5], &[Dim::Fixed(4)]).unwrap_err().contains("do not fill"));
        assert!(plan(&[1, 0], &[Dim::Dynamic]).unwrap_err().contains("there are 1 axes"));
    }
}
