//! The photo, read once.

use super::LANES;

/// The photo's longer side is at most this many cells long (for photos up to 8192 pixels).
const GRID: usize = 64;
/// The largest cell: its column sums still fit `u16`.
const MAX_CELL: usize = 128;

/// The means of square cells; pixels right of and below the last whole cell are left out.
pub(super) struct Grid {
    /// Length of a cell's side in pixels: a power of two.
    pub(super) cell: usize,
    pub(super) cols: usize,
    pub(super) rows: usize,
    pub(super) means: Vec<f32>,
}

impl Grid {
    pub(super) fn read(gray: &[u8], width: usize, height: usize) -> Self {
        let (long, short) = (width.max(height), width.min(height));
        let mut cell = 1;
        while cell * GRID < long && cell * 2 <= short && cell < MAX_CELL {
            cell *= 2;
        }
        let (cols, rows) = (width / cell, height / cell);
        let share = 1.0 / (cell * cell) as f32;
        let mut means = Vec::with_capacity(cols * rows);
        let mut sums = vec![0_u16; width];
        for band in gray.chunks_exact(width * cell) {
            sums.fill(0);
            for row in band.chunks_exact(width) {
                add_row(&mut sums, row);
            }
            means.extend(sums.chunks_exact(cell).map(|columns| {
                let sum: u32 = columns.iter().copied().map(u32::from).sum();
                sum as f32 * share
            }));
        }
        Self { cell, cols, rows, means }
    }
}

fn add_row(sums: &mut [u16], row: &[u8]) {
    let (sum_chunks, sum_rest) = sums.as_chunks_mut::<LANES>();
    let (row_chunks, row_rest) = row.as_chunks::<LANES>();
    for (sums, row) in sum_chunks.iter_mut().zip(row_chunks) {
        for lane in 0..LANES {
            sums[lane] += u16::from(row[lane]);
        }
    }
    for (sum, &pixel) in sum_rest.iter_mut().zip(row_rest) {
        *sum += u16::from(pixel);
    }
}
