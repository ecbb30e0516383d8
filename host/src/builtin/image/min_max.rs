//! Numbers stretched to 0..1 by what an image itself holds.

/// How the elements of a tensor are grouped: which lie together, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    /// elements of one image
    pub(super) image: usize,
    /// channels that are stretched each by itself; 1 for the image as a whole
    pub(super) channels: usize,
    /// elements of one channel that lie side by side
    pub(super) run: usize,
}

/// `(x - min) / (max - min)` in each group; 0 where all are equal, NaN where one is.
pub(super) fn stretch(data: &mut [f32], groups: Groups) {
    let Groups { image, channels, run } = groups;
    for image in data.chunks_exact_mut(image.max(1)) {
        for channel in 0..channels {
            let values = image.chunks_exact(run).skip(channel).step_by(channels).flatten();
            let start = (f32::INFINITY, f32::NEG_INFINITY);
            let (low, high) = values.fold(start, |(low, high), x| (smaller(low, *x), larger(high, *x)));
            let range = high - low;
            let range = if range == 0.0 { 1.0 } else { range };
            for run in image.chunks_exact_mut(run).skip(channel).step_by(channels) {
                for x in run {
                    *x = (*x - low) / range;
                }
            }
        }
    }
}

/// Unlike `f32::min`, NaN stays, as in NumPy.
fn smaller(low: f32, x: f32) -> f32 {
    if x < low || x.is_nan() { x } else { low }
}

fn larger(high: f32, x: f32) -> f32 {
    if x > high || x.is_nan() { x } else { high }
}
