//! From rows of components to pixels: libjpeg's color conversion, with the same roundings.

use fearless_simd::{
    Bytes, SimdBase, SimdCombine, SimdIntWiden, SimdNarrow, SimdSplit, SimdWiden, i8x16, i16x8, i16x16, i32x8, u8x16,
};

use crate::header::ColorSpace;
use crate::simd::Wide;

/// Pixels converted together.
const LANES: usize = 16;

/// Bytes written for them: the last four pixels take a whole vector.
const BYTES_WRITTEN: usize = LANES * 3 + 4;

/// Converts a row of YCbCr to RGB.
#[inline(always)]
fn convert_ycbcr(wide: Option<Wide>, [y, cb, cr]: [&[u8]; 3], out: &mut [u8]) {
    let Some(wide) = wide else {
        for (((out, y), cb), cr) in out.as_chunks_mut::<3>().0.iter_mut().zip(y).zip(cb).zip(cr) {
            *out = ycbcr_to_rgb(*y, *cb, *cr).map(|level| level as u8);
        }
        return;
    };
    let mut at = 0;
    for ((y, cb), cr) in y.chunks(LANES).zip(cb.chunks(LANES)).zip(cr.chunks(LANES)) {
        let to = &mut out[at..];
        if let (Ok(y), Ok(cb), Ok(cr), Some(to)) = (y.try_into(), cb.try_into(), cr.try_into(), to.first_chunk_mut()) {
            convert_16(wide, [y, cb, cr], to);
        } else {
            // The end of the row.
            let (mut ends, mut pixels) = ([[0; LANES]; 3], [0; BYTES_WRITTEN]);
            for (end, samples) in ends.iter_mut().zip([y, cb, cr]) {
                end[..samples.len()].copy_from_slice(samples);
            }
            convert_16(wide, ends.each_ref(), &mut pixels);
            let bytes = to.len().min(y.len() * 3);
            to[..bytes].copy_from_slice(&pixels[..bytes]);
        }
        at += LANES * 3;
    }
}

/// Converts sixteen pixels. Overwrites four bytes of the next pixels.
#[inline(always)]
fn convert_16(wide: Wide, [y, cb, cr]: [&[u8; LANES]; 3], out: &mut [u8; BYTES_WRITTEN]) {
    let (y, cb, cr) = (load_centered(wide, y), load_centered(wide, cb), load_centered(wide, cr));
    let (cb2, cr2) = (cb + cb, cr + cr);
    let red = to_samples(wide, y + cr + scale(wide, cr2, 26345));
    let green = to_samples(wide, y - cr + green_difference(wide, cb, cr));
    let blue = to_samples(wide, y + cb2 + scale(wide, cb2, -14942));
    let (red_green, blues) = (red.zip_low(green).bitcast::<i16x8<Wide>>(), blue.zip_low(blue).bitcast::<i16x8<Wide>>());
    store_4(wide, red_green.zip_low(blues), &mut out[..16]);
    store_4(wide, red_green.zip_high(blues), &mut out[12..28]);
    let (red_green, blues) =
        (red.zip_high(green).bitcast::<i16x8<Wide>>(), blue.zip_high(blue).bitcast::<i16x8<Wide>>());
    store_4(wide, red_green.zip_low(blues), &mut out[24..40]);
    store_4(wide, red_green.zip_high(blues), &mut out[36..52]);
}

/// Loads samples less 128.
#[inline(always)]
fn load_centered(wide: Wide, samples: &[u8; LANES]) -> i16x16<Wide> {
    let samples = u8x16::load_array_ref(wide, samples) ^ u8x16::splat(wide, 0x80);
    let (low, high) = samples.bitcast::<i8x16<Wide>>().widen();
    low.combine(high)
}

/// Saturates values to samples.
#[inline(always)]
fn to_samples(wide: Wide, values: i16x16<Wide>) -> u8x16<Wide> {
    let (low, high) = values.split();
    low.saturating_narrow(high).bitcast::<u8x16<Wide>>() ^ u8x16::splat(wide, 0x80)
}

/// `doubled × factor / 2¹⁷`, rounded.
#[inline(always)]
fn scale(wide: Wide, doubled: i16x16<Wide>, factor: i16) -> i16x16<Wide> {
    (multiply_high(wide, doubled, i16x16::splat(wide, factor)) + i16x16::splat(wide, 1)) >> 1
}

