//! From the coefficients of a block to its samples: the accurate integer transform of libjpeg
//! (`jidctint`, after Loeffler, Ligtenberg and Moschytz), in the 16 bits that libjpeg-turbo's vector
//! code computes in.

mod scalar;
mod vector;

use crate::simd::Wide;

/// Coefficients that lie within the first four rows and columns, in scan order.
const CORNER: usize = 10;

/// Writes the samples of a block, 0 to 255, a row every `stride`. Only the first `count` coefficients, in scan
/// order, may be other than zero.
#[inline(always)]
pub(crate) fn write_samples(
    wide: Option<Wide>,
    coefficients: &[i16; 64],
    quantization: &[i16; 64],
    count: usize,
    samples: &mut [u8],
    stride: usize,
) {
    let rows = samples.chunks_mut(stride);
    if count <= 1 {
        let sample = scalar::dc_sample(coefficients[0].wrapping_mul(quantization[0]));
        for row in rows.take(8) {
            row[..8].fill(sample);
        }
        return;
    }
    let block = match wide {
        Some(wide) if count <= CORNER => vector::transform_corner(wide, coefficients, quantization),
        Some(wide) => vector::transform(wide, coefficients, quantization),
        None => scalar::transform(coefficients, quantization),
    };
    for (to, from) in rows.zip(block.as_flattened().as_chunks::<8>().0) {
        to[..8].copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::wide;
    use crate::tests::random;
    use crate::zigzag::ZIGZAG;

    /// Ordinary blocks, and blocks that overflow everywhere.
    #[test]
    fn vector_and_scalar_transforms_agree() {
        let Some(wide) = wide() else { return };
        let mut random = random();
        for round in 0..4000 {
            let mut value = |most: usize| random(2 * most + 1) as i32 - most as i32;
            let most = [3, 60, 1024, 32767][round % 4];
            let coefficients = std::array::from_fn(|_| if value(4) > 1 { value(most) as i16 } else { 0 });
            let quantization =
                std::array::from_fn(|_| if round % 8 < 4 { value(16) as i16 } else { value(32767) as i16 });
            let ours = vector::transform(wide, &coefficients, &quantization);
            assert_eq!(ours, scalar::transform(&coefficients, &quantization), "{coefficients:?} × {quantization:?}");
        }
    }

    #[test]
    fn corner_and_whole_transforms_agree() {
        let Some(wide) = wide() else { return };
        let mut random = random();
        for round in 0..4000 {
            let mut value = |most: usize| (random(2 * most + 1) as i32 - most as i32) as i16;
            let (mut coefficients, most) = ([0; 64], [3, 60, 1024, 32767][round % 4]);
            for index in &ZIGZAG[..CORNER] {
                coefficients[usize::from(*index)] = value(most);
            }
            let quantization = std::array::from_fn(|_| value(if round % 8 < 4 { 16 } else { 32767 }));
            let corner = vector::transform_corner(wide, &coefficients, &quantization);
            assert_eq!(corner, scalar::transform(&coefficients, &quantization), "{coefficients:?} × {quantization:?}");
        }
        assert!(ZIGZAG[..CORNER].iter().all(|index| index / 8 < 4 && index % 8 < 4));
    }

    #[test]
    fn dc_alone_gives_a_uniform_block() {
        for dc in i16::MIN..=i16::MAX {
            let (mut coefficients, mut quantization) = ([0; 64], [0; 64]);
            (coefficients[0], quantization[0]) = (dc, 1);
            assert_eq!(scalar::transform(&coefficients, &quantization), [[scalar::dc_sample(dc); 16]; 4], "{dc}");
        }
    }
}
