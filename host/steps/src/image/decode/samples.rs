//! The samples of a decoded picture, in the depth and the channels that are wanted.

use image::DynamicImage;

use crate::deadline::{Deadline, DeadlineExceeded};
use crate::simd::vectorize;
use gpux_core::Color;

/// Samples of one depth and how many make a pixel: 1 gray, 2 gray and opacity, 3 RGB, 4 RGBA.
pub(in crate::image) enum Samples {
    Eight(Vec<u8>, usize),
    Sixteen(Vec<u16>, usize),
}

impl Samples {
    /// The samples of `image` as they lie in its file; an error for what has no fixed range.
    pub(in crate::image) fn from_image(image: DynamicImage) -> Result<Self, String> {
        Ok(match image {
            DynamicImage::ImageLuma8(image) => Self::Eight(image.into_raw(), 1),
            DynamicImage::ImageLumaA8(image) => Self::Eight(image.into_raw(), 2),
            DynamicImage::ImageRgb8(image) => Self::Eight(image.into_raw(), 3),
            DynamicImage::ImageRgba8(image) => Self::Eight(image.into_raw(), 4),
            DynamicImage::ImageLuma16(image) => Self::Sixteen(image.into_raw(), 1),
            DynamicImage::ImageLumaA16(image) => Self::Sixteen(image.into_raw(), 2),
            DynamicImage::ImageRgb16(image) => Self::Sixteen(image.into_raw(), 3),
            DynamicImage::ImageRgba16(image) => Self::Sixteen(image.into_raw(), 4),
            _ => return Err("its samples are floating point numbers, which are not decoded".to_owned()),
        })
    }

    /// 8-bit samples: of 16-bit ones the high byte.
    pub(in crate::image) fn into_8_bit(self, deadline: &Deadline) -> Result<(Vec<u8>, usize), DeadlineExceeded> {
        Ok(match self {
            Self::Eight(samples, found) => (samples, found),
            Self::Sixteen(samples, found) => (map_pixels(&samples, deadline, |[sample]| [(sample >> 8) as u8])?, found),
        })
    }

    /// 16-bit samples: 8-bit ones times 257, so that white is white.
    pub(in crate::image) fn into_16_bit(self, deadline: &Deadline) -> Result<(Vec<u16>, usize), DeadlineExceeded> {
        Ok(match self {
            Self::Eight(samples, found) => {
                (map_pixels(&samples, deadline, |[sample]| [u16::from(sample) * 257])?, found)
            }
            Self::Sixteen(samples, found) => (samples, found),
        })
    }
}

/// A sample of a fixed range.
pub(in crate::image) trait IntegerSample: Copy + Default {
    /// Full brightness, or opaque.
    const MOST: Self;
    /// Luminance (ITU-R 601-2), rounded as Pillow does.
    fn gray(red: Self, green: Self, blue: Self) -> Self;
    /// What was multiplied by this opacity, as Pillow divides it.
    fn unpremultiply(self, opacity: Self) -> Self;
    /// `above` with this opacity over `below`, rounded.
    fn mix(above: Self, below: Self, opacity: Self) -> Self;
}

macro_rules! levels {
    ($($type:ty),+) => {$(
        impl IntegerSample for $type {
            const MOST: Self = <$type>::MAX;
            #[inline(always)]
            fn gray(red: Self, green: Self, blue: Self) -> Self {
                let (red, green, blue) = (u32::from(red), u32::from(green), u32::from(blue));
                ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16) as $type
            }
            fn unpremultiply(self, opacity: Self) -> Self {
                let most = u64::from(Self::MOST);
                (u64::from(self) * most).checked_div(u64::from(opacity)).unwrap_or(0).min(most) as $type
            }
            fn mix(above: Self, below: Self, opacity: Self) -> Self {
                let [above, below, opacity] = [above, below, opacity].map(u64::from);
                let most = u64::from(Self::MOST);
                ((above * opacity + below * (most - opacity) + most / 2) / most) as $type
            }
        }
    )+};
}
levels!(u8, u16);

/// Colours as they were before they were multiplied by their opacity.
pub(in crate::image) fn unpremultiply<T: IntegerSample>(
    samples: &[T],
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    map_pixels(samples, deadline, |[red, green, blue, opacity]| {
        let [red, green, blue] = [red, green, blue].map(|level: T| level.unpremultiply(opacity));
        [red, green, blue, opacity]
    })
}

/// Samples of `found` channels as those of `wanted`, which is not BGR.
pub(in crate::image) fn convert<T: IntegerSample>(
    samples: Vec<T>,
    found: usize,
    wanted: Color,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    match (found, wanted.channels()) {
        (1, 1) | (3, 3) | (4, 4) => Ok(samples),
        (1, 3) => map_pixels(&samples, deadline, |[gray]| [gray; 3]),
        (1, _) => map_pixels(&samples, deadline, |[gray]| [gray, gray, gray, T::MOST]),
        (2, 1) => map_pixels(&samples, deadline, |[gray, _]| [gray]),
        (2, 3) => map_pixels(&samples, deadline, |[gray, _]| [gray; 3]),
        (2, _) => map_pixels(&samples, deadline, |[gray, opacity]| [gray, gray, gray, opacity]),
        (3, 1) => map_pixels(&samples, deadline, |[red, green, blue]| [T::gray(red, green, blue)]),
        (3, _) => map_pixels(&samples, deadline, |[red, green, blue]| [red, green, blue, T::MOST]),
        (_, 1) => map_pixels(&samples, deadline, |[red, green, blue, _]| [T::gray(red, green, blue)]),
        _ => map_pixels(&samples, deadline, |[red, green, blue, _]| [red, green, blue]),
    }
}

/// Every pixel made into another, with a deadline check every million pixels. With the number of
/// channels known, the loop is vectorized.
pub(in crate::image) fn map_pixels<S: Copy, T: Copy + Default, const C: usize, const D: usize>(
    samples: &[S],
    deadline: &Deadline,
    make: impl Fn([S; C]) -> [T; D],
) -> Result<Vec<T>, DeadlineExceeded> {
    const PART: usize = 1 << 20;
    let (pixels, _) = samples.as_chunks::<C>();
    let mut made = vec![[T::default(); D]; pixels.len()];
    for (made, pixels) in made.chunks_mut(PART).zip(pixels.chunks(PART)) {
        deadline.check()?;
        vectorize(
            #[inline(always)]
            || {
                for (made, pixel) in made.iter_mut().zip(pixels) {
                    *made = make(*pixel);
                }
            },
        );
    }
    Ok(made.into_flattened())
}
