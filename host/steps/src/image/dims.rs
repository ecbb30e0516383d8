//! Height, width and channels of an image tensor.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use gpux_core::{Layout, StepFailure, Tensor};

/// Most pixels that an image step makes: 64 Mi.
pub(super) const MAX_PIXELS: u64 = 64 << 20;

/// Most samples that an image step makes: as many pixels with 4 channels.
const MAX_SAMPLES: u64 = 4 * MAX_PIXELS;

/// Longest side of an image that an image step takes or makes, in pixels.
pub(super) const MAX_SIDE: usize = 1 << 20;

/// The size of a height × width × channels tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageDims {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl ImageDims {
    /// The size of `tensor`, which must be HWC with 1, 3 or 4 channels and hold a pixel.
    pub(super) fn from_tensor(tensor: &Tensor) -> Result<Self, StepFailure> {
        let dims = Self::with_any_channels(tensor)?;
        if !supports_channels(dims.channels) {
            return Err(no_image(tensor, "there must be 1, 3 or 4 channels"));
        }
        Ok(dims)
    }

    /// The same for a tensor with any number of channels, but none.
    pub(super) fn with_any_channels(tensor: &Tensor) -> Result<Self, StepFailure> {
        let refuse = |why: &str| Err(no_image(tensor, why));
        if tensor.metadata.layout == Some(Layout::Chw) {
            return refuse("its layout is CHW, not HWC");
        }
        let &[height, width, channels] = tensor.shape() else {
            return refuse("it does not have 3 axes");
        };
        if height == 0 || width == 0 || channels == 0 {
            return refuse("it has no pixel");
        }
        if height > MAX_SIDE || width > MAX_SIDE {
            return refuse("a side is longer than 1048576 pixels");
        }
        Ok(Self { height, width, channels })
    }

    /// Whether an image of this size, which has few enough pixels, has few enough channels to be made.
    pub(super) fn check_samples(self) -> Result<(), String> {
        let Self { height, width, channels } = self;
        let samples = (height as u64).saturating_mul(width as u64).saturating_mul(channels as u64);
        if samples > MAX_SAMPLES {
            return Err(format!(
                "making an image of {height} × {width} pixels with {channels} channels is too much: at most \
                 {MAX_SAMPLES} samples"
            ));
        }
        Ok(())
    }
}

fn no_image(tensor: &Tensor, why: &str) -> StepFailure {
    let shape = tensor.shape();
    StepFailure::InvalidInput(format!("an image is height × width × channels, but gets {shape:?}: {why}"))
}

/// Whether an image may have this many channels.
pub(super) const fn supports_channels(channels: usize) -> bool {
    matches!(channels, 1 | 3 | 4)
}

/// Whether an image of this size may be made.
pub(super) fn check_limits(height: usize, width: usize) -> Result<(), String> {
    let pixels = height as u128 * width as u128;
    if height > MAX_SIDE || width > MAX_SIDE || pixels > u128::from(MAX_PIXELS) {
        return Err(format!(
            "making an image of {height} × {width} pixels is too much: at most {MAX_PIXELS} pixels, no side over \
             {MAX_SIDE}"
        ));
    }
    Ok(())
}

/// `[height, width]` in pixels, or one number for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum Size {
    Side(NonZeroU32),
    HeightWidth([NonZeroU32; 2]),
}

impl Size {
    pub(super) fn height_width(self) -> [usize; 2] {
        let [height, width] = match self {
            Self::Side(side) => [side, side],
            Self::HeightWidth(sides) => sides,
        };
        [height.get() as usize, width.get() as usize]
    }
}
