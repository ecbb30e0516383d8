//! NumPy's notation for parts of a tensor: `1:-1, ::2, ..., 0`.

/// The selection along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AxisSlice {
    /// one place; the axis goes
    At(i64),
    /// from `start` up to, without, `stop`, every `step`-th
    Range { start: Option<i64>, stop: Option<i64>, step: i64 },
    /// as many whole axes as are needed
    Rest,
}

impl AxisSlice {
    pub(super) const WHOLE: Self = Self::Range { start: None, stop: None, step: 1 };
}

/// Reads the notation.
pub(super) fn parse(text: &str) -> Result<Vec<AxisSlice>, String> {
    let parts = text.split(',').map(|part| parse_part(part.trim())).collect::<Result<Vec<_>, _>>()?;
    if parts.iter().filter(|part| **part == AxisSlice::Rest).count() > 1 {
        return Err("`...` can stand only once".into());
    }
    Ok(parts)
}

fn parse_part(text: &str) -> Result<AxisSlice, String> {
    if text == "..." {
        return Ok(AxisSlice::Rest);
    }
    let number = |text: &str| {
        let text = text.trim();
        let wrong = || format!("`{text}` is not a whole number");
        if text.is_empty() { Ok(None) } else { text.parse::<i64>().map(Some).map_err(|_| wrong()) }
    };
    let bounds = text.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
    match bounds.as_slice() {
        [Some(place)] => Ok(AxisSlice::At(*place)),
        [start, stop] => Ok(AxisSlice::Range { start: *start, stop: *stop, step: 1 }),
        [_, _, Some(0)] => Err(format!("`{text}` has step 0")),
        [start, stop, step] => Ok(AxisSlice::Range { start: *start, stop: *stop, step: step.unwrap_or(1) }),
        [None] => Err("a part is empty: `:` takes a whole axis".into()),
        _ => Err(format!("`{text}` has more than start:stop:step")),
    }
}

/// First place and number of places of a range along an axis of `size`: Python's `slice.indices`.
pub(super) fn places(start: Option<i64>, stop: Option<i64>, step: i64, size: usize) -> (usize, usize) {
    let (size, step) = (size as i128, i128::from(step));
    let (low, high) = if step < 0 { (-1, size - 1) } else { (0, size) };
    let bound = |place: i64| {
        let place = i128::from(place);
        if place < 0 { (place + size).max(low) } else { place.min(high) }
    };
    let (first, last) = if step < 0 { (high, low) } else { (low, high) };
    let start = start.map_or(first, bound);
    let stop = stop.map_or(last, bound);
    let distance = if step < 0 { start - stop } else { stop - start };
    let count = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    if count == 0 { (0, 0) } else { (start as usize, count as usize) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parses_the_notation() {
        assert_eq!(
            parse(" 1:-1 , ::2, ..., -3").unwrap(),
            [
                AxisSlice::Range { start: Some(1), stop: Some(-1), step: 1 },
                AxisSlice::Range { start: None, stop: None, step: 2 },
                AxisSlice::Rest,
                AxisSlice::At(-3),
            ]
        );
        for (text, word) in [
            ("", "empty"),
            ("1,,2", "empty"),
            ("a:b", "`a` is not"),
            ("::0", "step 0"),
            ("1:2:3:4", "more than"),
            ("..., ...", "once"),
            ("99999999999999999999", "not a whole number"),
            ("1.5", "not a whole number"),
        ] {
            assert!(parse(text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn ranges_follow_python_slices() {
        let max = i64::MAX;
        assert_eq!(places(None, None, 1, 5), (0, 5));
        assert_eq!(places(Some(1), Some(-1), 2, 6), (1, 2));
        assert_eq!(places(None, None, -1, 5), (4, 5));
        assert_eq!(places(None, None, i64::MIN, 5), (4, 1));
        assert_eq!(places(Some(max), Some(i64::MIN), -2, 5), (4, 3));
        assert_eq!(places(Some(i64::MIN), Some(max), max, 5), (0, 1));
        assert_eq!(places(Some(3), Some(2), 1, 5), (0, 0));
        assert_eq!(places(None, None, -1, 0), (0, 0));
    }
}
