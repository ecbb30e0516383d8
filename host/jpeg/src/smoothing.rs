//! libjpeg-turbo's block smoothing: where the scans of a progressive file leave the first AC coefficients unknown, they
//! are estimated from the DC coefficients of the 5 × 5 blocks around.

use crate::zigzag::ZIGZAG;

/// Coefficients, in scan order, that are estimated.
const ESTIMATED: usize = 10;

/// The lowest known bit of each of them; -1 where no scan held it.
pub(crate) type LowBits = [i32; ESTIMATED];
pub(crate) const UNKNOWN: LowBits = [-1; ESTIMATED];

/// Weights of the DC coefficients around a block, in 256ths.
type Kernel = [[i16; 5]; 5];

/// Weights for each coefficient, where no AC coefficient is known; the DC coefficient is smoothed, too.
#[rustfmt::skip]
const DC_ONLY: [Kernel; ESTIMATED] = [
    [[-2, -6, -8, -6, -2], [-6, 6, 42, 6, -6], [-8, 42, 152, 42, -8], [-6, 6, 42, 6, -6], [-2, -6, -8, -6, -2]],
    [[-1, -1, 0, 1, 1], [-3, 13, 0, -13, 3], [-3, 38, 0, -38, 3], [-3, 13, 0, -13, 3], [-1, -1, 0, 1, 1]],
    [[-1, -3, -3, -3, -1], [-1, 13, 38, 13, -1], [0, 0, 0, 0, 0], [1, -13, -38, -13, 1], [1, 3, 3, 3, 1]],
    [[0, 0, 1, 0, 0], [0, 2, 7, 2, 0], [0, -5, -14, -5, 0], [0, 2, 7, 2, 0], [0, 0, 1, 0, 0]],
    [[-1, 0, 0, 0, 1], [0, 9, 0, -9, 0], [0, 0, 0, 0, 0], [0, -9, 0, 9, 0], [1, 0, 0, 0, -1]],
    [[0, 0, 0, 0, 0], [0, 2, -5, 2, 0], [1, 7, -14, 7, 1], [0, 2, -5, 2, 0], [0, 0, 0, 0, 0]],
    [[0, 0, 0, 0, 0], [0, 1, 0, -1, 0], [0, 2, 0, -2, 0], [0, 1, 0, -1, 0], [0, 0, 0, 0, 0]],
    [[0, 0, 0, 0, 0], [0, 1, -3, 1, 0], [0, 0, 0, 0, 0], [0, -1, 3, -1, 0], [0, 0, 0, 0, 0]],
    [[0, 0, 0, 0, 0], [0, 1, 0, -1, 0], [0, -3, 0, 3, 0], [0, 1, 0, -1, 0], [0, 0, 0, 0, 0]],
    [[0, 0, 0, 0, 0], [0, 1, 2, 1, 0], [0, 0, 0, 0, 0], [0, -1, -2, -1, 0], [0, 0, 0, 0, 0]],
];

