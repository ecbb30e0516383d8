//! `flip`: an image → its mirror image.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::ImageDims;
use super::geometry::{CoordinateChange, update_geometry};
use super::image_step::{ImageOperation, image_step};
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use gpux_core::with_elements;
use gpux_core::{Builtin, Elements, Group, StepFailure, Tensor, TensorElement};

/// Options of `flip`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Flip {
    /// `horizontal` (default): left and right change places; `vertical`: top and bottom do; `both`.
    direction: Direction,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Direction {
    #[default]
    Horizontal,
    Vertical,
    Both,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "flip",
        summary: "Mirrors an image",
        group: Group::Image,
        follows: "NumPy: numpy.flip (Pillow: ImageOps.mirror, ImageOps.flip)",
        example: "flip: { direction: horizontal }",
        schema: || schemars::schema_for!(Flip),
        build: |options, _| image_step(ports::options::<Flip>(options)?),
    }
}

impl ImageOperation for Flip {
    const NAME: &'static str = "flip";
    const GIVES: &'static str = "the mirror image";

    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        Ok(sides)
    }

    fn make(
        &self,
        mut tensor: Tensor,
        dims: ImageDims,
        _: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let mirrored = |by: bool, side: usize| if by { (-1.0, side as f32) } else { (1.0, 0.0) };
        let (across, left) = mirrored(self.direction != Direction::Vertical, dims.width);
        let (down, top) = mirrored(self.direction != Direction::Horizontal, dims.height);
        let change = CoordinateChange { scale: [across, down], offset: [left, top] };
        tensor.metadata = update_geometry(tensor.metadata, dims, change);
        flip(&mut tensor, dims, self.direction, deadline)?;
        Ok(tensor)
    }
}

fn flip(
    tensor: &mut Tensor,
    dims: ImageDims,
    direction: Direction,
    deadline: &Deadline,
) -> Result<(), DeadlineExceeded> {
    // The clone shares the elements only as long as it tells their type.
    let of = tensor.data().clone();
    with_elements!(of, data => in_place(tensor, data, dims, direction, deadline))
}

fn in_place<T: TensorElement>(
    tensor: &mut Tensor,
    of: Elements<T>,
    dims: ImageDims,
    direction: Direction,
    deadline: &Deadline,
) -> Result<(), DeadlineExceeded> {
    drop(of);
    let Some(data) = tensor.as_mut_slice::<T>() else { return Ok(()) };
    let row = dims.width * dims.channels;
    if direction != Direction::Vertical {
        for row in data.chunks_exact_mut(row) {
            deadline.check_after(row.len())?;
            reverse(row, dims.channels, || Ok(()))?;
        }
    }
    if direction != Direction::Horizontal {
        reverse(data, row, || deadline.check_after(2 * row))?;
    }
    Ok(())
}

/// Reverses the order of runs of `length`, each pair of them after `in_time`.
fn reverse<T>(
    data: &mut [T],
    length: usize,
    in_time: impl Fn() -> Result<(), DeadlineExceeded>,
) -> Result<(), DeadlineExceeded> {
    let count = data.len() / length;
    let (first, second) = data.split_at_mut(count / 2 * length);
    for (one, other) in first.chunks_exact_mut(length).zip(second.rchunks_exact_mut(length)) {
        in_time()?;
        one.swap_with_slice(other);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;

    #[test]
    fn geometry_maps_boxes_to_the_source() {
        let image = Tensor::new([2, 3, 1], vec![1_u8, 2, 3, 4, 5, 6]).unwrap();
        for (direction, expected, scale, offset) in [
            ("horizontal", [3, 2, 1, 6, 5, 4], (-1.0, 1.0), (3.0, 0.0)),
            ("vertical", [4, 5, 6, 1, 2, 3], (1.0, -1.0), (0.0, 2.0)),
            ("both", [6, 5, 4, 3, 2, 1], (-1.0, -1.0), (3.0, 2.0)),
        ] {
            let step = reference::step("flip", json!({ "direction": direction }));
            let flipped = reference::run_tensor(&*step, image.clone());
            assert_eq!(flipped.as_slice::<u8>().unwrap(), expected);
            let geometry = flipped.metadata.geometry.unwrap();
            assert_eq!(((geometry.scale_x, geometry.scale_y), (geometry.offset_x, geometry.offset_y)), (scale, offset));
        }
        assert_eq!(image.as_slice::<u8>().unwrap(), [1, 2, 3, 4, 5, 6], "a shared tensor stays as it was");
    }

    #[test]
    fn unshared_tensors_are_changed_in_place() {
        let image = Tensor::new([2, 1, 1], vec![1_f32, 2.0]).unwrap();
        let before = image.as_slice::<f32>().unwrap().as_ptr();
        let step = reference::step("flip", json!({"direction": "vertical"}));
        let flipped = step.run(vec![Some(image.into())], &mut gpux_core::Context::default()).unwrap();
        let flipped = flipped[0].as_tensor().unwrap().as_slice::<f32>().unwrap();
        assert_eq!((flipped, flipped.as_ptr()), ([2.0, 1.0].as_slice(), before));
    }
}
