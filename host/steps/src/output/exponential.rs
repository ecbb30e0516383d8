//! An exponential that a processor computes for several numbers at once.

/// e to the power of `x`, which is 0 or less, within a unit of the last place; the standard library's is called once
/// for each number. NaN stays NaN.
#[inline(always)]
pub(super) fn exp_of_negative(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which then stands in the lowest bits.
    const ROUNDS: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has few bits, so that its products with whole numbers are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// The coefficients of Cephes' `expf`, for -½ ln 2 to ½ ln 2.
    const TERMS: [f32; 6] = [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    // Below, it is less than the least number.
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDS;
    let whole = shifted - ROUNDS;
    let rest = (x - whole * LN_2[0]) - whole * LN_2[1];
    let mut series = TERMS[0];
    for term in &TERMS[1..] {
        series = series * rest + term;
    }
    let power = series * rest * rest + rest + 1.0;
    // Twice half of the exponent: the whole may be less than a normal number has.
    let exponent = shifted.to_bits().wrapping_sub(ROUNDS.to_bits()) as i32;
    let half = exponent >> 1;
    power * two_to(half) * two_to(exponent - half)
}

#[inline(always)]
fn two_to(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
