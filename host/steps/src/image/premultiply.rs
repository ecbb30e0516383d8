//! Premultiplied alpha: RGBA that may be averaged.

/// Rounded as Pillow does (`RGBa`).
pub(super) fn premultiply(rgba: &[u8]) -> Vec<u8> {
    rgba.as_chunks::<4>()
        .0
        .iter()
        .flat_map(|[red, green, blue, opacity]| {
            [
                multiply_samples(*red, *opacity),
                multiply_samples(*green, *opacity),
                multiply_samples(*blue, *opacity),
                *opacity,
            ]
        })
        .collect()
}

/// The colours as they were.
pub(super) fn unpremultiply(rgba: &mut [u8]) {
    for pixel in rgba.chunks_exact_mut(4) {
        let opacity = u32::from(pixel[3]);
        if opacity != 0 && opacity != 255 {
            for level in &mut pixel[..3] {
                *level = (255 * u32::from(*level) / opacity).min(255) as u8;
            }
        }
    }
}

/// a × b / 255, rounded as Pillow does.
#[inline(always)]
pub(super) fn multiply_samples(a: u8, b: u8) -> u8 {
    let both = u32::from(a) * u32::from(b) + 128;
    ((both + (both >> 8)) >> 8) as u8
}
