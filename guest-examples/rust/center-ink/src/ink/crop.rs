//! The character cut out, bright on black.

use super::character::Ink;
use super::grid::Grid;
use super::{Centered, LANES};

/// The largest margin that is honoured.
const MAX_MARGIN: f32 = 4.0;

/// The pixels of the ink's area as ink: 0 is paper, 255 is ink.
pub(super) struct Crop {
    width: usize,
    pixels: Vec<u8>,
}

impl Crop {
    /// Shares of the contrast below which a pixel is paper and above which it is ink.
    const PAPER_SHARE: f32 = 0.3;
    const INK_SHARE: f32 = 0.9;
    /// Fixed-point one of the contrast's gain: 64 * 255 fits `i16`.
    const ONE_BITS: u32 = 6;

    pub(super) fn read(gray: &[u8], stride: usize, grid: &Grid, ink: &Ink) -> Self {
        let (area, cell) = (ink.area, grid.cell);
        let width = (area.right - area.left + 1) * cell;
        let height = (area.bottom - area.top + 1) * cell;
        let low = (Self::PAPER_SHARE * ink.contrast) as i16;
        let range = ((Self::INK_SHARE * ink.contrast) as i16 - low).max(1);
        let curve =
            Curve { sign: if ink.dark { -1 } else { 1 }, range, gain: ((255 << Self::ONE_BITS) + range - 1) / range };

        let mut pixels = vec![0_u8; width * height];
        let mut offsets = vec![0_i16; width];
        let bands = pixels.chunks_exact_mut(width * cell).enumerate();
        for (band, pixels) in bands {
            let row = area.top + band;
            let levels = &ink.paper[row * grid.cols..][area.left..=area.right];
            for (offsets, level) in offsets.chunks_exact_mut(cell).zip(levels) {
                let offset = level.map_or(-1024, |level| -low - curve.sign * level.round() as i16);
                offsets.fill(offset);
            }
            for (y, pixels) in pixels.chunks_exact_mut(width).enumerate() {
                let start = (row * cell + y) * stride + area.left * cell;
                curve.apply(&gray[start..start + width], &offsets, pixels);
            }
        }
        Self { width, pixels }
    }

    /// The crop without empty rows and columns, in the middle of a square.
    pub(super) fn center(&self, margin: f32) -> Option<Centered> {
        let mut row_sums = Vec::with_capacity(self.pixels.len() / self.width);
        let mut column_sums = vec![0_u32; self.width];
        for row in self.pixels.chunks_exact(self.width) {
            let mut sum = 0;
            for (column, &pixel) in column_sums.iter_mut().zip(row) {
                *column += u32::from(pixel);
                sum += u32::from(pixel);
            }
            row_sums.push(sum);
        }
        let (left, right) = inked(&column_sums)?;
        let (top, bottom) = inked(&row_sums)?;
        let (width, height) = (right - left, bottom - top);
        let long = width.max(height);
        // Not-a-number casts to 0.
        let free = (long as f32 * margin.clamp(0.0, MAX_MARGIN)).round() as usize;
        let side = long + 2 * free;

        let mut pixels = vec![0; side * side];
        let (x, y) = ((side - width) / 2, (side - height) / 2);
        let source = self.pixels.chunks_exact(self.width).skip(top).take(height);
        for (target, source) in pixels.chunks_exact_mut(side).skip(y).zip(source) {
            target[x..x + width].copy_from_slice(&source[left..right]);
        }
        Some(Centered { side, pixels })
    }
}

/// Where the sums first and last reach a twelfth of the largest: start and end, the end not included.
fn inked(sums: &[u32]) -> Option<(usize, usize)> {
    let enough = sums.iter().max()? / 12;
    let first = sums.iter().position(|&sum| sum > enough)?;
    let last = sums.iter().rposition(|&sum| sum > enough)?;
    Some((first, last + 1))
}

/// The contrast curve from gray levels to ink, in fixed point.
struct Curve {
    sign: i16,
    range: i16,
    gain: i16,
}

impl Curve {
    fn apply(&self, gray: &[u8], offsets: &[i16], ink: &mut [u8]) {
        let (gray_chunks, gray_rest) = gray.as_chunks::<LANES>();
        let (offset_chunks, offset_rest) = offsets.as_chunks::<LANES>();
        let (ink_chunks, ink_rest) = ink.as_chunks_mut::<LANES>();
        for ((gray, offsets), ink) in gray_chunks.iter().zip(offset_chunks).zip(ink_chunks) {
            for lane in 0..LANES {
                ink[lane] = self.at(gray[lane], offsets[lane]);
            }
        }
        for ((&gray, &offset), ink) in gray_rest.iter().zip(offset_rest).zip(ink_rest) {
            *ink = self.at(gray, offset);
        }
    }

    fn at(&self, gray: u8, offset: i16) -> u8 {
        let strength = (self.sign * i16::from(gray) + offset).clamp(0, self.range);
        ((strength * self.gain) >> Crop::ONE_BITS).min(255) as u8
    }
}
