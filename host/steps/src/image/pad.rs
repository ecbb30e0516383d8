//! `pad`: an image → the same image with a border.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::{ImageDims, Size};
use super::geometry::{CoordinateChange, update_geometry};
use super::image_step::{ImageOperation, image_step};
use super::window::{BorderMode, FillValue, Window, cut};
use crate::deadline::Deadline;
use crate::ports;
use gpux_core::{BuildError, Builtin, Group, Step, StepFailure, Tensor};

/// Options of `pad`: one of `padding`, `size`, `min_size`, `square`, `multiple_of` and `line`, and how.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Pad {
    /// Pixels added: one number for every side, `[left and right, top and bottom]`, or `[left, top,
    /// right, bottom]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<Padding>,
    /// `[height, width]` that the image is filled up to, or one number for both. A larger image is
    /// refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<Size>,
    /// The same, but a larger side stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_size: Option<Size>,
    /// Whether the shorter side is filled up to the longer one. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    square: bool,
    /// Fills each side up to a multiple of this number of pixels, such as the stride of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    multiple_of: Option<usize>,
    /// The border of a single line of text, above and below, as RapidOCR adds it for its detector.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<LineBorder>,
    /// Where the image lies when it is filled up, but by `padding` and `line`: `top-left` (default) or `center`.
    position: Position,
    /// What the border holds: `constant` (default; see `fill`), `edge` (the nearest pixel), `reflect`
    /// (mirrored, without the edge itself) or `symmetric` (mirrored, with it), as NumPy names them.
    mode: BorderMode,
    /// What a constant border holds: one number, or one for each channel. Default: 0.
    fill: FillValue,
}

/// Which images are a line: those get twice the least height that is none.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
struct LineBorder {
    /// An image is a line if it is more than this many times as wide as high, 1 to 1000. Default: 8.
    #[schemars(range(min = 1.0, max = 1000.0))]
    max_ratio: f64,
    /// So is one of this height in pixels, or less. Default: 30.
    #[schemars(range(min = 1, max = 1_048_576))]
    min_height: usize,
}

impl Default for LineBorder {
    fn default() -> Self {
        Self { max_ratio: 8.0, min_height: 30 }
    }
}

