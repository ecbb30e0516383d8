//! The meaning of a tensor's numbers, as known from the previous steps.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The order of an image's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// height, width, channels: what image steps work on
    Hwc,
    /// channels, height, width: what most vision models take
    Chw,
}

impl Layout {
    /// `HWC` or `CHW`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hwc => "HWC",
            Self::Chw => "CHW",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What an image's channels hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Color {
    /// one channel, luminance
    Gray,
    /// red, green, blue
    Rgb,
    /// red, green, blue, opacity
    Rgba,
    /// blue, green, red
    Bgr,
}

impl Color {
    /// `gray`, `rgb`, `rgba` or `bgr`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gray => "gray",
            Self::Rgb => "rgb",
            Self::Rgba => "rgba",
            Self::Bgr => "bgr",
        }
    }

    /// How many channels an image of this colour has.
    pub const fn channels(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb | Self::Bgr => 3,
            Self::Rgba => 4,
        }
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How an image was placed into this tensor, so that coordinates can be mapped back:
/// `x_here = x_source × scale_x + offset_x`, in pixels; the same for y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// width of the source image, in pixels
    pub source_width: u32,
    /// height of the source image, in pixels
    pub source_height: u32,
    /// pixels here for each source pixel, horizontally
    pub scale_x: f32,
    /// pixels here for each source pixel, vertically
    pub scale_y: f32,
    /// where the source's left edge lies, in pixels of this tensor
    pub offset_x: f32,
    /// where the source's top edge lies, in pixels of this tensor
    pub offset_y: f32,
}

/// A 3×3 matrix by rows that takes the pixel coordinates of an image to those of the source image: with
/// `[x, y, w] = matrix × [x_here, y_here, 1]`, the source's are `x / w` and `y / w`.
pub type Transform = [f64; 9];

/// Facts that travel with a tensor. Steps keep what stays true and drop the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metadata {
    /// order of the axes, if the tensor is an image
    pub layout: Option<Layout>,
    /// meaning of the channels, if the tensor is an image
    pub color: Option<Color>,
    /// samples a second, if the tensor is sound
    pub sample_rate: Option<u32>,
    /// where the source image lies in this tensor
    pub geometry: Option<Geometry>,
    /// the way back to the source image, where it is no [`Geometry`]: the image was rotated or warped
    pub transform: Option<Transform>,
}
