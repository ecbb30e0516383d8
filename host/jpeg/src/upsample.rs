//! Rows of full width from the planes of components: libjpeg's smooth ("fancy") upsampling, with the same
//! roundings.

/// Samples of one component.
pub(crate) struct Plane {
    pub(crate) samples: Vec<u8>,
    /// samples from a row to the next
    pub(crate) stride: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// columns and rows of the image for each sample
    pub(crate) horizontal_ratio: usize,
    pub(crate) vertical_ratio: usize,
}

impl Plane {
    fn row(&self, row: usize) -> &[u8] {
        &self.samples[row * self.stride..][..self.width]
    }
}

pub(crate) struct Upsampler {
    /// weighted sums of two rows, with the edges replicated
    sums: Vec<u16>,
    row: Vec<u8>,
}

impl Upsampler {
    pub(crate) fn new(width: usize) -> Self {
        // The last sample may reach beyond the edge by up to three columns.
        Self { sums: Vec::new(), row: vec![0; width + 4] }
    }

    /// Row `y` of the image.
    #[inline(always)]
    pub(crate) fn row<'a>(&'a mut self, plane: &'a Plane, y: usize) -> &'a [u8] {
        let near = plane.row(y / plane.vertical_ratio);
        // libjpeg replicates planes of at most two columns.
        match (plane.horizontal_ratio, plane.vertical_ratio) {
            (1, 1) => return near,
            (1, 2) => {
                let bias = if y.is_multiple_of(2) { 1 } else { 2 };
                let far = plane.row(neighbor_row(y, plane.height));
                for ((to, near), far) in self.row.iter_mut().zip(near).zip(far) {
                    *to = ((u16::from(*near) * 3 + u16::from(*far) + bias) >> 2) as u8;
                }
            }
            (2, 1) if plane.width > 2 => {
                self.sums.resize(plane.width + 2, 0);
                for (sum, near) in self.sums[1..].iter_mut().zip(near) {
                    *sum = u16::from(*near);
                }
                self.replicate_edges();
                interpolate::<2, 1, 2>(&self.sums, &mut self.row);
            }
            (2, 2) if plane.width > 2 => {
                let far = plane.row(neighbor_row(y, plane.height));
                self.sums.resize(plane.width + 2, 0);
                for ((sum, near), far) in self.sums[1..].iter_mut().zip(near).zip(far) {
                    *sum = u16::from(*near) * 3 + u16::from(*far);
                }
                self.replicate_edges();
                interpolate::<4, 8, 7>(&self.sums, &mut self.row);
            }
            (ratio, _) => {
                for (to, near) in self.row.chunks_mut(ratio).zip(near) {
                    to.fill(*near);
                }
            }
        }
        &self.row
    }

    #[inline(always)]
    fn replicate_edges(&mut self) {
        if let [before, first, .., last, behind] = &mut self.sums[..] {
            (*before, *behind) = (*first, *last);
        }
    }
}

/// The row of the plane that is second nearest to row `y` of the image, where each stands for two.
fn neighbor_row(y: usize, height: usize) -> usize {
    if y.is_multiple_of(2) { (y / 2).saturating_sub(1) } else { (y / 2 + 1).min(height - 1) }
}

/// Two columns for each sum: three quarters of it and a quarter of the nearer neighbor.
#[inline(always)]
fn interpolate<const SHIFT: u16, const LEFT: u16, const RIGHT: u16>(sums: &[u16], row: &mut [u8]) {
    let (before, behind) = (sums, sums.get(2..).unwrap_or_default());
    let near = sums.get(1..).unwrap_or_default();
    for (((pair, near), before), behind) in row.as_chunks_mut().0.iter_mut().zip(near).zip(before).zip(behind) {
        let (left, right) = ((near * 3 + before + LEFT) >> SHIFT, (near * 3 + behind + RIGHT) >> SHIFT);
        // As one integer, vectors of pairs are stored without a shuffle.
        *pair = (left | right << 8).to_le_bytes();
    }
}