impl LineBorder {
    /// Pixels above an image, and as many below.
    fn height(&self, height: usize, width: usize) -> usize {
        if width as f64 / height as f64 <= self.max_ratio && height > self.min_height {
            return 0;
        }
        let wanted = self.min_height.max((width as f64 / self.max_ratio) as usize) * 2;
        wanted.abs_diff(height) / 2
    }
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Padding {
    All(#[schemars(range(max = 1_048_576))] u32),
    Pair(#[schemars(inner(range(max = 1_048_576)))] [u32; 2]),
    Each(#[schemars(inner(range(max = 1_048_576)))] [u32; 4]),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum Position {
    #[default]
    TopLeft,
    Center,
}

impl Padding {
    /// Left, top, right and bottom.
    fn sides(&self) -> [usize; 4] {
        match *self {
            Self::All(side) => [side; 4],
            Self::Pair([across, down]) => [across, down, across, down],
            Self::Each(sides) => sides,
        }
        .map(|side| side as usize)
    }
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "pad",
        summary: "Adds a border to an image",
        group: Group::Image,
        follows: "torchvision: transforms.v2.functional.pad (NumPy: numpy.pad)",
        example: "pad: { multiple_of: 32, fill: 114 }",
        schema: || schemars::schema_for!(Pad),
        build: |options, _| step(ports::options(options)?),
    }
}

fn step(options: Pad) -> Result<Box<dyn Step>, BuildError> {
    let ways = [
        options.padding.is_some(),
        options.size.is_some(),
        options.min_size.is_some(),
        options.square,
        options.multiple_of.is_some(),
        options.line.is_some(),
    ];
    if ways.iter().filter(|way| **way).count() != 1 {
        let message = "pad needs one of `padding`, `size`, `min_size`, `square`, `multiple_of` and `line`".into();
        let error = BuildError { option: Vec::new(), message, hint: None };
        return Err(error.with_hint("for example `pad: { size: [640, 640] }` or `pad: { multiple_of: 32 }`"));
    }
    if options.mode != BorderMode::Constant && options.fill != FillValue::default() {
        return Err(BuildError::option("fill", "`fill` is for `mode: constant` only"));
    }
    image_step(options)
}

impl Pad {
    /// The length of an axis, 0 for height and 1 for width, of an image with these sides.
    fn length(&self, axis: usize, sides: [Option<usize>; 2]) -> Result<Option<usize>, String> {
        let side = sides[axis];
        if self.square {
            return Ok(sides[0].zip(sides[1]).map(|(height, width)| height.max(width)));
        }
        if let Some(line) = self.line {
            let sides = sides[0].zip(sides[1]);
            let border = sides.map(|(height, width)| line.height(height, width));
            return Ok(if axis == 1 { side } else { side.zip(border).map(|(side, border)| side + 2 * border) });
        }
        if let Some(size) = self.min_size {
            return Ok(side.map(|side| side.max(size.height_width()[axis])));
        }
        if let Some(padding) = &self.padding {
            let sides = padding.sides();
            return Ok(side.map(|side| side + sides[1 - axis] + sides[3 - axis]));
        }
        if let Some(multiple) = self.multiple_of {
            return Ok(side.and_then(|side| side.checked_next_multiple_of(multiple)));
        }
        let wanted = self.size.map_or(0, |size| size.height_width()[axis]);
        match side.filter(|side| *side > wanted) {
            Some(side) => {
                let name = ["high", "wide"][axis];
                Err(format!("the image is {side} pixels {name}, more than the {wanted} it shall be filled up to"))
            }
            None => Ok(Some(wanted)),
        }
    }
}

impl ImageOperation for Pad {
    const NAME: &'static str = "pad";
    const GIVES: &'static str = "the image with its border";

    fn takes_any_channels(&self) -> bool {
        true
    }

    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        Ok([self.length(0, sides)?, self.length(1, sides)?])
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
        let [left, top] = match (&self.padding, self.position) {
            (Some(padding), _) => [padding.sides()[0], padding.sides()[1]],
            (None, Position::TopLeft) if self.line.is_none() => [0, 0],
            (None, _) => [(target.width - dims.width) / 2, (target.height - dims.height) / 2],
        };
        let metadata = update_geometry(tensor.metadata, dims, CoordinateChange::translation([left as f32, top as f32]));
        let window = Window { top: -(top as i64), left: -(left as i64), height: target.height, width: target.width };
        Ok(cut(tensor, dims, window, self.mode, &self.fill, deadline)?.with_metadata(metadata))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;
    use gpux_core::Context;

    fn run(options: serde_json::Value, tensor: Tensor) -> Result<Tensor, StepFailure> {
        let mut values = reference::step("pad", options).run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn pads_to_the_size() {
        let image = || Tensor::new([2, 3, 1], vec![1_u8; 6]).unwrap();
        assert_eq!(run(json!({"multiple_of": 4}), image()).unwrap().shape(), [4, 4, 1]);
        let centred = run(json!({"size": [4, 8], "position": "center", "fill": 5}), image()).unwrap();
        assert_eq!(centred.shape(), [4, 8, 1]);
        let geometry = centred.metadata.geometry.unwrap();
        assert_eq!((geometry.offset_x, geometry.offset_y), (2.0, 1.0));
        assert_eq!(centred.as_slice::<u8>().unwrap()[8..16], [5, 5, 1, 1, 1, 5, 5, 5]);
        let square = run(json!({"square": true, "position": "center"}), image()).unwrap();
        assert_eq!((square.shape(), square.metadata.geometry.unwrap().offset_y as i32), ([3, 3, 1].as_slice(), 0));
        assert_eq!(run(json!({"min_size": [1, 5]}), image()).unwrap().shape(), [2, 5, 1]);
        let many = Tensor::new([1, 1, 7], vec![1.0_f32; 7]).unwrap();
        assert_eq!(run(json!({"min_size": 2}), many).unwrap().shape(), [2, 2, 7]);
        let error = run(json!({"size": 2}), image()).unwrap_err();
        assert!(error.to_string().contains("3 pixels wide, more than the 2"), "{error}");
        for mode in ["edge", "reflect", "symmetric"] {
            assert_eq!(run(json!({"padding": 50, "mode": mode}), image()).unwrap().shape(), [102, 103, 1]);
            let dot = Tensor::new([1, 1, 1], vec![7_u8]).unwrap();
            assert_eq!(run(json!({"padding": 1, "mode": mode}), dot).unwrap().as_slice::<u8>().unwrap(), [7; 9]);
        }
        let line = |height: usize, width: usize| {
            let image = Tensor::new([height, width, 1], vec![1_u8; height * width]).unwrap();
            let padded = run(json!({"line": {}}), image).unwrap();
            (padded.shape()[0], padded.metadata.geometry.unwrap().offset_y as i32)
        };
        // As `apply_vertical_padding` of RapidOCR 3.10.
        assert_eq!([line(31, 248), line(31, 249), line(32, 3008)], [(31, 0), (61, 15), (752, 360)]);
        assert_eq!([line(30, 40), line(1, 1), line(29, 300)], [(60, 15), (59, 29), (73, 22)]);
        let error = run(json!({"padding": 1 << 20}), image()).unwrap_err();
        assert!(error.to_string().contains("is too much"), "{error}");
    }

    #[test]
    fn rejects_invalid_options() {
        for options in [
            json!({}),
            json!({"padding": 1, "size": 4}),
            json!({"square": true, "min_size": 4}),
            json!({"square": false}),
            json!({"min_size": [100_000, 100_000], "square": true}),
            json!({"padding": -1}),
            json!({"padding": [1, 2, 3]}),
            json!({"padding": 4_000_000_000_u32}),
            json!({"multiple_of": 0}),
            json!({"size": [100_000, 100_000]}),
            json!({"padding": 1, "mode": "edge", "fill": 3}),
            json!({"line": {"max_ratio": 0}}),
            json!({"line": {}, "square": true}),
        ] {
            assert!(reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
    }
}
