//! Copies the elements that lie at regular steps through a row-major tensor: transposed, cut out, repeated.

use crate::cancellation::CancelCheck;

/// One axis of a copy: the number of elements, and their distance in the source.
/// A step of 0 repeats one element, a negative one goes backwards.
pub(crate) type Axis = (usize, isize);

/// Side of the squares in which two axes change places, in elements: both sides stay in the cache.
const TILE: usize = 16;

/// Elements that are copied at a stretch, at most.
const PART: usize = 1 << 20;

/// Groups of elements that are taken apart at a stretch, for the same reason.
const STRETCH: usize = 1024;

/// Whether every element that `axes` name from `start` on lies below `len`.
pub(crate) fn lies_within(start: usize, axes: &[Axis], len: usize) -> bool {
    if axes.iter().any(|(size, _)| *size == 0) {
        return true;
    }
    let reach = axes.iter().try_fold((start as i128, start as i128), |(low, high), (size, step)| {
        let far = (*size as i128 - 1).checked_mul(*step as i128)?;
        Some((low.checked_add(far.min(0))?, high.checked_add(far.max(0))?))
    });
    reach.is_some_and(|(low, high)| low >= 0 && high < len as i128)
}

/// The elements that `axes` name, the last axis fastest. They must lie within `data`. `None` where the work was
/// stopped.
pub(crate) fn gather<T: Clone + Default>(
    data: &[T],
    start: usize,
    axes: &[Axis],
    cancel: &dyn CancelCheck,
) -> Option<Vec<T>> {
    if axes.iter().any(|(size, _)| *size == 0) {
        return Some(Vec::new());
    }
    let axes = merged(axes);
    let Some((&(size, step), outer)) = axes.split_last() else { return Some(vec![data[start].clone()]) };
    let fast = outer.iter().position(|(_, step)| *step == 1);
    if let Some(fast) = fast.filter(|_| step > 1) {
        return swapped(data, start, &axes, fast, cancel);
    }
    let mut result = Vec::with_capacity(axes.iter().map(|(size, _)| size).product());
    let mut unasked = 0;
    each_start(start, outer, |_, from| {
        let mut done = 0;
        while done < size {
            let part = (size - done).min(PART);
            unasked += part;
            // Rows may be as short as an element.
            if unasked >= STRETCH && !cancel.can_continue(std::mem::take(&mut unasked)) {
                return false;
            }
            let from = from.wrapping_add_signed(done as isize * step);
            match step {
                1 => result.extend_from_slice(&data[from..from + part]),
                0 => result.extend(std::iter::repeat_n(&data[from], part).cloned()),
                step if step > 0 => result.extend(data[from..].iter().step_by(step as usize).take(part).cloned()),
                step => result.extend(data[..=from].iter().rev().step_by(step.unsigned_abs()).take(part).cloned()),
            }
            done += part;
        }
        true
    })
    .then_some(result)
}

/// Without axes of one element, and with neighbours that walk as one axis put together.
fn merged(axes: &[Axis]) -> Vec<Axis> {
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for &(size, step) in axes.iter().filter(|(size, _)| *size != 1) {
        match merged.last_mut() {
            Some(last) if last.1 == step * size as isize => *last = (last.0 * size, step),
            _ => merged.push((size, step)),
        }
    }
    merged
}

/// Calls `visit` with each combination of places on `axes`: its number, and where it starts in the source. Whether
/// none of them said no.
fn each_start(start: usize, axes: &[Axis], mut visit: impl FnMut(usize, usize) -> bool) -> bool {
    let mut places = vec![0; axes.len()];
    let mut from = start as isize;
    for number in 0.. {
        if !visit(number, from as usize) {
            return false;
        }
        let mut axis = axes.len();
        loop {
            let Some(next) = axis.checked_sub(1) else { return true };
            axis = next;
            let (size, step) = axes[axis];
            places[axis] += 1;
            from += step;
            if places[axis] < size {
                break;
            }
            from -= step * size as isize;
            places[axis] = 0;
        }
    }
    true
}