/// Weights for the AC coefficients from the second in scan order, where some of them are known.
#[rustfmt::skip]
const PARTLY_KNOWN: [Kernel; 5] = [
    [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [-7, 50, 0, -50, 7], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    [[0, 0, -7, 0, 0], [0, 0, 50, 0, 0], [0, 0, 0, 0, 0], [0, 0, -50, 0, 0], [0, 0, 7, 0, 0]],
    [[0, 0, -1, 0, 0], [0, 0, 13, 0, 0], [0, 0, -24, 0, 0], [0, 0, 13, 0, 0], [0, 0, -1, 0, 0]],
    [[0, -1, 0, 1, 0], [-1, 10, 0, -10, 1], [0, 0, 0, 0, 0], [1, -10, 0, 10, -1], [0, 1, 0, -1, 0]],
    [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [-1, 13, -24, 13, -1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
];

/// Whether libjpeg smooths a progressive file, by its channels' known bits and quantization tables.
pub(crate) fn is_applicable<'a>(
    mut channels: impl Iterator<Item = (&'a LowBits, Option<&'a [i16; 64]>)> + Clone,
) -> bool {
    let divisible = |table: &[i16; 64]| ZIGZAG[..ESTIMATED].iter().all(|index| table[usize::from(*index)] != 0);
    channels.clone().all(|(low_bits, table)| low_bits[0] >= 0 && table.is_some_and(divisible))
        && channels.any(|(low_bits, _)| low_bits[1..].iter().any(|bit| *bit != 0))
}

/// Smooths the blocks of a channel.
pub(crate) struct Smoother<'a> {
    coefficients: &'a [[i16; 64]],
    /// blocks across and down that the image needs
    blocks: [usize; 2],
    /// blocks from a row of `coefficients` to the next
    stride: usize,
    quantization: &'a [i16; 64],
    low_bits: &'a LowBits,
    kernels: &'a [Kernel],
    /// scan position of the coefficient of the first kernel
    first: usize,
}

impl<'a> Smoother<'a> {
    pub(crate) fn new(
        coefficients: &'a [[i16; 64]],
        blocks: [usize; 2],
        padded_blocks: [usize; 2],
        quantization: &'a [i16; 64],
        low_bits: &'a LowBits,
    ) -> Self {
        let dc_only = low_bits[1..].iter().all(|bit| *bit == -1);
        let (kernels, first) = if dc_only { (&DC_ONLY[..], 0) } else { (&PARTLY_KNOWN[..], 1) };
        Self { coefficients, blocks, stride: padded_blocks[0], quantization, low_bits, kernels, first }
    }

    /// The five rows of blocks around row `y`, whose MCUs have `v` rows of blocks. Follows libjpeg-turbo, which numbers
    /// the rows of the last MCUs as if all MCUs had as many.
    pub(crate) fn window_rows(&self, y: usize, v: usize) -> [usize; 5] {
        let (mcu, mcus) = (y / v, self.blocks[1].div_ceil(v));
        let rows = if mcu + 1 == mcus { self.blocks[1] - mcu * v } else { v };
        let (number, count) = (mcu * rows + y % v, rows * mcus);
        let above = if number > 0 { y - 1 } else { y };
        let below = if number + 1 < count { y + 1 } else { y };
        [if number > 1 { y - 2 } else { above }, above, y, below, if number + 2 < count { y + 2 } else { below }]
    }

    /// The block in column `x` of the third of these rows, with estimates.
    pub(crate) fn block(&self, rows: [usize; 5], x: usize) -> [i16; 64] {
        let last = self.blocks[0] - 1;
        let columns = [x.saturating_sub(2), x.saturating_sub(1), x, (x + 1).min(last), (x + 2).min(last)];
        let window = rows.map(|row| columns.map(|column| i64::from(self.coefficients[row * self.stride + column][0])));
        let mut block = self.coefficients[rows[2] * self.stride + x];

        let quantization = |at: usize| i64::from(self.quantization[at].cast_unsigned());
        for (at, kernel) in (self.first..).zip(self.kernels) {
            let (index, low_bit) = (usize::from(ZIGZAG[at]) & 63, self.low_bits[at]);
            if at > 0 && (low_bit == 0 || block[index] != 0) {
                continue;
            }
            let weighted = window.as_flattened().iter().zip(kernel.as_flattened());
            let sum: i64 = weighted.map(|(dc, weight)| dc * i64::from(*weight)).sum();
            let (number, step) = (sum * quantization(0), quantization(index));
            let mut size = (((step << 7) + number.abs()) / (step << 8)) as i32;
            // More would contradict the bits that are known.
            if at > 0 && low_bit > 0 {
                size = size.min((1 << low_bit) - 1);
            }
            block[index] = (size * number.signum() as i32) as i16;
        }
        block
    }
}
