//! Options and ports: checks that every step needs.

use serde::de::DeserializeOwned;

use gpux_core::{BuildError, Dim, Tensor, Value};

/// Reads a step's options; a step written without any has an empty set.
pub(crate) fn options<T: DeserializeOwned>(options: serde_json::Value) -> Result<T, BuildError> {
    let options = if options.is_null() { serde_json::json!({}) } else { options };
    Ok(serde_json::from_value(options)?)
}

/// The default of an option that is on unless it is switched off.
pub(crate) const fn default_true() -> bool {
    true
}

/// The tensor that a request gives to the first port.
pub(crate) fn given_tensor(inputs: &[Option<Value>]) -> Option<&Tensor> {
    inputs.first()?.as_ref()?.as_tensor()
}

/// The number behind a dimension, where the plan knows it.
pub(crate) fn fixed(dim: &Dim) -> Option<usize> {
    if let Dim::Fixed(size) = dim { Some(*size) } else { None }
}

/// The axis that `axis` names in a tensor of `rank` axes; negative ones count from the last.
pub(crate) fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let index = if axis < 0 { axis.checked_add(rank)? } else { axis };
    (0..rank).contains(&index).then_some(index as usize)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    #[test]
    fn accepts_negative_axes() {
        assert_eq!(super::axis(-1, 3), Some(2));
        assert_eq!(super::axis(2, 3), Some(2));
        assert_eq!(super::axis(3, 3), None);
        assert_eq!(super::axis(-4, 3), None);
        assert_eq!(super::axis(i64::MIN, 3), None);
        assert_eq!(super::axis(0, 0), None);
    }
}
