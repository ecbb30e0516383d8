//! `center-crop`: the middle of an image.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::{ImageDims, Size, check_limits};
use super::geometry::{CoordinateChange, update_geometry};
use super::image_step::{ImageOperation, image_step};
use super::window::{BorderMode, FillValue, Window, cut};
use crate::deadline::Deadline;
use crate::ports;
use gpux_core::{BuildError, Builtin, Group, Step, StepFailure, Tensor};

/// Options of `center-crop`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CenterCrop {
    /// `[height, width]` in pixels, or one number for both. Required.
    size: Size,
    /// What fills up an image that is smaller: one number, or one for each channel. Default: 0.
    #[serde(default)]
    fill: FillValue,
    /// Whose middle it is, where a side has an odd number of pixels more or fewer: `torchvision` (default) cuts at the even
    /// of both places and fills less before; `transformers` cuts less before and fills as torchvision; `numpy` is
    /// transformers' on NumPy arrays (its versions before 5), which cuts less before and fills more there.
    #[serde(default)]
    library: Library,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Library {
    #[default]
    Torchvision,
    Transformers,
    Numpy,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "center-crop",
        summary: "Cuts the middle out of an image",
        group: Group::Image,
        follows: "torchvision: transforms.v2.functional.center_crop; by option transformers: center_crop",
        example: "center-crop: { size: 224 }",
        schema: || schemars::schema_for!(CenterCrop),
        build: |options, _| step(ports::options(options)?),
    }
}

fn step(options: CenterCrop) -> Result<Box<dyn Step>, BuildError> {
    let [height, width] = options.size.height_width();
    check_limits(height, width).map_err(|message| BuildError::option("size", message))?;
    image_step(options)
}

/// The first row or column of the middle.
fn start(library: Library, wanted: usize, side: usize) -> i64 {
    let (missing, rest) = (wanted.saturating_sub(side), side.saturating_sub(wanted));
    let filled = if library == Library::Numpy { missing.div_ceil(2) } else { missing / 2 };
    let cut = match library {
        Library::Torchvision => (rest as f64 / 2.0).round_ties_even() as i64,
        Library::Transformers | Library::Numpy => (rest / 2) as i64,
    };
    cut - filled as i64
}

impl ImageOperation for CenterCrop {
    const NAME: &'static str = "center-crop";
    const GIVES: &'static str = "the middle of the image";

    fn target(&self, _: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        Ok(self.size.height_width().map(Some))
    }

    fn channels(&self, channels: usize) -> Result<usize, String> {
        self.fill.check(channels).map(|()| channels)
    }

    fn make(
        &self,
        tensor: Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let start = |wanted, side| start(self.library, wanted, side);
        let (top, left) = (start(target.height, dims.height), start(target.width, dims.width));
        let metadata =
            update_geometry(tensor.metadata, dims, CoordinateChange::translation([-(left as f32), -(top as f32)]));
        let window = Window { top, left, height: target.height, width: target.width };
        Ok(cut(tensor, dims, window, BorderMode::Constant, &self.fill, deadline)?.with_metadata(metadata))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;
    use gpux_core::{Dim, ElementType, Kind, TensorKind};

    #[test]
    fn infers_type_and_shape() {
        let step = reference::step("center-crop", json!({"size": [8, 9]}));
        let infer = |shape: &[Dim]| {
            let kind = Kind::Tensor(TensorKind::shaped(ElementType::Float16, shape));
            step.infer(&[Some(kind)]).map(|kinds| kinds[0].to_string())
        };
        let open = [Dim::Dynamic, Dim::Dynamic, Dim::Fixed(3)];
        assert_eq!(infer(&open).unwrap(), "tensor float16[8, 9, 3] HWC");
        assert!(infer(&open[..2]).is_err());
        assert!(infer(&[Dim::Fixed(3), Dim::Fixed(9), Dim::Fixed(9)]).unwrap_err().to_string().contains("9 channels"));
        assert!(step.infer(&[Some(Kind::Text)]).is_err());
        for size in [json!(0), json!([1]), json!("8"), json!(4_000_000_000_u32)] {
            assert!(reference::build(builtin(), json!({ "size": size })).is_err(), "{size}");
        }
    }

    #[test]
    fn images_of_the_target_size_are_not_copied() {
        let image = Tensor::new([2, 2, 1], vec![1_f32; 4]).unwrap();
        let before = image.as_slice::<f32>().unwrap().as_ptr();
        let cropped = reference::run_tensor(&*reference::step("center-crop", json!({"size": 2})), image);
        assert_eq!(cropped.as_slice::<f32>().unwrap().as_ptr(), before);
    }

    #[test]
    fn rounds_as_the_library_does() {
        // transformers 5.23 on tensors and on NumPy arrays; torchvision's are in the reference tests.
        let row = |side: u8, wanted: usize, library: &str| {
            let image = Tensor::new([1, usize::from(side), 1], (1..=side).collect::<Vec<u8>>()).unwrap();
            let options = json!({"size": [1, wanted], "library": library});
            let cropped = reference::run_tensor(&*reference::step("center-crop", options), image);
            cropped.as_slice::<u8>().unwrap().to_vec()
        };
        assert_eq!(row(11, 4, "torchvision"), [5, 6, 7, 8]);
        for library in ["transformers", "numpy"] {
            assert_eq!(row(11, 4, library), [4, 5, 6, 7]);
            assert_eq!(row(13, 4, library), [5, 6, 7, 8]);
            assert_eq!(row(9, 4, library), [3, 4, 5, 6]);
        }
        assert_eq!(row(4, 7, "transformers"), [0, 1, 2, 3, 4, 0, 0]);
        assert_eq!(row(4, 7, "numpy"), [0, 0, 1, 2, 3, 4, 0]);
        assert_eq!(row(4, 9, "numpy"), [0, 0, 0, 1, 2, 3, 4, 0, 0]);
    }
}
