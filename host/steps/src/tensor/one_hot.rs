//! `one-hot`: indices → rows of zeros with a one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::element::ElementName;
use super::shape::{self, MAX_RANK, check_size};
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::with_integer_type;
use gpux_core::{BuildError, Builtin, Dim, ElementSet, ElementType, Group, Tensor, TensorElement, TensorKind};

/// Options of `one-hot`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OneHot {
    /// How many classes there are: the size of the new axis, at least 1. Required.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    classes: usize,
    /// Where the new axis is in the result; negative ones count from the result's last. Default: -1.
    #[serde(default = "last")]
    axis: i64,
    /// The element type of the result: any but `string`. Default: float32.
    #[serde(default = "float32")]
    element: ElementName,
}

fn last() -> i64 {
    -1
}

fn float32() -> ElementName {
    ElementName(ElementType::Float32)
}

/// Gives each index an axis of zeros with a one at its place, as `numpy.eye(classes)[indices]` does:
/// negative indices count from the last class, an index that is no class is refused.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "one-hot",
        summary: "Turns indices into rows of zeros with a one",
        group: Group::Tensor,
        follows: "NumPy: numpy.eye(classes)[indices]",
        example: "one-hot: { classes: 10 }",
        schema: || schemars::schema_for!(OneHot),
        build: |options, _| {
            let one_hot: OneHot = ports::options(options)?;
            if one_hot.element.0 == ElementType::String {
                return Err(BuildError::option("element", "there is no one and no zero among strings"));
            }
            Ok(unary::step(one_hot, "indices of any shape", "ones and zeros, with an axis more"))
        },
    }
}

impl OneHot {
    fn axis(&self, rank: usize) -> Result<usize, String> {
        if rank >= MAX_RANK {
            return Err(format!("the result would have {} axes, but at most {MAX_RANK} are made", rank + 1));
        }
        shape::normalize_axis(self.axis, rank + 1)
    }

    fn class(&self, index: i128) -> Result<usize, String> {
        let classes = self.classes as i128;
        let class = if index < 0 { index + classes } else { index };
        if (0..classes).contains(&class) {
            return Ok(class as usize);
        }
        Err(format!("index {index} is no class: there are {classes}"))
    }

    fn classes<T: Copy + Into<i128>>(&self, indices: &[T], deadline: &Deadline) -> Result<Vec<usize>, String> {
        let class = |index: &T| {
            deadline.check_after(1)?;
            self.class((*index).into())
        };
        indices.iter().map(class).collect()
    }

    fn encode<T: TensorElement>(
        &self,
        classes: &[usize],
        inner: usize,
        shape: &[usize],
        deadline: &Deadline,
        one: T,
    ) -> Result<Tensor, String> {
        let mut tensor = Tensor::zeros(T::TYPE, shape).map_err(|error| error.to_string())?;
        let data = tensor.as_mut_slice::<T>().unwrap_or_default();
        for (number, class) in classes.iter().enumerate() {
            deadline.check_after(self.classes)?;
            // `inner` elements lie between one class and the next.
            let (outer, inside) = (number / inner, number % inner);
            data[(outer * self.classes + class) * inner + inside] = one.clone();
        }
        Ok(tensor)
    }
}

impl TensorOperation for OneHot {
    const NAME: &'static str = "one-hot";

    fn takes(&self) -> ElementSet {
        ElementSet::integers()
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        let element = self.element.0;
        let Some(dims) = &given.shape else { return Ok(TensorKind::of_elements(element)) };
        let mut shape = dims.clone();
        shape.insert(self.axis(dims.len())?, Dim::Fixed(self.classes));
        Ok(TensorKind::shaped(element, shape))
    }

    fn buffers(&self, given: &Tensor) -> usize {
        given.len().saturating_mul(size_of::<usize>())
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let axis = self.axis(given.rank())?;
        let mut shape = given.shape().to_vec();
        let inner = shape[axis..].iter().product();
        shape.insert(axis, self.classes);
        check_size(self.element.0, &shape, 0)?;
        let classes = with_integer_type!(given.element(),
            T => self.classes::<T>(given.as_slice().unwrap_or_default(), deadline)?,
            _ => Vec::new(),
        );
        match self.element.0 {
            ElementType::Bool => self.encode(&classes, inner, &shape, deadline, true),
            ElementType::Uint8 | ElementType::String => self.encode(&classes, inner, &shape, deadline, 1_u8),
            ElementType::Float32 => self.encode(&classes, inner, &shape, deadline, 1_f32),
            ElementType::Int64 => self.encode(&classes, inner, &shape, deadline, 1_i64),
            other => {
                let bytes = self.encode(&classes, inner, &shape, deadline, 1_u8)?;
                bytes.cast_cancellable(other, deadline).map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;

    #[test]
    fn encodes_each_index() {
        let one_hot = |options, tensor| testing::apply(builtin(), options, tensor);
        let indices = || Tensor::new([2], vec![1_i64, -1]).unwrap();
        let rows = one_hot(json!({"classes": 3}), indices()).unwrap();
        assert_eq!(rows, Tensor::new([2, 3], vec![0_f32, 1.0, 0.0, 0.0, 0.0, 1.0]).unwrap());
        let columns = one_hot(json!({"classes": 3, "axis": 0, "element": "bool"}), indices()).unwrap();
        assert_eq!(columns, Tensor::new([3, 2], vec![false, false, true, false, false, true]).unwrap());
        let number = one_hot(json!({"classes": 2, "element": "float64"}), Tensor::scalar(0_u8)).unwrap();
        assert_eq!(number, Tensor::new([2], vec![1_f64, 0.0]).unwrap());
        let empty = Tensor::new([0], Vec::<i32>::new()).unwrap();
        assert_eq!(one_hot(json!({"classes": 3}), empty).unwrap().shape(), [0, 3]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let one_hot = |options, tensor| testing::apply(builtin(), options, tensor);
        assert!(one_hot(json!({"classes": 3}), Tensor::scalar(3_i8)).unwrap_err().contains("index 3 is no class"));
        assert!(one_hot(json!({"classes": 3}), Tensor::scalar(i64::MIN)).is_err());
        assert!(one_hot(json!({"classes": 3}), Tensor::scalar(u64::MAX)).is_err());
        assert!(one_hot(json!({"classes": 3, "axis": 2}), Tensor::scalar(0_u8)).is_err());
        assert!(one_hot(json!({"classes": 3}), Tensor::scalar(0_f32)).is_err());
        assert!(one_hot(json!({"classes": 1 << 30}), Tensor::scalar(0_u8)).unwrap_err().contains("1 GiB"));
        for options in [json!({}), json!({"classes": 0}), json!({"classes": 2, "element": "string"})] {
            assert!(testing::build(builtin(), options).is_err());
        }
    }

    #[test]
    fn infers_type_and_shape() {
        let given = TensorKind::shaped(ElementType::Int64, vec![Dim::Named("N".into())]);
        let plan = |options| testing::plan(builtin(), options, given.clone());
        assert_eq!(plan(json!({"classes": 5})).unwrap(), "tensor float32[N, 5]");
        assert!(plan(json!({"classes": 5, "axis": 3})).is_err());
    }
}
