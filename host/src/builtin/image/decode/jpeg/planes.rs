//! From the planes of a picture's components to its pixels: the smooth ("fancy") upsampling of
//! libjpeg and its conversion of colours, with the same roundings.

use super::head::Colors;

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
    sums: Vec<i16>,
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
                self.sums.clear();
                self.sums.extend(near.iter().map(|near| i16::from(*near)));
                spread::<2, 1, 2>(&self.sums, &mut self.row);
            }
            (2, 2) if plane.width > 2 => {
                let far = plane.row(neighbour(y, plane.height));
                self.sums.clear();
                self.sums.extend(near.iter().zip(far).map(|(near, far)| i16::from(*near) * 3 + i16::from(*far)));
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
}

/// The row that lies on the other side of `y` than the one it comes from.
fn neighbour(y: usize, height: usize) -> usize {
    if y.is_multiple_of(2) { (y / 2).saturating_sub(1) } else { (y / 2 + 1).min(height - 1) }
}

/// Two columns for each sum, three quarters of it and one of the nearer neighbour.
#[inline(always)]
fn spread<const SHIFT: i16, const LEFT: i16, const RIGHT: i16>(sums: &[i16], row: &mut [u8]) {
    let last = sums.len() - 1;
    let (pairs, _) = row.as_chunks_mut::<2>();
    let ends = |near: i16, far: i16, round: i16| ((near * 3 + far + round) >> SHIFT) as u8;
    for (pair, sums) in pairs[1..].iter_mut().zip(sums.windows(3)) {
        *pair = [ends(sums[1], sums[0], LEFT), ends(sums[1], sums[2], RIGHT)];
    }
    pairs[0] = [ends(sums[0], sums[0], LEFT), ends(sums[0], sums[1], RIGHT)];
    pairs[last] = [ends(sums[last], sums[last - 1], LEFT), ends(sums[last], sums[last], RIGHT)];
}

/// Pixels computed together.
const LANES: usize = 16;

/// A row of YCbCr as RGB.
#[inline(always)]
pub(super) fn rgb(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let (pixels, rest) = out.as_chunks_mut::<{ LANES * 3 }>();
    let split = pixels.len() * LANES;
    let parts = [y, cb, cr].map(|part| part.split_at(split));
    let lanes = parts.map(|(whole, _)| whole.as_chunks::<LANES>().0);
    for (((out, y), cb), cr) in pixels.iter_mut().zip(lanes[0]).zip(lanes[1]).zip(lanes[2]) {
        write(out, &levels(y, cb, cr));
    }
    let [(_, y), (_, cb), (_, cr)] = parts;
    for (((out, y), cb), cr) in rest.as_chunks_mut::<3>().0.iter_mut().zip(y).zip(cb).zip(cr) {
        *out = pixel(*y, *cb, *cr).map(|level| level as u8);
    }
}

#[inline(always)]
fn levels(y: &[u8; LANES], cb: &[u8; LANES], cr: &[u8; LANES]) -> [[u8; 4]; LANES] {
    let mut packed = [[0; 4]; LANES];
    for lane in 0..LANES {
        let [red, green, blue] = pixel(y[lane], cb[lane], cr[lane]);
        packed[lane] = [red as u8, green as u8, blue as u8, 0];
    }
    packed
}

/// Pixels of four bytes as pixels of three.
#[inline(always)]
fn write(out: &mut [u8; LANES * 3], packed: &[[u8; 4]; LANES]) {
    for (out, four) in out.as_chunks_mut::<12>().0.iter_mut().zip(packed.as_chunks::<4>().0) {
        let [a, b, c, d] = four.map(u32::from_le_bytes);
        let words = [a | b << 24, b >> 8 | c << 16, c >> 16 | d << 8];
        out.copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
    }
}

/// ITU-R 601-2 in 16 bits after the point. The factors that do not fit in 16 bits are split, so that
/// products of 16 bits are enough: 1.402 = 1 + 26345, 0.71414 = 1 - 18734, 1.772 = 2 - 14942.
#[inline(always)]
fn pixel(y: u8, cb: u8, cr: u8) -> [i16; 3] {
    const HALF: i32 = 1 << 15;
    let times = |value: i16, factor: i16| i32::from(value) * i32::from(factor);
    let (y, cb, cr) = (i16::from(y), i16::from(cb) - 128, i16::from(cr) - 128);
    let red = y + cr + ((times(cr, 26345) + HALF) >> 16) as i16;
    let green = y - cr + ((times(cb, -22554) + times(cr, 18734) + HALF) >> 16) as i16;
    let blue = y + 2 * cb + ((times(cb, -14942) + HALF) >> 16) as i16;
    [red, green, blue].map(|level| level.clamp(0, 255))
}

/// A row of any colours as gray or RGB. CMYK lies inverted in the file, as Adobe writes it and Pillow
/// takes it for granted.
#[inline(always)]
pub(super) fn convert(colors: Colors, [a, b, c, d]: [&[u8]; 4], out: &mut [u8]) {
    match colors {
        Colors::Gray => out.copy_from_slice(a),
        Colors::YCbCr => rgb(a, b, c, out),
        Colors::Rgb => {
            for ((out, (red, green)), blue) in out.as_chunks_mut::<3>().0.iter_mut().zip(a.iter().zip(b)).zip(c) {
                *out = [*red, *green, *blue];
            }
        }
        Colors::Cmyk | Colors::Ycck => {
            let inks = a.iter().zip(b).zip(c).zip(d);
            for (out, (((a, b), c), black)) in out.as_chunks_mut::<3>().0.iter_mut().zip(inks) {
                // What is left of white: inverted inks are light.
                let inverted = if colors == Colors::Ycck {
                    pixel(*a, *b, *c).map(|level| 255 - level as u8)
                } else {
                    [*a, *b, *c]
                };
                *out = inverted.map(|light| *black - product(255 - light, *black));
            }
        }
    }
}

/// a × b / 255, rounded.
fn product(a: u8, b: u8) -> u8 {
    let both = u32::from(a) * u32::from(b) + 128;
    ((both + (both >> 8)) >> 8) as u8
}
