//! torchvision's `resize` of tensors (`torch.nn.functional.interpolate`).

use fast_image_resize::images::{TypedCroppedImage, TypedCroppedImageMut, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U8x4};
use fast_image_resize::{PixelTrait, ResizeOptions, Resizer};

use super::super::dims::ImageDims;
use super::pillow::{algorithm, cannot, resize_floats};
use super::taps::{Interpolate, PositionPrecision, Taps, mix};
use super::{Filter, Sampling, nearest, to_tensor};
use crate::deadline::{Deadline, DeadlineExceeded};
use gpux_core::{StepFailure, Tensor, TensorData};

pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    how: Sampling,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    if how.antialias && !how.filter.is_nearest() {
        // The filters are Pillow's, but nothing is weighed by opacity, and weights of bytes have 16 bits.
        return match tensor.data() {
            TensorData::Uint8(data) => to_tensor(target, resize_antialiased(data, dims, target, how.filter, deadline)?),
            TensorData::Float32(data) => {
                to_tensor(target, resize_floats(data, dims, target, how.filter, false, deadline)?)
            }
            other => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
        };
    }
    // From the middle of a pixel, or from where it begins.
    let middle = if how.filter == Filter::NearestExact { 0.5 } else { 0.0 };
    let places = |old, new| places(old, new, middle);
    let (rows, columns) = (places(dims.height, target.height), places(dims.width, target.width));
    match (tensor.data(), how.filter) {
        (TensorData::Uint8(data), filter) if filter.is_nearest() => {
            to_tensor(target, nearest(data, dims, &rows, &columns, deadline)?)
        }
        (TensorData::Float32(data), filter) if filter.is_nearest() => {
            to_tensor(target, nearest(data, dims, &rows, &columns, deadline)?)
        }
        (TensorData::Uint8(data), Filter::Bicubic) => {
            to_tensor(target, levels(data, dims, target, Taps::cubic, deadline)?)
        }
        (TensorData::Uint8(data), _) => to_tensor(target, levels(data, dims, target, Taps::linear, deadline)?),
        (TensorData::Float32(data), Filter::Bicubic) => {
            to_tensor(target, floats(data, dims, target, Taps::cubic, deadline)?)
        }
        (TensorData::Float32(data), _) => to_tensor(target, floats(data, dims, target, Taps::linear, deadline)?),
        (other, _) => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
    }
}

/// Bytes with antialiasing: across, rounded to 8 bits, then down. The resizer alone would go down first, which
/// puts a third of the samples of a noisy image elsewhere, some by 40.
fn resize_antialiased(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
    deadline: &Deadline,
) -> Result<Vec<u8>, StepFailure> {
    let across = ImageDims { width: target.width, ..dims };
    let pass = match dims.channels {
        1 => pass::<U8>,
        3 => pass::<U8x3>,
        _ => pass::<U8x4>,
    };
    let wide = if across == dims { None } else { Some(pass(from, dims, across, filter, deadline)?) };
    let from = wide.as_deref().unwrap_or(from);
    if across == target { Ok(from.to_vec()) } else { pass(from, across, target, filter, deadline) }
}

/// Samples of a part of a pass: some milliseconds.
const PART: usize = 4 << 20;

/// One pass of [`resize_antialiased`]: only the width or only the height changes. Works on parts of rows or columns, and
/// checks `deadline` between them.
fn pass<P: PixelTrait>(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
    deadline: &Deadline,
) -> Result<Vec<u8>, StepFailure> {
    let mut result = vec![0; target.height * target.width * target.channels];
    let samples = from.len().max(result.len());
    let source = TypedImageRef::<P>::from_buffer(dims.width as u32, dims.height as u32, from).map_err(cannot)?;
    let (width, height) = (target.width as u32, target.height as u32);
    let mut to = TypedImage::<P>::from_buffer(width, height, &mut result).map_err(cannot)?;
    let across = dims.height == target.height;
    let side = if across { target.height } else { target.width };
    let length = (side * PART / samples.max(1)).clamp(1, side);
    let options = ResizeOptions::new().resize_alg(algorithm(filter)).use_alpha(false);
    for start in (0..side).step_by(length) {
        deadline.check()?;
        let (start, length) = (start as u32, length.min(side - start) as u32);
        let part =
            |width: u32, height: u32| if across { [0, start, width, length] } else { [start, 0, length, height] };
        let [left, top, wide, high] = part(dims.width as u32, dims.height as u32);
        let source = TypedCroppedImage::from_ref(&source, left, top, wide, high).map_err(cannot)?;
        let [left, top, wide, high] = part(width, height);
        let mut to = TypedCroppedImageMut::from_ref(&mut to, left, top, wide, high).map_err(cannot)?;
        Resizer::new().resize_typed(&source, &mut to, &options).map_err(cannot)?;
    }
    Ok(result)
}

fn floats<const N: usize>(
    data: &[f32],
    dims: ImageDims,
    target: ImageDims,
    taps: fn(usize, usize, PositionPrecision) -> Taps<N>,
    deadline: &Deadline,
) -> Result<Vec<f32>, DeadlineExceeded>
where
    f32: Interpolate<N>,
{
    let taps = |old, new| taps(old, new, PositionPrecision::Single);
    mix(data, dims, &taps(dims.width, target.width), &taps(dims.height, target.height), deadline)
}

/// torch's own kernel for bytes: across, rounded to 8 bits, then down.
fn levels<const N: usize>(
    data: &[u8],
    dims: ImageDims,
    target: ImageDims,
    taps: fn(usize, usize, PositionPrecision) -> Taps<N>,
    deadline: &Deadline,
) -> Result<Vec<u8>, DeadlineExceeded> {
    let taps = |old, new| taps(old, new, PositionPrecision::Rounded);
    let wide = taps(dims.width, target.width).along(data, dims.width, dims.channels, deadline)?;
    taps(dims.height, target.height).along(&wide, dims.height, target.width * dims.channels, deadline)
}

fn places(old: usize, new: usize, middle: f32) -> Vec<usize> {
    let scale = old as f32 / new as f32;
    (0..new).map(|index| (((index as f32 + middle) * scale) as usize).min(old - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn finds_the_nearest_pixels_as_torch_does() {
        // `interpolate` of torch 2.15 with `nearest-exact` and `nearest`.
        for (old, new, exact, nearest) in [
            (7, 3, vec![1, 3, 5], vec![0, 2, 4]),
            (3, 7, vec![0, 0, 1, 1, 1, 2, 2], vec![0, 0, 0, 1, 1, 2, 2]),
            (10, 4, vec![1, 3, 6, 8], vec![0, 2, 5, 7]),
        ] {
            assert_eq!((places(old, new, 0.5), places(old, new, 0.0)), (exact, nearest));
        }
    }
}
