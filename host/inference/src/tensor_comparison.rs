//! Compares tensors up to rounding.

use gpux_core::{ElementType, Tensor};

/// Whether no number differs by more than `tolerance` times the largest of `expected`. Strings must be the
/// same, NaN and infinities lie in the same places.
#[expect(clippy::float_cmp, reason = "the same number is the same, infinities too")]
pub(super) fn all_close(expected: &Tensor, actual: &Tensor, tolerance: f64) -> bool {
    if expected.shape() != actual.shape() || expected.element() != actual.element() {
        return false;
    }
    let (Ok(wide), Ok(other_wide)) = (expected.cast(ElementType::Float64), actual.cast(ElementType::Float64)) else {
        return expected.data() == actual.data();
    };
    let (expected, actual) =
        (wide.as_slice::<f64>().unwrap_or_default(), other_wide.as_slice::<f64>().unwrap_or_default());
    let largest =
        expected.iter().filter(|number| number.is_finite()).fold(0.0, |most: f64, number| most.max(number.abs()));
    let close = |(expected, actual): (&f64, &f64)| {
        expected == actual || (expected.is_nan() && actual.is_nan()) || (expected - actual).abs() <= tolerance * largest
    };
    expected.iter().zip(actual).all(close)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn tolerates_only_rounding() {
        let tensor = |numbers: [f32; 3]| Tensor::new([3], numbers.to_vec()).unwrap();
        let expected = tensor([100.0, 0.0, f32::NAN]);
        assert!(all_close(&expected, &tensor([100.05, 0.05, f32::NAN]), 1e-3));
        assert!(!all_close(&expected, &tensor([100.2, 0.0, f32::NAN]), 1e-3));
        assert!(!all_close(&expected, &tensor([100.0, f32::NAN, 0.0]), 1e-3));
        assert!(!all_close(&expected, &tensor([f32::INFINITY, 0.0, f32::NAN]), 1e-3));
        let text = |text: &str| Tensor::new([1], vec![text.to_owned()]).unwrap();
        assert!(all_close(&text("a"), &text("a"), 0.0) && !all_close(&text("a"), &text("b"), 1.0));
    }
}
