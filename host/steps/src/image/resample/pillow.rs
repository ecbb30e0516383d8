//! Pillow's `Image.resize`, to the bit for bytes.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{F32, F32x3, F32x4};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use super::super::dims::ImageDims;
use super::super::premultiply;
use super::weighted::{self, Kernel};
use super::{Filter, nearest, pillow_box, to_tensor};
use crate::deadline::{Deadline, DeadlineExceeded};
use gpux_core::{Color, StepFailure, Tensor, TensorData};

/// Resizes uint8 or float32; where the tensor is known to be RGBA, colours are weighed by their
/// opacity.
pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    let weigh_by_opacity = tensor.metadata.color == Some(Color::Rgba) && dims.channels == 4;
    match (tensor.data(), kernel(filter)) {
        (TensorData::Uint8(data), None) => to_tensor(target, nearest_of(data, dims, target, deadline)?),
        (TensorData::Float32(data), None) => to_tensor(target, nearest_of(data, dims, target, deadline)?),
        (TensorData::Uint8(data), Some(kernel)) if weigh_by_opacity => {
            let mut result = resize_levels(&premultiply::premultiply(data), dims, target, kernel, deadline)?;
            premultiply::unpremultiply(&mut result);
            to_tensor(target, result)
        }
        (TensorData::Uint8(data), Some(kernel)) => {
            to_tensor(target, resize_levels(data, dims, target, kernel, deadline)?)
        }
        // Floats weighed by opacity go the general way.
        (TensorData::Float32(data), Some(Kernel::Box)) if !weigh_by_opacity => {
            let between = between(dims, target);
            let half = pillow_box::resize(data, dims, between, deadline)?;
            to_tensor(target, pillow_box::resize(&half, between, target, deadline)?)
        }
        (TensorData::Float32(data), Some(_)) => {
            to_tensor(target, resize_floats(data, dims, target, filter, weigh_by_opacity, deadline)?)
        }
        (other, _) => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
    }
}

/// The support and weights of a filter; `None` for the nearest neighbour.
fn kernel(filter: Filter) -> Option<Kernel> {
    match filter {
        Filter::Nearest | Filter::NearestExact => None,
        Filter::Bilinear => Some(Kernel::Triangle),
        Filter::Bicubic => Some(Kernel::Cubic),
        Filter::Lanczos => Some(Kernel::Lanczos),
        Filter::Area => Some(Kernel::Box),
    }
}

/// The image between the two passes. Bytes are rounded there, so the order matters: across goes first, but where
/// the height shrinks by more than twice as many pixels as the width (Pillow 13; before, across always did).
pub(super) fn between(dims: ImageDims, target: ImageDims) -> ImageDims {
    let lost = |old: usize, new: usize| old as i128 - new as i128;
    let (height, width) = (lost(dims.height, target.height), lost(dims.width, target.width));
    if height > 0 && height > 2 * width {
        ImageDims { height: target.height, ..dims }
    } else {
        ImageDims { width: target.width, ..dims }
    }
}

fn nearest_of<T: Copy>(
    data: &[T],
    dims: ImageDims,
    target: ImageDims,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    nearest(data, dims, &places(dims.height, target.height), &places(dims.width, target.width), deadline)
}

/// Pillow's nearest neighbour: the source pixel under the middle of each new one, found by adding up
/// steps, so that rounding falls where Pillow's does.
fn places(old: usize, new: usize) -> Vec<usize> {
    let step = old as f64 / new as f64;
    let mut at = step * 0.5;
    (0..new)
        .map(|_| {
            let place = (at as usize).min(old - 1);
            at += step;
            place
        })
        .collect()
}

/// Resizes uint8 samples in two passes, each rounded to 8 bits.
fn resize_levels(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    kernel: Kernel,
    deadline: &Deadline,
) -> Result<Vec<u8>, DeadlineExceeded> {
    let between = between(dims, target);
    let pass = |from: &[u8], dims, target| match kernel {
        Kernel::Box => pillow_box::resize(from, dims, target, deadline),
        _ => weighted::pass(from, dims, target, kernel, deadline),
    };
    let half = if between == dims { None } else { Some(pass(from, dims, between)?) };
    let half = half.as_deref().unwrap_or(from);
    if between == target { Ok(half.to_vec()) } else { pass(half, between, target) }
}

/// Resizes float32 samples, close to Pillow's.
pub(super) fn resize_floats(
    from: &[f32],
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
    weigh_by_opacity: bool,
    deadline: &Deadline,
) -> Result<Vec<f32>, StepFailure> {
    let mut result = vec![0_f32; target.height * target.width * target.channels];
    // Between its passes floats are not rounded, so this cannot be done in parts.
    deadline.check()?;
    let options = ResizeOptions::new().resize_alg(algorithm(filter)).use_alpha(weigh_by_opacity);
    // Typed images: for untyped ones the compiler makes every kernel for 26 kinds of pixels.
    let resize = match dims.channels {
        1 => resize_pixels::<F32>,
        3 => resize_pixels::<F32x3>,
        _ => resize_pixels::<F32x4>,
    };
    resize(bytemuck::cast_slice(from), dims, bytemuck::cast_slice_mut(&mut result), target, &options)?;
    Ok(result)
}

fn resize_pixels<P: PixelTrait>(
    from: &[u8],
    dims: ImageDims,
    to: &mut [u8],
    target: ImageDims,
    options: &ResizeOptions,
) -> Result<(), StepFailure> {
    let source = TypedImageRef::<P>::from_buffer(dims.width as u32, dims.height as u32, from).map_err(cannot)?;
    let mut to = TypedImage::<P>::from_buffer(target.width as u32, target.height as u32, to).map_err(cannot)?;
    Resizer::new().resize_typed(&source, &mut to, options).map_err(cannot)
}

/// The filter by the name that `fast_image_resize` has for it.
pub(super) fn algorithm(filter: Filter) -> ResizeAlg {
    match filter {
        Filter::Nearest | Filter::NearestExact => ResizeAlg::Nearest,
        Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Filter::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
        Filter::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
        Filter::Area => ResizeAlg::Convolution(FilterType::Box),
    }
}

pub(super) fn cannot(error: impl std::fmt::Display) -> StepFailure {
    StepFailure::Failed(format!("cannot resize: {error}"))
}
