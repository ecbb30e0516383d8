//! Pillow's `Image.resize`, with `fast_image_resize` where its numbers are close enough.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::super::dims::ImageDims;
use super::super::opacity;
use super::{Filter, area, nearest, to_tensor};
use crate::pipeline::{Color, StepFailure, Tensor, TensorData};

/// Resizes uint8 or float32; where the tensor is known to be RGBA, colours are weighed by their
/// opacity.
pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
) -> Result<Tensor, StepFailure> {
    let weigh_by_opacity = tensor.metadata.color == Some(Color::Rgba) && dims.channels == 4;
    let alg = match filter {
        Filter::Nearest => ResizeAlg::Nearest,
        Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Filter::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
        Filter::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
        Filter::Area => ResizeAlg::Convolution(FilterType::Box),
    };
    // Floats weighed by opacity go the general way.
    let averages = filter == Filter::Area && !weigh_by_opacity;
    let (rows, columns) = (places(dims.height, target.height), places(dims.width, target.width));
    match tensor.data() {
        TensorData::Float32(data) if averages => to_tensor(target, area::resize(data, dims, target)),
        TensorData::Uint8(data) if filter == Filter::Nearest => to_tensor(target, nearest(data, dims, &rows, &columns)),
        TensorData::Float32(data) if filter == Filter::Nearest => {
            to_tensor(target, nearest(data, dims, &rows, &columns))
        }
        TensorData::Uint8(data) => to_tensor(target, resize_levels(data, dims, target, alg, weigh_by_opacity)?),
        TensorData::Float32(data) => to_tensor(target, resize_floats(data, dims, target, alg, weigh_by_opacity)?),
        other => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
    }
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

/// Resizes uint8 samples as Pillow does: across, rounded to 8 bits, then down. The resizer alone
/// would go down first, which puts a third of the samples of a noisy image elsewhere, some by 40.
fn resize_levels(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    alg: ResizeAlg,
    weigh_by_opacity: bool,
) -> Result<Vec<u8>, StepFailure> {
    let weighed = weigh_by_opacity.then(|| opacity::weighed(from));
    let from = weighed.as_deref().unwrap_or(from);
    let across = ImageDims { width: target.width, ..dims };
    let wide = if across == dims { None } else { Some(pass(from, dims, across, alg)?) };
    let from = wide.as_deref().unwrap_or(from);
    let mut result = if across == target { from.to_vec() } else { pass(from, across, target, alg)? };
    if weigh_by_opacity {
        opacity::undo(&mut result);
    }
    Ok(result)
}

/// One pass of [`resize_levels`]: only the width or only the height changes.
fn pass(from: &[u8], dims: ImageDims, target: ImageDims, alg: ResizeAlg) -> Result<Vec<u8>, StepFailure> {
    if alg == ResizeAlg::Convolution(FilterType::Box) {
        return Ok(area::resize(from, dims, target));
    }
    let of = match dims.channels {
        1 => PixelType::U8,
        3 => PixelType::U8x3,
        _ => PixelType::U8x4,
    };
    let mut result = vec![0; target.height * target.width * target.channels];
    let sizes = [(dims.width, dims.height), (target.width, target.height)];
    convolve(from, &mut result, sizes, of, alg, false)?;
    Ok(result)
}

fn resize_floats(
    from: &[f32],
    dims: ImageDims,
    target: ImageDims,
    alg: ResizeAlg,
    weigh_by_opacity: bool,
) -> Result<Vec<f32>, StepFailure> {
    let of = match dims.channels {
        1 => PixelType::F32,
        3 => PixelType::F32x3,
        _ => PixelType::F32x4,
    };
    let mut result = vec![0_f32; target.height * target.width * target.channels];
    let sizes = [(dims.width, dims.height), (target.width, target.height)];
    let (from, to) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(&mut result));
    convolve(from, to, sizes, of, alg, weigh_by_opacity)?;
    Ok(result)
}

/// Calls the resizer on samples as bytes; the two sizes are (width, height) before and after.
fn convolve(
    from: &[u8],
    to: &mut [u8],
    sizes: [(usize, usize); 2],
    of: PixelType,
    alg: ResizeAlg,
    weigh_by_opacity: bool,
) -> Result<(), StepFailure> {
    let fail = |error: &dyn std::fmt::Display| StepFailure::Failed(format!("cannot resize: {error}"));
    let [before, after] = sizes.map(|(width, height)| (width as u32, height as u32));
    let source = ImageRef::new(before.0, before.1, from, of).map_err(|error| fail(&error))?;
    let mut result = Image::from_slice_u8(after.0, after.1, to, of).map_err(|error| fail(&error))?;
    let options = ResizeOptions::new().resize_alg(alg).use_alpha(weigh_by_opacity);
    Resizer::new().resize(&source, &mut result, &options).map_err(|error| fail(&error))
}
