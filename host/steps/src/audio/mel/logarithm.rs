//! A logarithm that a processor computes for several numbers at once.

/// The coefficients of Cephes' `logf`, for mantissas of √½ to √2.
const TERMS: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];

/// log10 of a positive, normal number, within two units of the last place of the larger of it and 1;
/// the standard library's is called once for each number, which takes longer than the Fourier transforms.
#[inline(always)]
pub(in crate::audio) fn log10(number: f32) -> f32 {
    const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
    // The exponent that leaves a mantissa of √½ to √2, without a branch.
    let shifted = number.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let exponent = (shifted as i32 >> 23) as f32;
    let mantissa = f32::from_bits((shifted & 0x007f_ffff) + SQRT_HALF_BITS);
    let x = mantissa - 1.0;
    let series = TERMS.iter().fold(0.0, |sum, term| sum * x + term);
    let natural = x + (series * x * x * x - 0.5 * x * x);
    let logarithm = natural * std::f32::consts::LOG10_E + exponent * std::f32::consts::LOG10_2;
    if number < f32::INFINITY { logarithm } else { number }
}

#[cfg(test)]
mod tests {
    use super::log10;

    #[test]
    fn approximates_the_logarithm() {
        let mut number = f32::MIN_POSITIVE;
        while number < f32::MAX {
            let wanted = f64::from(number).log10();
            let difference = (f64::from(log10(number)) - wanted).abs();
            assert!(difference <= 2.4e-7 * wanted.abs().max(1.0), "{number}: {difference:e}");
            number *= 1.003_7;
        }
        assert_eq!(log10(f32::INFINITY).to_bits(), f32::INFINITY.to_bits());
        assert_eq!(log10(1.0).to_bits(), 0);
    }
}
