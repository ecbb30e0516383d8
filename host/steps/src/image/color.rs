//! `color`: an image in other channels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::{IntegerSample, map_pixels};
use super::dims::ImageDims;
use super::image_step::{ImageOperation, image_step};
use super::window::FillValue;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Color, ElementSet, ElementType, Group, Metadata, Step, StepFailure, Tensor, TensorData,
};

/// Options of `color`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Convert {
    /// What each pixel shall hold: `gray` (luminance, ITU-R 601-2 as Pillow rounds it), `rgb`, `rgba`
    /// or `bgr`. Required.
    to: Channels,
    /// What it holds now. Default: as the step before said; else gray for 1 channel, rgb for 3, rgba
    /// for 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Channels>,
    /// The colour, one number or `[red, green, blue]`, that shines through where the image is not
    /// opaque. Without it, opacity is dropped. No default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    background: Option<FillValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Channels {
    Gray,
    Rgb,
    Rgba,
    Bgr,
}

impl Channels {
    const fn color(self) -> Color {
        match self {
            Self::Gray => Color::Gray,
            Self::Rgb => Color::Rgb,
            Self::Rgba => Color::Rgba,
            Self::Bgr => Color::Bgr,
        }
    }
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "color",
        summary: "Converts an image between gray, RGB, RGBA and BGR",
        group: Group::Image,
        follows: "Pillow: Image.convert; with a background Image.paste(image, mask=image)",
        example: "color: { to: rgb, background: 255 }",
        schema: || schemars::schema_for!(Convert),
        build: |options, _| step(ports::options(options)?),
    }
}

fn step(options: Convert) -> Result<Box<dyn Step>, BuildError> {
    if let Some(background) = &options.background {
        background.check(3).map_err(|_| BuildError::option("background", "`background` is one number or three"))?;
        if options.to == Channels::Rgba {
            let error = BuildError::option("background", "`background` is for an image without opacity");
            return Err(error.with_hint("write `to: rgb`"));
        }
    }
    image_step(options)
}

impl ImageOperation for Convert {
    const NAME: &'static str = "color";
    const GIVES: &'static str = "the image in other channels";

    fn elements(&self) -> ElementSet {
        ElementSet::of(&[ElementType::Uint8, ElementType::Uint16])
    }

    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        Ok(sides)
    }

    fn known_channels(&self) -> Option<usize> {
        Some(self.to.color().channels())
    }

    fn channels(&self, channels: usize) -> Result<usize, String> {
        match self.from.map(Channels::color) {
            Some(from) if from.channels() != channels => {
                Err(format!("`from` says {from}, which is {} channels, but there are {channels}", from.channels()))
            }
            _ => Ok(self.to.color().channels()),
        }
    }

    fn make(
        &self,
        tensor: Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let told = self.from.map(Channels::color).or(tensor.metadata.color);
        let from = told.filter(|color| color.channels() == dims.channels).unwrap_or(match dims.channels {
            1 => Color::Gray,
            3 => Color::Rgb,
            _ => Color::Rgba,
        });
        let to = self.to.color();
        let metadata = Metadata { color: Some(to), ..tensor.metadata };
        let shape = [target.height, target.width, target.channels];
        let converted = match tensor.data() {
            _ if from == to => tensor,
            TensorData::Uint8(data) => {
                Tensor::new(shape, convert_pixels(data, from, to, self.background_pixel::<u8>()?, deadline)?)?
            }
            TensorData::Uint16(data) => {
                Tensor::new(shape, convert_pixels(data, from, to, self.background_pixel::<u16>()?, deadline)?)?
            }
            other => return Err(StepFailure::Failed(format!("cannot convert {}", other.element()))),
        };
        Ok(converted.with_metadata(metadata))
    }
}

impl Convert {
    fn background_pixel<T: IntegerSample + gpux_core::TensorElement>(&self) -> Result<Option<[T; 3]>, StepFailure> {
        let Some(background) = &self.background else { return Ok(None) };
        let pixel = background.pixel::<T>(3)?;
        Ok(pixel.try_into().ok())
    }
}

