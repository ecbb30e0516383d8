//! Vectors of several numbers, as wide as the processor has them.
//!
//! gpux is built for every processor of its architecture. On x86-64 that means vectors of four floats, which
//! costs arithmetic half its speed and more; loops compiled here for wide vectors run where the processor has them.

use fearless_simd::{Level, Simd};

use super::deadline::{Deadline, DeadlineExceeded};
use gpux_core::{Tensor, TensorElement};

/// Elements between two deadline checks, at most.
const PART: usize = 1 << 20;

/// AVX2 with fused multiplication and addition.
#[cfg(target_arch = "x86_64")]
pub(super) type Wide = fearless_simd::Avx2;
/// NEON: vectors of four floats, which every processor has.
#[cfg(target_arch = "aarch64")]
pub(super) type Wide = fearless_simd::Neon;
/// Nothing: [`wide`] never gives it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) type Wide = fearless_simd::Fallback;

/// The proof that this processor has wide vectors; `None` if it has not.
pub(super) fn wide() -> Option<Wide> {
    let level = Level::new();
    #[cfg(target_arch = "x86_64")]
    return level.as_avx2();
    #[cfg(target_arch = "aarch64")]
    return level.as_neon();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return None.filter(|_| !level.is_fallback());
}

/// Runs `work` compiled for wide vectors, where this processor has them. Functions that it calls must be inlined
/// (`#[inline(always)]`, the closure too).
#[inline(always)]
pub(super) fn vectorize<R>(work: impl FnOnce() -> R) -> R {
    match wide() {
        Some(wide) => wide.vectorize(work),
        None => work(),
    }
}

/// Changes every number. A closure that holds others must be `move`: what lies behind a reference could change.
#[inline(always)]
pub(super) fn map_in_place<T: Copy>(numbers: &mut [T], change: impl Fn(T) -> T) {
    vectorize(
        #[inline(always)]
        move || {
            for number in numbers {
                *number = change(*number);
            }
        },
    );
}

/// Changes every element of a tensor of this type, in the request's time.
#[inline(always)]
pub(super) fn map_elements<T: TensorElement + Copy>(
    tensor: &mut Tensor,
    deadline: &Deadline,
    change: impl Fn(T) -> T + Copy,
) -> Result<(), DeadlineExceeded> {
    tensor.change(
        #[inline(always)]
        move |elements| {
            for part in elements.chunks_mut(PART) {
                // After the deadline, the result is discarded.
                if deadline.check_after(part.len()).is_ok() {
                    map_in_place(part, change);
                }
            }
        },
    );
    deadline.check_cached()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_deadline() {
        let mut tensor = Tensor::new([3 << 20], vec![1_u8; 3 << 20]).unwrap();
        let add =
            |tensor: &mut Tensor, looks| map_elements(tensor, &Deadline::exceeded_after(looks), |value: u8| value + 1);
        // An unshared tensor, then a shared one.
        assert_eq!(add(&mut tensor, 1), Err(DeadlineExceeded));
        let other = tensor.clone();
        assert_eq!(add(&mut tensor, 1), Err(DeadlineExceeded));
        assert_eq!(add(&mut tensor, 9), Ok(()));
        drop(other);
    }
}