/// Stores four pixels of four bytes without the last byte of each.
#[inline(always)]
fn store_4(wide: Wide, pixels: i16x8<Wide>, out: &mut [u8]) {
    let indices = u8x16::load_array(wide, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 3, 3, 3]);
    pixels.bitcast::<u8x16<Wide>>().swizzle_dyn_within_blocks(indices).store_slice(out);
}

/// `(cb × -22554 + cr × 18734) / 2¹⁶`, rounded.
#[inline(always)]
fn green_difference(wide: Wide, cb: i16x16<Wide>, cr: i16x16<Wide>) -> i16x16<Wide> {
    let factors = i32x8::splat(wide, i32::from(-22554_i16) & 0xffff | 18734 << 16).bitcast::<i16x16<Wide>>();
    let half = i32x8::splat(wide, 1 << 15);
    let low = (cb.zip_low(cr).pairwise_dot_product(factors) + half) >> 16;
    let high = (cb.zip_high(cr).pairwise_dot_product(factors) + half) >> 16;
    low.saturating_narrow(high)
}

/// The upper 16 bits of products.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn multiply_high(wide: Wide, a: i16x16<Wide>, b: i16x16<Wide>) -> i16x16<Wide> {
    use fearless_simd::SimdInto;
    fearless_simd::kernel!(
        #[inline(always)]
        fn multiply_high(wide: Avx2, a: i16x16<Wide>, b: i16x16<Wide>) -> i16x16<Wide> {
            std::arch::x86_64::_mm256_mulhi_epi16(a.into(), b.into()).simd_into(wide)
        }
    );
    multiply_high(wide, a, b)
}

/// The upper 16 bits of products.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn multiply_high(_: Wide, a: i16x16<Wide>, b: i16x16<Wide>) -> i16x16<Wide> {
    let (low, high) = a.widening_mul(b);
    (low >> 16).narrow(high >> 16)
}

/// ITU-R 601-2 with 16 fractional bits. Larger factors are split, so that products of 16 bits are enough:
/// 1.402 = 1 + 26345 / 2¹⁶, 0.71414 = 1 - 18734 / 2¹⁶, 1.772 = 2 - 14942 / 2¹⁶.
#[inline(always)]
fn ycbcr_to_rgb(y: u8, cb: u8, cr: u8) -> [i16; 3] {
    const HALF: i32 = 1 << 15;
    let times = |value: i16, factor: i16| i32::from(value) * i32::from(factor);
    let (y, cb, cr) = (i16::from(y), i16::from(cb) - 128, i16::from(cr) - 128);
    let red = y + cr + ((times(cr, 26345) + HALF) >> 16) as i16;
    let green = y - cr + ((times(cb, -22554) + times(cr, 18734) + HALF) >> 16) as i16;
    let blue = y + 2 * cb + ((times(cb, -14942) + HALF) >> 16) as i16;
    [red, green, blue].map(|level| level.clamp(0, 255))
}

/// Converts a row of any color space to gray or RGB. CMYK is taken as inverted, as Adobe writes it and Pillow
/// assumes.
#[inline(always)]
pub(crate) fn convert(wide: Option<Wide>, color_space: ColorSpace, [a, b, c, d]: [&[u8]; 4], out: &mut [u8]) {
    match color_space {
        ColorSpace::Gray => out.copy_from_slice(a),
        ColorSpace::YCbCr => convert_ycbcr(wide, [a, b, c], out),
        ColorSpace::Rgb => {
            for ((out, (red, green)), blue) in out.as_chunks_mut::<3>().0.iter_mut().zip(a.iter().zip(b)).zip(c) {
                *out = [*red, *green, *blue];
            }
        }
        ColorSpace::Cmyk | ColorSpace::Ycck => {
            let inks = a.iter().zip(b).zip(c).zip(d);
            for (out, (((a, b), c), black)) in out.as_chunks_mut::<3>().0.iter_mut().zip(inks) {
                // Inverted inks are light.
                let light = if color_space == ColorSpace::Ycck {
                    ycbcr_to_rgb(*a, *b, *c).map(|level| 255 - level as u8)
                } else {
                    [*a, *b, *c]
                };
                *out = light.map(|light| *black - multiply_samples(255 - light, *black));
            }
        }
    }
}

/// a × b / 255, rounded as Pillow does.
#[inline(always)]
fn multiply_samples(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    ((product + (product >> 8)) >> 8) as u8
}
