//! The planes of a picture's components, and rows of full width from them: the smooth ("fancy")
//! upsampling of libjpeg, with the same roundings.

/// Samples of one component.
pub(super) struct Plane {
    pub(super) samples: Vec<u8>,
    /// samples from a row to the next
    pub(super) stride: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    /// how many columns and rows of the picture one sample stands for
    pub(super) across: usize,
    pub(super) down: usize,
}

impl Plane {
    fn row(&self, row: usize) -> &[u8] {
        &self.samples[row * self.stride..][..self.width]
    }
}

/// Makes rows of full width.
pub(super) struct Upsampler {
    /// with one more at both ends
    sums: Vec<u16>,
    row: Vec<u8>,
}

impl Upsampler {
    pub(super) fn new(width: usize) -> Self {
        // The last sample may reach over the edge by up to three columns.
        Self { sums: Vec::new(), row: vec![0; width + 4] }
    }

    /// Row `y` of the picture.
    #[inline(always)]
    pub(super) fn row<'a>(&'a mut self, plane: &'a Plane, y: usize) -> &'a [u8] {
        let near = plane.row(y / plane.down);
        // libjpeg smooths nothing that is two samples wide.
        match (plane.across, plane.down) {
            (1, 1) => return near,
            (1, 2) => {
                let bias = if y.is_multiple_of(2) { 1 } else { 2 };
                let far = plane.row(neighbour(y, plane.height));
                for ((to, near), far) in self.row.iter_mut().zip(near).zip(far) {
                    *to = ((u16::from(*near) * 3 + u16::from(*far) + bias) >> 2) as u8;
                }
            }
            (2, 1) if plane.width > 2 => {
                self.sums.resize(plane.width + 2, 0);
                for (sum, near) in self.sums[1..].iter_mut().zip(near) {
                    *sum = u16::from(*near);
                }
                self.ends();
                spread::<2, 1, 2>(&self.sums, &mut self.row);
            }
            (2, 2) if plane.width > 2 => {
                let far = plane.row(neighbour(y, plane.height));
                self.sums.resize(plane.width + 2, 0);
                for ((sum, near), far) in self.sums[1..].iter_mut().zip(near).zip(far) {
                    *sum = u16::from(*near) * 3 + u16::from(*far);
                }
                self.ends();
                spread::<4, 8, 7>(&self.sums, &mut self.row);
            }
            (across, _) => {
                for (to, near) in self.row.chunks_mut(across).zip(near) {
                    to.fill(*near);
                }
            }
        }
        &self.row
    }

    #[inline(always)]
    fn ends(&mut self) {
        if let [before, first, .., last, behind] = &mut self.sums[..] {
            (*before, *behind) = (*first, *last);
        }
    }
}

/// The row that lies on the other side of `y` than the one it comes from.
fn neighbour(y: usize, height: usize) -> usize {
    if y.is_multiple_of(2) { (y / 2).saturating_sub(1) } else { (y / 2 + 1).min(height - 1) }
}

/// Two columns for each sum, three quarters of it and one of the nearer neighbour. Before the first sum
/// and behind the last one stands the same again.
#[inline(always)]
fn spread<const SHIFT: u16, const LEFT: u16, const RIGHT: u16>(sums: &[u16], row: &mut [u8]) {
    let (before, behind) = (sums, sums.get(2..).unwrap_or_default());
    let near = sums.get(1..).unwrap_or_default();
    for (((pair, near), before), behind) in row.as_chunks_mut().0.iter_mut().zip(near).zip(before).zip(behind) {
        let (left, right) = ((near * 3 + before + LEFT) >> SHIFT, (near * 3 + behind + RIGHT) >> SHIFT);
        // One number of both, so that vectors of them are stored as they are.
        *pair = (left | right << 8).to_le_bytes();
    }
}
