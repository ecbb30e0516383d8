//! Whether two results of one computation are the same but for rounding.

use gpux_core::{ElementType, Tensor};

/// Whether no number differs by more than `tolerance` times the largest of `one`. Strings must be the
/// same, NaN and infinities lie in the same places.
#[expect(clippy::float_cmp, reason = "the same number is the same, infinities too")]
pub(super) fn alike(one: &Tensor, other: &Tensor, tolerance: f64) -> bool {
    if one.shape() != other.shape() || one.element() != other.element() {
        return false;
    }
    let (Ok(wide), Ok(other_wide)) = (one.cast(ElementType::Float64), other.cast(ElementType::Float64)) else {
        return one.data() == other.data();
    };
    let (one, other) = (wide.as_slice::<f64>().unwrap_or_default(), other_wide.as_slice::<f64>().unwrap_or_default());
    let largest = one.iter().filter(|number| number.is_finite()).fold(0.0, |most: f64, number| most.max(number.abs()));
    let close = |(one, other): (&f64, &f64)| {
        one == other || (one.is_nan() && other.is_nan()) || (one - other).abs() <= tolerance * largest
    };
    one.iter().zip(other).all(close)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_alike_and_nothing_else() {
        let tensor = |numbers: [f32; 3]| Tensor::new([3], numbers.to_vec()).unwrap();
        let one = tensor([100.0, 0.0, f32::NAN]);
        assert!(alike(&one, &tensor([100.05, 0.05, f32::NAN]), 1e-3));
        assert!(!alike(&one, &tensor([100.2, 0.0, f32::NAN]), 1e-3));
        assert!(!alike(&one, &tensor([100.0, f32::NAN, 0.0]), 1e-3));
        assert!(!alike(&one, &tensor([f32::INFINITY, 0.0, f32::NAN]), 1e-3));
        let text = |text: &str| Tensor::new([1], vec![text.to_owned()]).unwrap();
        assert!(alike(&text("a"), &text("a"), 0.0) && !alike(&text("a"), &text("b"), 1.0));
    }
}
