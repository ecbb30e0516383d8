//! Options and ports: checks that every step needs.

use serde::de::DeserializeOwned;

use gpux_core::{BuildError, Dim, Kind, Mismatch, Signature, StepFailure, Tensor, TensorKind, Value};

/// Reads a step's options; a step written without any has an empty set.
pub(crate) fn options<T: DeserializeOwned>(options: serde_json::Value) -> Result<T, BuildError> {
    let options = if options.is_null() { serde_json::json!({}) } else { options };
    Ok(serde_json::from_value(options)?)
}

/// Checks each given kind against its port.
pub(crate) fn check(signature: &Signature, inputs: &[Option<Kind>]) -> Result<(), Mismatch> {
    signature.inputs.iter().zip(inputs).try_for_each(|(port, given)| match given {
        Some(given) => port.kind.accepts(given),
        None => Ok(()),
    })
}

/// The tensor that the plan knows will arrive at the first port.
pub(crate) fn known_tensor(inputs: &[Option<Kind>]) -> Option<&TensorKind> {
    match inputs.first() {
        Some(Some(Kind::Tensor(tensor))) => Some(tensor),
        _ => None,
    }
}

/// The tensor that a request gives to the first port.
pub(crate) fn given_tensor(inputs: &[Option<Value>]) -> Option<&Tensor> {
    inputs.first()?.as_ref()?.as_tensor()
}

/// The number behind a dimension, where the plan knows it.
pub(crate) fn fixed(dim: &Dim) -> Option<usize> {
    if let Dim::Fixed(size) = dim { Some(*size) } else { None }
}

/// The first port does not fit, for this reason.
pub(crate) fn refuse(signature: &Signature, given: &TensorKind, because: impl Into<String>) -> Mismatch {
    Mismatch {
        expected: signature.inputs.first().map_or(Kind::Any, |port| port.kind.clone()),
        given: Kind::Tensor(given.clone()),
        because: Some(because.into()),
    }
}

/// The value at the first port, which is required.
pub(crate) fn first(inputs: Vec<Option<Value>>, name: &str) -> Result<Value, StepFailure> {
    let value = inputs.into_iter().next().flatten();
    value.ok_or_else(|| StepFailure::InvalidInput(format!("the input `{name}` is missing")))
}

/// The tensor at the first port.
pub(crate) fn first_tensor(inputs: Vec<Option<Value>>, name: &str) -> Result<Tensor, StepFailure> {
    match first(inputs, name)? {
        Value::Tensor(tensor) => Ok(tensor),
        other => Err(StepFailure::InvalidInput(format!("`{name}` takes a tensor, but gets {}", other.kind()))),
    }
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
