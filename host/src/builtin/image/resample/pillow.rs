//! Pillow's `Image.resize`, with `fast_image_resize` where its numbers are close enough.

use fast_image_resize::images::{CroppedImage, CroppedImageMut, Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::super::dims::ImageDims;
use super::super::opacity;
use super::{Filter, area, nearest, to_tensor};
use crate::builtin::watch::Watch;
use crate::pipeline::{Color, StepFailure, Tensor, TensorData};

/// Resizes uint8 or float32; where the tensor is known to be RGBA, colours are weighed by their
/// opacity.
pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
    watch: &Watch,
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
        TensorData::Float32(data) if averages => to_tensor(target, area::resize(data, dims, target, watch)?),
        TensorData::Uint8(data) if filter == Filter::Nearest => {
            to_tensor(target, nearest(data, dims, &rows, &columns, watch)?)
        }
        TensorData::Float32(data) if filter == Filter::Nearest => {
            to_tensor(target, nearest(data, dims, &rows, &columns, watch)?)
        }
        TensorData::Uint8(data) => to_tensor(target, resize_levels(data, dims, target, alg, weigh_by_opacity, watch)?),
        TensorData::Float32(data) => {
            to_tensor(target, resize_floats(data, dims, target, alg, weigh_by_opacity, watch)?)
        }
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
    watch: &Watch,
) -> Result<Vec<u8>, StepFailure> {
    let weighed = weigh_by_opacity.then(|| opacity::weighed(from));
    let from = weighed.as_deref().unwrap_or(from);
    let across = ImageDims { width: target.width, ..dims };
    let wide = if across == dims { None } else { Some(pass(from, dims, across, alg, watch)?) };
    let from = wide.as_deref().unwrap_or(from);
    let mut result = if across == target { from.to_vec() } else { pass(from, across, target, alg, watch)? };
    if weigh_by_opacity {
        opacity::undo(&mut result);
    }
    Ok(result)
}

/// Samples of a part of a pass: some milliseconds.
const PART: usize = 4 << 20;

/// One pass of [`resize_levels`]: only the width or only the height changes. In parts, of rows or of
/// columns, of which each is found for itself; between them, `watch` is asked.
fn pass(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    alg: ResizeAlg,
    watch: &Watch,
) -> Result<Vec<u8>, StepFailure> {
    if alg == ResizeAlg::Convolution(FilterType::Box) {
        return Ok(area::resize(from, dims, target, watch)?);
    }
    let of = match dims.channels {
        1 => PixelType::U8,
        3 => PixelType::U8x3,
        _ => PixelType::U8x4,
    };
    let mut result = vec![0; target.height * target.width * target.channels];
    let samples = from.len().max(result.len());
    let source = ImageRef::new(dims.width as u32, dims.height as u32, from, of).map_err(cannot)?;
    let (width, height) = (target.width as u32, target.height as u32);
    let mut to = Image::from_slice_u8(width, height, &mut result, of).map_err(cannot)?;
    let across = dims.height == target.height;
    let side = if across { target.height } else { target.width };
    let length = (side * PART / samples.max(1)).clamp(1, side);
    let options = ResizeOptions::new().resize_alg(alg).use_alpha(false);
    for start in (0..side).step_by(length) {
        watch.ask()?;
        let (start, length) = (start as u32, length.min(side - start) as u32);
        let part =
            |width: u32, height: u32| if across { [0, start, width, length] } else { [start, 0, length, height] };
        let [left, top, wide, high] = part(dims.width as u32, dims.height as u32);
        let source = CroppedImage::new(&source, left, top, wide, high).map_err(cannot)?;
        let [left, top, wide, high] = part(width, height);
        let mut to = CroppedImageMut::new(&mut to, left, top, wide, high).map_err(cannot)?;
        Resizer::new().resize(&source, &mut to, &options).map_err(cannot)?;
    }
    Ok(result)
}

fn resize_floats(
    from: &[f32],
    dims: ImageDims,
    target: ImageDims,
    alg: ResizeAlg,
    weigh_by_opacity: bool,
    watch: &Watch,
) -> Result<Vec<f32>, StepFailure> {
    let of = match dims.channels {
        1 => PixelType::F32,
        3 => PixelType::F32x3,
        _ => PixelType::F32x4,
    };
    let mut result = vec![0_f32; target.height * target.width * target.channels];
    let source =
        ImageRef::new(dims.width as u32, dims.height as u32, bytemuck::cast_slice(from), of).map_err(cannot)?;
    let (width, height) = (target.width as u32, target.height as u32);
    let mut to = Image::from_slice_u8(width, height, bytemuck::cast_slice_mut(&mut result), of).map_err(cannot)?;
    // Between its passes floats are not rounded, so this cannot be done in parts.
    watch.ask()?;
    let options = ResizeOptions::new().resize_alg(alg).use_alpha(weigh_by_opacity);
    Resizer::new().resize(&source, &mut to, &options).map_err(cannot)?;
    Ok(result)
}

fn cannot(error: impl std::fmt::Display) -> StepFailure {
    StepFailure::Failed(format!("cannot resize: {error}"))
}
