//! `metadata:` of a tensor in a case.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use gpux_core::Metadata;

/// Facts about a tensor, as written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetadata {
    /// The order of an image's axes
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<Layout>,
    /// What an image's channels hold
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<Color>,
    /// Samples a second
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_rate: Option<u32>,
    /// Where the source image lies in the tensor
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<Geometry>,
    /// The 3×3 matrix, by rows, that takes the tensor's coordinates to those of the source image
    #[serde(skip_serializing_if = "Option::is_none")]
    transform: Option<[f64; 9]>,
}

macro_rules! same {
    ($($name:ident { $($case:ident $written:literal or $alias:literal)+ })+) => {$(
        #[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
        #[schemars(inline, extend("enum" = [$($written, $alias),+]))]
        enum $name { $(#[serde(rename = $written, alias = $alias)] $case,)+ }

        impl From<gpux_core::$name> for $name {
            fn from(value: gpux_core::$name) -> Self {
                match value { $(gpux_core::$name::$case => Self::$case,)+ }
            }
        }

        impl From<$name> for gpux_core::$name {
            fn from(value: $name) -> Self {
                match value { $($name::$case => Self::$case,)+ }
            }
        }
    )+};
}

same! {
    Layout { Hwc "HWC" or "hwc" Chw "CHW" or "chw" }
    Color { Gray "gray" or "GRAY" Rgb "rgb" or "RGB" Rgba "rgba" or "RGBA" Bgr "bgr" or "BGR" }
}

/// `x-here = x-source × scale_x + offset_x`, in pixels; the same for y.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Geometry {
    source_width: u32,
    source_height: u32,
    scale_x: f32,
    scale_y: f32,
    offset_x: f32,
    offset_y: f32,
}

impl From<RawMetadata> for Metadata {
    fn from(written: RawMetadata) -> Self {
        let geometry = written.geometry.map(|given| {
            let Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y } = given;
            gpux_core::Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y }
        });
        Self {
            layout: written.layout.map(Into::into),
            color: written.color.map(Into::into),
            sample_rate: written.sample_rate,
            geometry,
            transform: written.transform,
        }
    }
}

impl From<Metadata> for RawMetadata {
    fn from(metadata: Metadata) -> Self {
        let geometry = metadata.geometry.map(|given| {
            let gpux_core::Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y } = given;
            Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y }
        });
        Self {
            layout: metadata.layout.map(Into::into),
            color: metadata.color.map(Into::into),
            sample_rate: metadata.sample_rate,
            geometry,
            transform: metadata.transform,
        }
    }
}
