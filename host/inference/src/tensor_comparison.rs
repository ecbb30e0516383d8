//! Compares tensors bit for bit, and up to rounding.

use gpux_core::{ElementType, Tensor};
use serde::{Deserialize, Serialize};

/// The largest number of an output that differences are relative to is at least this: where all numbers are zero,
/// a difference would be infinite.
const LEAST_SCALE: f64 = 1e-6;

/// By how much results differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorDifference {
    /// whether each bit is the same
    pub same_bits: bool,
    /// the largest difference as a part of the largest number; [`f64::MAX`] for other shapes, texts, NaN and infinities
    pub relative: f64,
}

impl TensorDifference {
    /// None.
    pub const NONE: Self = Self { same_bits: true, relative: 0.0 };
    /// Results that cannot be compared.
    pub(super) const UNRELATED: Self = Self { same_bits: false, relative: f64::MAX };

    /// By how much `actual` differs from `expected`.
    #[expect(clippy::float_cmp, reason = "the same number is the same, infinities too")]
    pub(super) fn between(expected: &Tensor, actual: &Tensor) -> Self {
        if expected.shape() != actual.shape() || expected.element() != actual.element() {
            return Self::UNRELATED;
        }
        if expected.element() == ElementType::String {
            return if expected.data() == actual.data() { Self::NONE } else { Self::UNRELATED };
        }
        if expected.bytes() == actual.bytes() {
            return Self::NONE;
        }
        let (Ok(wide), Ok(other_wide)) = (expected.cast(ElementType::Float64), actual.cast(ElementType::Float64))
        else {
            return Self::UNRELATED;
        };
        let (expected, actual) =
            (wide.as_slice::<f64>().unwrap_or_default(), other_wide.as_slice::<f64>().unwrap_or_default());
        let finite = expected.iter().filter(|number| number.is_finite());
        let scale = finite.fold(LEAST_SCALE, |most: f64, number| most.max(number.abs()));
        let differences = expected.iter().zip(actual).map(|(expected, actual)| {
            let same = expected == actual || (expected.is_nan() && actual.is_nan());
            let difference = (expected - actual).abs();
            match (same, difference.is_finite()) {
                (true, _) => 0.0,
                (false, true) => difference / scale,
                (false, false) => f64::MAX,
            }
        });
        Self { same_bits: false, relative: differences.fold(0.0, f64::max) }
    }

    /// The larger of both.
    #[must_use]
    pub(super) fn max(self, other: Self) -> Self {
        Self { same_bits: self.same_bits && other.same_bits, relative: self.relative.max(other.relative) }
    }

    /// Whether results that differ by this are the same: bit for bit, or up to a `tolerance` above zero.
    pub(super) fn is_within(self, tolerance: f64) -> bool {
        self.same_bits || (tolerance > 0.0 && self.relative <= tolerance)
    }
}

/// Whether no number differs by more than `tolerance` times the largest of `expected`. Strings must be the
/// same, NaN and infinities lie in the same places.
pub(super) fn all_close(expected: &Tensor, actual: &Tensor, tolerance: f64) -> bool {
    TensorDifference::between(expected, actual).relative <= tolerance
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests")]
mod tests {
    use super::*;

    fn tensor(numbers: [f32; 3]) -> Tensor {
        Tensor::new([3], numbers.to_vec()).unwrap()
    }

    #[test]
    fn tolerates_only_rounding() {
        let expected = tensor([100.0, 0.0, f32::NAN]);
        assert!(all_close(&expected, &tensor([100.05, 0.05, f32::NAN]), 1e-3));
        assert!(!all_close(&expected, &tensor([100.2, 0.0, f32::NAN]), 1e-3));
        assert!(!all_close(&expected, &tensor([100.0, f32::NAN, 0.0]), 1e-3));
        assert!(!all_close(&expected, &tensor([f32::INFINITY, 0.0, f32::NAN]), 1e-3));
        let text = |text: &str| Tensor::new([1], vec![text.to_owned()]).unwrap();
        assert!(all_close(&text("a"), &text("a"), 0.0) && !all_close(&text("a"), &text("b"), 1.0));
    }

    #[test]
    fn tells_the_same_bits_from_rounding() {
        let ones = tensor([1.0, 2.0, f32::NAN]);
        assert_eq!(TensorDifference::between(&ones, &ones), TensorDifference::NONE);
        let next = TensorDifference::between(&ones, &tensor([1.0_f32.next_up(), 2.0, f32::NAN]));
        assert!(!next.same_bits && next.relative < 1e-7 && next.relative > 0.0, "{next:?}");
        assert!(!next.is_within(0.0) && next.is_within(1e-3) && TensorDifference::NONE.is_within(0.0));
        let signs = TensorDifference::between(&tensor([0.0; 3]), &tensor([-0.0; 3]));
        assert!(!signs.same_bits && signs.relative == 0.0 && !signs.is_within(0.0), "{signs:?}");
        // Of zeros, a difference is no part: it is one of the least scale.
        let zeros = TensorDifference::between(&tensor([0.0; 3]), &tensor([0.0, 1e-9, 0.0]));
        assert!((zeros.relative - 1e-3).abs() < 1e-9, "{zeros:?}");
        assert_eq!(zeros.max(next).relative, zeros.relative);
    }
}
