//! From rows of a picture's components to its pixels: libjpeg's conversion of colours, with the same
//! roundings.

use fearless_simd::{
    Bytes, SimdBase, SimdCombine, SimdIntWiden, SimdNarrow, SimdSplit, SimdWiden, i8x16, i16x8, i16x16, i32x8, u8x16,
};

use super::head::Colors;
use crate::image::opacity::product;
use crate::wide::Wide;

/// Pixels computed together.
const LANES: usize = 16;

/// Bytes written for them: the last four pixels lie at the start of a vector.
const WRITTEN: usize = LANES * 3 + 4;

/// A row of YCbCr as RGB.
#[inline(always)]
fn rgb(wide: Option<Wide>, parts: [&[u8]; 3], out: &mut [u8]) {
    let Some(wide) = wide else {
        let [y, cb, cr] = parts;
        for (((out, y), cb), cr) in out.as_chunks_mut::<3>().0.iter_mut().zip(y).zip(cb).zip(cr) {
            *out = pixel(*y, *cb, *cr).map(|level| level as u8);
        }
        return;
    };
    let [y, cb, cr] = parts;
    let mut at = 0;
    for ((y, cb), cr) in y.chunks(LANES).zip(cb.chunks(LANES)).zip(cr.chunks(LANES)) {
        let to = &mut out[at..];
        if let (Ok(y), Ok(cb), Ok(cr), Some(to)) = (y.try_into(), cb.try_into(), cr.try_into(), to.first_chunk_mut()) {
            sixteen(wide, [y, cb, cr], to);
        } else {
            // The end of the row.
            let (mut ends, mut pixels) = ([[0; LANES]; 3], [0; WRITTEN]);
            for (end, part) in ends.iter_mut().zip([y, cb, cr]) {
                end[..part.len()].copy_from_slice(part);
            }
            sixteen(wide, ends.each_ref(), &mut pixels);
            let bytes = to.len().min(y.len() * 3);
            to[..bytes].copy_from_slice(&pixels[..bytes]);
        }
        at += LANES * 3;
    }
}

/// Sixteen pixels, and four bytes that belong to the next.
#[inline(always)]
fn sixteen(wide: Wide, [y, cb, cr]: [&[u8; LANES]; 3], out: &mut [u8; WRITTEN]) {
    let (y, cb, cr) = (centred(wide, y), centred(wide, cb), centred(wide, cr));
    let (cb2, cr2) = (cb + cb, cr + cr);
    let red = levels(wide, y + cr + scaled(wide, cr2, 26345));
    let green = levels(wide, y - cr + mixed(wide, cb, cr));
    let blue = levels(wide, y + cb2 + scaled(wide, cb2, -14942));
    let (red_green, blues) = (red.zip_low(green).bitcast::<i16x8<Wide>>(), blue.zip_low(blue).bitcast::<i16x8<Wide>>());
    four(wide, red_green.zip_low(blues), &mut out[..16]);
    four(wide, red_green.zip_high(blues), &mut out[12..28]);
    let (red_green, blues) =
        (red.zip_high(green).bitcast::<i16x8<Wide>>(), blue.zip_high(blue).bitcast::<i16x8<Wide>>());
    four(wide, red_green.zip_low(blues), &mut out[24..40]);
    four(wide, red_green.zip_high(blues), &mut out[36..52]);
}

/// Samples less 128.
#[inline(always)]
fn centred(wide: Wide, samples: &[u8; LANES]) -> i16x16<Wide> {
    let samples = u8x16::load_array_ref(wide, samples) ^ u8x16::splat(wide, 0x80);
    let (low, high) = samples.bitcast::<i8x16<Wide>>().widen();
    low.combine(high)
}

/// The other way round.
#[inline(always)]
fn levels(wide: Wide, values: i16x16<Wide>) -> u8x16<Wide> {
    let (low, high) = values.split();
    low.saturating_narrow(high).bitcast::<u8x16<Wide>>() ^ u8x16::splat(wide, 0x80)
}

/// Half of the product, rounded to what lies before its lowest 16 bits.
#[inline(always)]
fn scaled(wide: Wide, doubled: i16x16<Wide>, factor: i16) -> i16x16<Wide> {
    (upper(wide, doubled, i16x16::splat(wide, factor)) + i16x16::splat(wide, 1)) >> 1
}

/// Writes four pixels of four bytes without their last ones.
#[inline(always)]
fn four(wide: Wide, pixels: i16x8<Wide>, out: &mut [u8]) {
    let places = u8x16::load_array(wide, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 3, 3, 3]);
    pixels.bitcast::<u8x16<Wide>>().swizzle_dyn_within_blocks(places).store_slice(out);
}

/// cb × -22554 + cr × 18734, rounded to what lies before its lowest 16 bits.
#[inline(always)]
fn mixed(wide: Wide, cb: i16x16<Wide>, cr: i16x16<Wide>) -> i16x16<Wide> {
    let factors = i32x8::splat(wide, i32::from(-22554_i16) & 0xffff | 18734 << 16).bitcast::<i16x16<Wide>>();
    let half = i32x8::splat(wide, 1 << 15);
    let low = (cb.zip_low(cr).pairwise_dot_product(factors) + half) >> 16;
    let high = (cb.zip_high(cr).pairwise_dot_product(factors) + half) >> 16;
    low.saturating_narrow(high)
}

/// The upper halves of products.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn upper(wide: Wide, a: i16x16<Wide>, b: i16x16<Wide>) -> i16x16<Wide> {
    use fearless_simd::SimdInto;
    fearless_simd::kernel!(
        #[inline(always)]
        fn upper(wide: Avx2, a: i16x16<Wide>, b: i16x16<Wide>) -> i16x16<Wide> {
            std::arch::x86_64::_mm256_mulhi_epi16(a.into(), b.into()).simd_into(wide)
        }
    );
    upper(wide, a, b)
}

/// The upper halves of products.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn upper(_: Wide, a: i16x16<Wide>, b: i16x16<Wide>) -> i16x16<Wide> {
    let (low, high) = a.widening_mul(b);
    (low >> 16).narrow(high >> 16)
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
pub(super) fn convert(wide: Option<Wide>, colors: Colors, [a, b, c, d]: [&[u8]; 4], out: &mut [u8]) {
    match colors {
        Colors::Gray => out.copy_from_slice(a),
        Colors::YCbCr => rgb(wide, [a, b, c], out),
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
