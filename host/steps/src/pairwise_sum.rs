//! Sums as NumPy computes them.

use crate::deadline::{Deadline, DeadlineExceeded};

/// What can be added.
pub(crate) trait Addend: Copy {
    const ZERO: Self;

    /// Whole numbers wrap around, as in NumPy.
    fn plus(self, other: Self) -> Self;
}

macro_rules! addend {
    ($($type:ty: $plus:expr),+) => {
        $(impl Addend for $type {
            const ZERO: Self = 0 as Self;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
        })+
    };
}
addend!(f32: |a, b| a + b, f64: |a, b| a + b, i64: i64::wrapping_add, u64: u64::wrapping_add);

/// Elements between two deadline checks, at most.
const PART: usize = 1 << 16;

/// The sum of what `of` makes of each number: floats in pairs of halves, which loses little precision.
pub(crate) fn pairwise_sum<T: Copy, A: Addend>(
    numbers: &[T],
    deadline: &Deadline,
    of: impl Fn(T) -> A + Copy,
) -> Result<A, DeadlineExceeded> {
    if numbers.len() <= PART {
        deadline.check_after(numbers.len())?;
        return Ok(short_sum(numbers, of));
    }
    let (first, second) = halves(numbers);
    Ok(pairwise_sum(first, deadline, of)?.plus(pairwise_sum(second, deadline, of)?))
}

fn short_sum<T: Copy, A: Addend>(numbers: &[T], of: impl Fn(T) -> A + Copy) -> A {
    if numbers.len() > 128 {
        let (first, second) = halves(numbers);
        return short_sum(first, of).plus(short_sum(second, of));
    }
    let (parts, rest) = numbers.as_chunks::<8>();
    let mut sum = A::ZERO;
    if let Some((first, parts)) = parts.split_first() {
        let mut lanes = first.map(of);
        for part in parts {
            for (lane, number) in lanes.iter_mut().zip(part) {
                *lane = lane.plus(of(*number));
            }
        }
        let pair = |place: usize| lanes[place].plus(lanes[place + 1]);
        sum = pair(0).plus(pair(2)).plus(pair(4).plus(pair(6)));
    }
    rest.iter().fold(sum, |sum, number| sum.plus(of(*number)))
}

/// Both halves, the first a multiple of eight long.
fn halves<T>(numbers: &[T]) -> (&[T], &[T]) {
    let half = numbers.len() / 2;
    numbers.split_at(half - half % 8)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn long_sums_are_exact_and_stop_at_the_deadline() {
        let numbers = vec![0.1_f32; 1 << 20];
        let sum = |deadline: &Deadline| pairwise_sum(&numbers, deadline, |number| number);
        let exact = f64::from(0.1_f32) * f64::from(1 << 20);
        assert!((f64::from(sum(&Deadline::default()).unwrap()) - exact).abs() < 1e-6 * exact);
        assert_eq!(sum(&Deadline::exceeded_after(0)), Err(DeadlineExceeded));
        assert_eq!(pairwise_sum(&[i64::MAX, 2], &Deadline::default(), |number| number), Ok(i64::MIN + 1));
        assert_eq!(pairwise_sum::<f32, f32>(&[], &Deadline::default(), |number| number), Ok(0.0));
    }
}