/// [`gather`] where the elements that lie side by side in the source go along axis `fast` of the result:
/// square by square.
fn swapped<T: Clone + Default>(
    data: &[T],
    start: usize,
    axes: &[Axis],
    fast: usize,
    cancel: &dyn CancelCheck,
) -> Option<Vec<T>> {
    let (width, step) = axes[axes.len() - 1];
    let (height, step) = (axes[fast].0, step as usize);
    match (axes.len(), height == step, height) {
        (2, true, 2) => return apart::<T, 2>(&data[start..], width, cancel),
        (2, true, 3) => return apart::<T, 3>(&data[start..], width, cancel),
        (2, true, 4) => return apart::<T, 4>(&data[start..], width, cancel),
        _ => {}
    }
    let mut result = vec![T::default(); axes.iter().map(|(size, _)| size).product()];
    let inner: usize = axes[fast + 1..axes.len() - 1].iter().map(|(size, _)| size).product();
    // From one row of the square to the next, in the result.
    let stride = inner * width;
    let others: Vec<_> = axes[..fast].iter().chain(&axes[fast + 1..axes.len() - 1]).copied().collect();
    each_start(start, &others, |number, from| {
        let to = number / inner * (height * stride) + number % inner * width;
        for top in (0..height).step_by(TILE) {
            if !cancel.can_continue(TILE.min(height - top) * width) {
                return false;
            }
            let rows = top..height.min(top + TILE);
            for left in (0..width).step_by(TILE) {
                for column in left..width.min(left + TILE) {
                    let from = &data[from + column * step..][rows.clone()];
                    for (row, value) in rows.clone().zip(from) {
                        result[to + row * stride + column].clone_from(value);
                    }
                }
            }
        }
        true
    })
    .then_some(result)
}

/// Takes `count` groups of `N` elements apart: pixels into planes.
fn apart<T: Clone + Default, const N: usize>(data: &[T], count: usize, cancel: &dyn CancelCheck) -> Option<Vec<T>> {
    let mut result = vec![T::default(); N * count];
    let (groups, _) = data[..N * count].as_chunks::<N>();
    for (number, groups) in groups.chunks(STRETCH).enumerate() {
        if !cancel.can_continue(N * groups.len()) {
            return None;
        }
        for (place, plane) in result.chunks_exact_mut(count).enumerate() {
            for (to, group) in plane[number * STRETCH..].iter_mut().zip(groups) {
                to.clone_from(&group[place]);
            }
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Element by element, as the definition says.
    fn plainly(data: &[u32], start: usize, axes: &[Axis]) -> Vec<u32> {
        let mut offsets = vec![start as isize];
        for (size, step) in axes {
            offsets =
                offsets.iter().flat_map(|base| (0..*size).map(move |index| base + index as isize * step)).collect();
        }
        offsets.into_iter().map(|offset| data[offset as usize]).collect()
    }

    #[test]
    fn every_copy_path_matches_the_definition() {
        let data: Vec<u32> = (0..100_000).collect();
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..6000 {
            let axes: Vec<Axis> = (0..random(5))
                .map(|_| {
                    let size = [0, 1, 2, 3, 4, 5, 33, 70, 2000][random(9) as usize];
                    let step = [0, 1, 1, 2, 3, 3, 4, 40, 210, -1, -4][random(11) as usize];
                    (size, step)
                })
                .collect();
            if axes.iter().map(|(size, _)| (*size).max(1)).product::<usize>() > 100_000 {
                continue;
            }
            let start = random(100_000) as usize;
            if lies_within(start, &axes, data.len()) {
                let gathered = gather(&data, start, &axes, &()).unwrap();
                assert_eq!(gathered, plainly(&data, start, &axes), "{start} {axes:?}");
            }
        }
    }

    /// Cancels after this many elements.
    struct ElementBudget(Cell<usize>);

    impl CancelCheck for ElementBudget {
        fn can_continue(&self, elements: usize) -> bool {
            let left = self.0.get().checked_sub(elements);
            self.0.set(left.unwrap_or(0));
            left.is_some()
        }
    }

    #[test]
    fn stops_copying_when_cancelled() {
        let data = vec![7_u8; 1 << 20];
        let side = 1 << 10;
        // In one piece, row by row, repeated, by squares, and taken apart.
        let ways: [&[Axis]; 5] = [
            &[(4 * side, 0), (side * side, 1)],
            &[(side, side as isize), (side, -1)],
            &[(1 << 20, 0)],
            &[(side, 1), (side, side as isize)],
            &[(4, 1), (1 << 18, 4)],
        ];
        for axes in ways {
            let start = if axes[1..].iter().any(|(_, step)| *step < 0) { side - 1 } else { 0 };
            assert_eq!(gather(&data, start, axes, &ElementBudget(Cell::new(1 << 19))), None, "{axes:?}");
            if axes[0].0 <= side {
                assert!(gather(&data, start, axes, &ElementBudget(Cell::new(1 << 20))).is_some(), "{axes:?}");
            }
        }
    }

    #[test]
    fn detects_out_of_bounds_axes() {
        assert!(lies_within(0, &[(4, 3), (3, 1)], 12));
        assert!(!lies_within(1, &[(4, 3), (3, 1)], 12));
        assert!(lies_within(3, &[(4, -1)], 4));
        assert!(!lies_within(2, &[(4, -1)], 4));
        assert!(!lies_within(0, &[(usize::MAX, isize::MAX), (usize::MAX, isize::MAX)], usize::MAX));
        assert!(!lies_within(0, &[], 0));
        assert!(lies_within(9, &[(0, 1)], 0));
    }
}
