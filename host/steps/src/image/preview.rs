//! A small picture of a tensor, to show a step's output.

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder as _};

use super::dims::supports_channels;
use gpux_core::{Color, ElementType, Layout, Tensor};

/// A PNG file of the tensor, if that is an image: known to be one, or three axes of bytes with the
/// channels last. No side is longer than `side`: of larger images, only every so many pixels are
/// taken, so that the work is bounded as well.
///
/// Bytes are shown as they are, numbers between 0 and 1 from black to white, and all others from
/// the least (black) to the greatest (white).
pub fn preview(tensor: &Tensor, side: usize) -> Option<Vec<u8>> {
    let pixels = pixels(tensor, side)?;
    let &[height, width, channels] = pixels.shape() else { return None };
    let bytes = match pixels.as_slice::<u8>() {
        Some(bytes) => bytes.to_vec(),
        None => shades(pixels.cast(ElementType::Float32).ok()?.as_slice::<f32>()?),
    };
    let color = match channels {
        1 => ExtendedColorType::L8,
        3 => ExtendedColorType::Rgb8,
        _ => ExtendedColorType::Rgba8,
    };
    let mut file = Vec::new();
    PngEncoder::new_with_quality(&mut file, CompressionType::Fast, FilterType::Adaptive)
        .write_image(&bytes, u32::try_from(width).ok()?, u32::try_from(height).ok()?, color)
        .ok()?;
    Some(file)
}

/// Height × width × channels in red, green, blue order, thinned out to `side`.
fn pixels(tensor: &Tensor, side: usize) -> Option<Tensor> {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    // One image of a batch of one.
    let skipped = usize::from(shape.len() == 4 && shape[0] == 1);
    let (shape, strides) = (&shape[skipped..], &strides[skipped..]);
    if shape.len() != 3 || tensor.is_empty() || tensor.element() == ElementType::String {
        return None;
    }
    let [y, x, c] = match tensor.metadata.layout {
        Some(Layout::Hwc) => [0, 1, 2],
        Some(Layout::Chw) => [1, 2, 0],
        None if tensor.element() == ElementType::Uint8 => [0, 1, 2],
        None => return None,
    };
    if !supports_channels(shape[c]) {
        return None;
    }
    let thinned = |axis: usize| {
        let step = shape[axis].div_ceil(side.max(1)).max(1);
        (shape[axis].div_ceil(step), strides[axis] * step as isize)
    };
    let (start, channels) = match tensor.metadata.color {
        Some(Color::Bgr) if shape[c] == 3 => (2 * strides[c].unsigned_abs(), (3, -strides[c])),
        _ => (0, (shape[c], strides[c])),
    };
    tensor.pick(start, &[thinned(y), thinned(x), channels]).ok()
}

fn shades(numbers: &[f32]) -> Vec<u8> {
    let finite = || numbers.iter().copied().filter(|number| number.is_finite());
    let (least, most) = (finite().fold(f32::INFINITY, f32::min), finite().fold(f32::NEG_INFINITY, f32::max));
    let (least, most) = if least >= 0.0 && most <= 1.0 { (0.0, 1.0) } else { (least, most) };
    let range = if most > least { most - least } else { 1.0 };
    // Converting clamps, and turns NaN into 0.
    numbers.iter().map(|number| ((number - least) / range * 255.0).round() as u8).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Metadata, TensorElement};

    fn image<T: TensorElement>(shape: &[usize], data: Vec<T>, layout: Layout, color: Option<Color>) -> Tensor {
        let metadata = Metadata { layout: Some(layout), color, ..Metadata::default() };
        Tensor::new(shape, data).unwrap().with_metadata(metadata)
    }

    fn seen(tensor: &Tensor) -> Vec<u8> {
        image::load_from_memory(&preview(tensor, 4).unwrap()).unwrap().into_bytes()
    }

    #[test]
    fn preview_shows_the_pixels() {
        let bytes = image(&[1, 2, 3], vec![1_u8, 2, 3, 4, 5, 6], Layout::Hwc, None);
        assert_eq!(seen(&bytes), [1, 2, 3, 4, 5, 6]);
        let blue_first = image(&[1, 2, 3], vec![1_u8, 2, 3, 4, 5, 6], Layout::Hwc, Some(Color::Bgr));
        assert_eq!(seen(&blue_first), [3, 2, 1, 6, 5, 4]);
        let planes = image(&[3, 1, 2], vec![1_u8, 4, 2, 5, 3, 6], Layout::Chw, None);
        assert_eq!(seen(&planes), [1, 2, 3, 4, 5, 6]);
        let batch = image(&[1, 1, 1, 2], vec![0.0_f32, 1.0], Layout::Chw, None);
        assert_eq!(seen(&batch), [0, 255]);
        let around_zero = image(&[1, 3, 1], vec![-2.0_f32, 0.0, 2.0], Layout::Hwc, None);
        assert_eq!(seen(&around_zero), [0, 128, 255]);
        assert_eq!(seen(&image(&[1, 2, 1], vec![f32::NAN, f32::INFINITY], Layout::Hwc, None)).len(), 2);
        assert_eq!(seen(&image(&[1, 2, 1], vec![7_i64, 7], Layout::Hwc, None)), [0, 0]);
    }

    #[test]
    fn downsamples_large_images_and_skips_other_tensors() {
        let large = Tensor::new([9, 1, 1], (0..9).collect::<Vec<u8>>()).unwrap();
        assert_eq!(seen(&large), [0, 3, 6]);
        assert_eq!(preview(&Tensor::new([4], vec![1_u8; 4]).unwrap(), 4), None);
        assert_eq!(preview(&Tensor::new([2, 2, 1], vec![1_f32; 4]).unwrap(), 4), None);
        assert_eq!(preview(&Tensor::new([2, 2, 2], vec![1_u8; 8]).unwrap(), 4), None);
        assert_eq!(preview(&Tensor::new([0, 2, 3], Vec::<u8>::new()).unwrap(), 4), None);
    }
}
