//! Numbers stretched to 0..1 by what an image itself holds.

use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};

/// The groups of elements that are stretched together.
#[derive(Clone, Copy, Debug)]
pub(super) struct StretchGroups {
    /// elements of one image
    pub(super) image: usize,
    /// channels that are stretched each by itself; 1 for the image as a whole
    pub(super) channels: usize,
    /// elements of one channel that lie side by side
    pub(super) run: usize,
}

/// `(x - min) / (max - min)` in each group; 0 where all are equal, NaN where one is.
pub(super) fn stretch(data: &mut [f32], groups: StretchGroups, deadline: &Deadline) -> Result<(), DeadlineExceeded> {
    let StretchGroups { image, channels, run } = groups;
    // An image that is stretched as a whole has no runs, and needs only an occasional deadline check.
    let run = if channels == 1 { ELEMENTS_PER_CHECK } else { run };
    let mut block = ElementCounter(deadline, 0);
    for image in data.chunks_exact_mut(image.max(1)) {
        for channel in 0..channels {
            let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
            for run in image.chunks(run).skip(channel).step_by(channels) {
                block.add(run.len())?;
                (low, high) = run.iter().fold((low, high), |(low, high), x| (smaller(low, *x), larger(high, *x)));
            }
            let range = high - low;
            let range = if range == 0.0 { 1.0 } else { range };
            for run in image.chunks_mut(run).skip(channel).step_by(channels) {
                block.add(run.len())?;
                for x in run {
                    *x = (*x - low) / range;
                }
            }
        }
    }
    Ok(())
}

/// Checks the deadline once for many short runs.
struct ElementCounter<'w>(&'w Deadline, usize);

impl ElementCounter<'_> {
    #[inline(always)]
    fn add(&mut self, elements: usize) -> Result<(), DeadlineExceeded> {
        self.1 += elements;
        if self.1 >= ELEMENTS_PER_CHECK { self.0.check_after(std::mem::take(&mut self.1)) } else { Ok(()) }
    }
}

/// Unlike `f32::min`, NaN stays, as in NumPy.
fn smaller(low: f32, x: f32) -> f32 {
    if x < low || x.is_nan() { x } else { low }
}

fn larger(high: f32, x: f32) -> f32 {
    if x > high || x.is_nan() { x } else { high }
}