/// An image of uint8 as RGB.
pub(super) fn to_rgb(tensor: Tensor, dims: ImageDims, deadline: &Deadline) -> Result<Tensor, StepFailure> {
    let rgb = Convert { to: Channels::Rgb, from: None, background: None };
    rgb.make(tensor, dims, ImageDims { channels: 3, ..dims }, deadline)
}

/// An image of uint8 whose colours, if it has any, are red, green, blue.
pub(super) fn in_rgb_order(tensor: Tensor, dims: ImageDims, deadline: &Deadline) -> Result<Tensor, StepFailure> {
    if tensor.metadata.color == Some(Color::Bgr) { to_rgb(tensor, dims, deadline) } else { Ok(tensor) }
}

fn convert_pixels<T: IntegerSample>(
    data: &[T],
    from: Color,
    to: Color,
    behind: Option<[T; 3]>,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    match (from, behind) {
        (Color::Gray, _) => write_channels(data, to, deadline, |[gray]| [gray, gray, gray, T::MOST]),
        (Color::Rgb, _) => write_channels(data, to, deadline, |[red, green, blue]| [red, green, blue, T::MOST]),
        (Color::Bgr, _) => write_channels(data, to, deadline, |[blue, green, red]| [red, green, blue, T::MOST]),
        (Color::Rgba, None) => write_channels(data, to, deadline, |pixel| pixel),
        (Color::Rgba, Some(behind)) => write_channels(data, to, deadline, |pixel| blend(pixel, behind)),
    }
}

/// The pixels, each read as RGBA, in the channels of `to`.
fn write_channels<T: IntegerSample, const C: usize>(
    data: &[T],
    to: Color,
    deadline: &Deadline,
    rgba: impl Fn([T; C]) -> [T; 4],
) -> Result<Vec<T>, DeadlineExceeded> {
    match to {
        Color::Gray => map_pixels(data, deadline, |pixel| {
            let [red, green, blue, _] = rgba(pixel);
            [T::gray(red, green, blue)]
        }),
        Color::Rgb => map_pixels(data, deadline, |pixel| {
            let [red, green, blue, _] = rgba(pixel);
            [red, green, blue]
        }),
        Color::Bgr => map_pixels(data, deadline, |pixel| {
            let [red, green, blue, _] = rgba(pixel);
            [blue, green, red]
        }),
        Color::Rgba => map_pixels(data, deadline, rgba),
    }
}

fn blend<T: IntegerSample>([red, green, blue, opacity]: [T; 4], behind: [T; 3]) -> [T; 4] {
    let mix = |level, behind| T::mix(level, behind, opacity);
    [mix(red, behind[0]), mix(green, behind[1]), mix(blue, behind[2]), T::MOST]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;
    use gpux_core::Context;

    #[test]
    fn metadata_names_the_channels() {
        let step = |to| reference::step("color", json!({ "to": to }));
        let image = Tensor::new([1, 1, 3], vec![1_u8, 2, 3]).unwrap();
        let bgr = reference::run_tensor(&*step("bgr"), image);
        assert_eq!((bgr.as_slice::<u8>().unwrap(), bgr.metadata.color), ([3, 2, 1].as_slice(), Some(Color::Bgr)));
        let rgb = reference::run_tensor(&*step("rgb"), bgr.clone());
        assert_eq!((rgb.as_slice::<u8>().unwrap(), rgb.metadata.color), ([1, 2, 3].as_slice(), Some(Color::Rgb)));
        assert_eq!(reference::run_tensor(&*step("gray"), bgr), reference::run_tensor(&*step("gray"), rgb));
    }

    #[test]
    fn rejects_invalid_options_and_inputs() {
        for options in [
            json!({}),
            json!({"to": "cmyk"}),
            json!({"to": "rgb", "background": [1, 2]}),
            json!({"to": "rgba", "background": 0}),
        ] {
            assert!(reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
        let gray = reference::step("color", json!({"to": "gray", "from": "rgb"}));
        for tensor in [Tensor::new([1, 1, 4], vec![0_u8; 4]).unwrap(), Tensor::new([1, 1, 3], vec![0_f32; 3]).unwrap()]
        {
            let failure = gray.run(vec![Some(tensor.into())], &mut Context::default()).unwrap_err();
            assert!(matches!(failure, StepFailure::InvalidInput(_)), "{failure}");
        }
    }
}
