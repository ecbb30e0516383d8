//! Several numbers made one, along axes: what `max`, `mean` and `sum` share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::axes_option::Axes;
use super::shape;
use crate::deadline::Deadline;
use gpux_core::{Dim, ElementSet, ElementType, Tensor, TensorElement, TensorKind};

/// Options of `max`, `mean` and `sum`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AxisReduction {
    /// The axis along which numbers become one, or a list of axes; negative ones count from the last. Default: -1.
    axis: Axes,
    /// Whether the axes stay, with size 1. Default: false.
    keepdims: bool,
}

impl Default for AxisReduction {
    fn default() -> Self {
        Self { axis: Axes::One(-1), keepdims: false }
    }
}

/// A tensor whose rows are to become one number each.
pub(super) struct ReductionRows {
    /// the rows, one after the other
    pub(super) tensor: Tensor,
    /// numbers of each
    pub(super) length: usize,
    /// the shape of the result
    pub(super) shape: Vec<usize>,
}

impl AxisReduction {
    /// The shape without these axes, where `gone` are known to be axes of it.
    fn rest<T: Clone>(&self, shape: &[T], gone: &[usize], one: &T) -> Vec<T> {
        let kept = shape.iter().enumerate().filter_map(|(axis, size)| {
            if gone.contains(&axis) { self.keepdims.then(|| one.clone()) } else { Some(size.clone()) }
        });
        kept.collect()
    }

    /// The kind of the result, whose elements are `element` of the tensor's.
    pub(super) fn kind(
        &self,
        given: &TensorKind,
        element: impl Fn(ElementType) -> ElementType,
    ) -> Result<TensorKind, String> {
        let elements: Vec<_> = given.elements.iter().map(element).collect();
        let shape = match &given.shape {
            None => None,
            Some(dims) => {
                let gone = shape::normalize_axes(self.axis.list(), dims.len())?;
                Some(self.rest(dims, &gone, &Dim::Fixed(1)))
            }
        };
        Ok(TensorKind { elements: ElementSet::of(&elements), shape, layout: None })
    }

    /// The rows of the tensor that become numbers of the type `element`.
    pub(super) fn rows(
        &self,
        given: Tensor,
        element: ElementType,
        deadline: &Deadline,
    ) -> Result<ReductionRows, String> {
        let rank = given.rank();
        let gone = shape::normalize_axes(self.axis.list(), rank)?;
        let shape = self.rest(given.shape(), &gone, &1);
        // An empty axis may stand beside ones of any size.
        shape::check_size(element, &shape, 0)?;
        let length = gone.iter().map(|axis| given.shape()[*axis]).product();
        let order: Vec<_> = (0..rank).filter(|axis| !gone.contains(axis)).chain(gone.iter().copied()).collect();
        let tensor = if order.is_sorted() {
            given
        } else {
            given.permute_cancellable(&order, deadline).map_err(|error| error.to_string())?
        };
        Ok(ReductionRows { tensor, length, shape })
    }
}

impl ReductionRows {
    /// A tensor of what `of` makes of each row.
    pub(super) fn reduce<T: TensorElement, A: TensorElement + Clone>(
        &self,
        deadline: &Deadline,
        of: impl Fn(&[T]) -> Result<A, String>,
    ) -> Result<Tensor, String> {
        let count = self.shape.iter().product();
        let numbers = self.tensor.as_slice::<T>().unwrap_or_default();
        let mut reduced = Vec::with_capacity(count);
        for row in 0..count {
            deadline.check_after(1)?;
            reduced.push(of(&numbers[row * self.length..][..self.length])?);
        }
        Tensor::new(self.shape.clone(), reduced).map_err(|error| error.to_string())
    }
}
