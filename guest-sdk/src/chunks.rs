//! Loops over slices that stay fast in the sandbox.
//!
//! So that a deadline can stop any loop, the sandbox puts a check at each loop's end. In a plain
//! loop that check costs more than the work, and the compiler's SIMD goes with it: 4 to 8 times
//! slower than native. These functions do [`LANES`] elements between two checks, in straight-line
//! SIMD code. The closure should be arithmetic without branches, and small.
//!
//! Slices of different lengths are worked on as far as the shortest goes.
//!
//! ```
//! use gpux_step::chunks;
//!
//! let pixels = [0_u8, 51, 255];
//! let mut numbers = [0.0; 3];
//! chunks::map(&pixels, &mut numbers, |pixel| f32::from(pixel) / 255.0);
//! assert_eq!(numbers, [0.0, 0.2, 1.0]);
//! assert_eq!(chunks::fold(&numbers, 0.0, f32::max, f32::max), 1.0);
//! ```

#![expect(clippy::inline_always, reason = "the closure must become part of the loop to become SIMD")]

use std::ops::Add;

/// Elements that are worked on in one straight line: as many as the compiler unrolls. Of more it
/// makes a loop again, with a check at its end.
pub const LANES: usize = 32;

/// `into[i] = f(from[i])`.
#[inline(always)]
pub fn map<A: Copy, B>(from: &[A], into: &mut [B], mut f: impl FnMut(A) -> B) {
    let len = from.len().min(into.len());
    let (chunks, rest) = from[..len].as_chunks::<LANES>();
    let (into_chunks, into_rest) = into[..len].as_chunks_mut::<LANES>();
    for (chunk, into) in chunks.iter().zip(into_chunks) {
        for lane in 0..LANES {
            into[lane] = f(chunk[lane]);
        }
    }
    for (element, into) in rest.iter().zip(into_rest) {
        *into = f(*element);
    }
}

/// `elements[i] = f(elements[i])`.
#[inline(always)]
pub fn update<A: Copy>(elements: &mut [A], mut f: impl FnMut(A) -> A) {
    let (chunks, rest) = elements.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for element in chunk {
            *element = f(*element);
        }
    }
    for element in rest {
        *element = f(*element);
    }
}

/// `into[i] = f(a[i], b[i])`.
#[inline(always)]
pub fn zip<A: Copy, B: Copy, C>(a: &[A], b: &[B], into: &mut [C], mut f: impl FnMut(A, B) -> C) {
    let len = a.len().min(b.len()).min(into.len());
    let (a_chunks, a_rest) = a[..len].as_chunks::<LANES>();
    let (b_chunks, b_rest) = b[..len].as_chunks::<LANES>();
    let (into_chunks, into_rest) = into[..len].as_chunks_mut::<LANES>();
    for ((a, b), into) in a_chunks.iter().zip(b_chunks).zip(into_chunks) {
        for lane in 0..LANES {
            into[lane] = f(a[lane], b[lane]);
        }
    }
    for ((a, b), into) in a_rest.iter().zip(b_rest).zip(into_rest) {
        *into = f(*a, *b);
    }
}

/// Folds the elements into [`LANES`] running results that start from `identity`, then merges those:
/// `each` takes a running result and an element, `merge` two results. The elements are not taken
/// from left to right, so sums of floats may differ in the last bits from those of a plain loop.
#[inline(always)]
pub fn fold<A: Copy, B: Copy>(
    elements: &[A],
    identity: B,
    mut each: impl FnMut(B, A) -> B,
    merge: impl FnMut(B, B) -> B,
) -> B {
    let (chunks, rest) = elements.as_chunks::<LANES>();
    let mut lanes = [identity; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = each(lanes[lane], chunk[lane]);
        }
    }
    for (lane, element) in lanes.iter_mut().zip(rest) {
        *lane = each(*lane, *element);
    }
    lanes.into_iter().reduce(merge).unwrap_or(identity)
}

/// The sum of all elements, each as a `B`: `sum::<u8, u32>(pixels)`. As [`fold`], not from left to
/// right.
#[inline(always)]
pub fn sum<A: Copy + Into<B>, B: Copy + Default + Add<Output = B>>(elements: &[A]) -> B {
    fold(elements, B::default(), |sum, element| sum + element.into(), B::add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Around the edges of a chunk.
    const LENGTHS: [usize; 8] = [0, 1, 31, 32, 33, 64, 95, 1000];

    #[test]
    fn they_do_what_a_plain_loop_does() {
        for length in LENGTHS {
            let a: Vec<u16> = (0..length as u16).collect();
            let b: Vec<u16> = a.iter().map(|x| x * 3).collect();
            let mut mapped = vec![0_u32; length];
            map(&a, &mut mapped, |x| u32::from(x) + 7);
            assert_eq!(mapped, a.iter().map(|x| u32::from(*x) + 7).collect::<Vec<_>>());
            let mut zipped = vec![0; length];
            zip(&a, &b, &mut zipped, |a, b| b - a);
            assert_eq!(zipped, a.iter().map(|x| x * 2).collect::<Vec<_>>());
            update(&mut zipped, |x| x / 2);
            assert_eq!(zipped, a);
            assert_eq!(sum::<u16, u32>(&a), a.iter().map(|x| u32::from(*x)).sum::<u32>());
            assert_eq!(fold(&a, 0, u16::max, u16::max), length.saturating_sub(1) as u16);
        }
    }

    #[test]
    fn the_shortest_slice_decides() {
        let mut into = [9; 40];
        map(&[1; 35], &mut into, |x| x);
        assert_eq!((into[34], into[35]), (1, 9));
        let mut into = [9; 3];
        zip(&[1; 35], &[2; 2], &mut into, |a, b| a + b);
        assert_eq!(into, [3, 3, 9]);
    }
}
