//! Bounds and axes that the steps of this group share.

use gpux_core::{Dim, ElementType, Tensor, element_count};

/// The most bytes of a tensor that a step makes larger than its input.
pub(super) const MAX_BYTES: usize = 1 << 30;

/// Most axes that a step makes: NumPy's bound.
pub(super) const MAX_RANK: usize = 64;

/// Refuses a tensor of `shape` that would be too large; `text` are the bytes of its longest string.
pub(super) fn check_size(element: ElementType, shape: &[usize], text: usize) -> Result<(), String> {
    let size = element.size().unwrap_or(size_of::<String>()).saturating_add(text);
    let bytes = element_count(shape).and_then(|count| count.checked_mul(size));
    if bytes.is_some_and(|bytes| bytes <= MAX_BYTES) {
        return Ok(());
    }
    Err(format!("the result would be {element} of shape {shape:?}, but at most 1 GiB is made"))
}

/// Bytes of the longest string of a tensor; 0 for numbers.
pub(super) fn longest_text(tensor: &Tensor) -> usize {
    tensor.as_slice::<String>().map_or(0, |texts| texts.iter().map(String::len).max().unwrap_or(0))
}

/// The axis that `axis` names, or why there is none.
pub(super) fn normalize_axis(axis: i64, rank: usize) -> Result<usize, String> {
    crate::ports::axis(axis, rank).ok_or_else(|| no_axis(axis, rank))
}

/// The axes that `axes` name, in ascending order; each may be named once.
pub(super) fn normalize_axes(axes: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let mut found = axes.iter().map(|name| normalize_axis(*name, rank)).collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    match found.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("axis {} is named twice", pair[0])),
        None => Ok(found),
    }
}

fn no_axis(axis: i64, rank: usize) -> String {
    let last = rank.saturating_sub(1);
    match rank {
        0 => format!("there is no axis {axis}: it is a single number"),
        _ => format!("there is no axis {axis}: the axes are 0 to {last}, or -{rank} to -1 from the last"),
    }
}

/// The sizes, if all are known.
pub(super) fn static_shape(shape: &[Dim]) -> Option<Vec<usize>> {
    shape.iter().map(crate::ports::fixed).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn rejects_repeated_axes() {
        assert_eq!(normalize_axes(&[-1, 0], 3).unwrap(), [0, 2]);
        assert!(normalize_axes(&[-1, 2], 3).unwrap_err().contains("twice"));
        assert!(normalize_axes(&[3], 3).unwrap_err().contains("0 to 2"));
        assert!(normalize_axes(&[0], 0).unwrap_err().contains("single number"));
        assert!(normalize_axis(i64::MIN, usize::MAX).is_err());
    }

    #[test]
    fn rejects_large_sizes() {
        assert!(check_size(ElementType::Float32, &[1 << 28], 0).is_ok());
        assert!(check_size(ElementType::Float32, &[1 << 28, 2], 0).is_err());
        assert!(check_size(ElementType::Uint8, &[usize::MAX, 3], 0).is_err());
        assert!(check_size(ElementType::String, &[1 << 10], 1 << 21).is_err());
    }
}
