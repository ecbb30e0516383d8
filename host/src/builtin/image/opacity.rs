//! RGBA with its colours multiplied by their opacity: what may be averaged.

/// Rounded as Pillow does (`RGBa`).
pub(super) fn weighed(rgba: &[u8]) -> Vec<u8> {
    let weigh = |level: u8, opacity: u8| {
        let product = u32::from(level) * u32::from(opacity) + 128;
        (((product >> 8) + product) >> 8) as u8
    };
    rgba.chunks_exact(4)
        .flat_map(|pixel| [weigh(pixel[0], pixel[3]), weigh(pixel[1], pixel[3]), weigh(pixel[2], pixel[3]), pixel[3]])
        .collect()
}

/// The colours as they were.
pub(super) fn undo(rgba: &mut [u8]) {
    for pixel in rgba.chunks_exact_mut(4) {
        let opacity = u32::from(pixel[3]);
        if opacity != 0 && opacity != 255 {
            for level in &mut pixel[..3] {
                *level = (255 * u32::from(*level) / opacity).min(255) as u8;
            }
        }
    }
}
