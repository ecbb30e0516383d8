//! Walks through tensors a piece at a time, so that a step's own memory stays small and its start
//! fast: a fresh sandbox pays for each page that is touched, and a tensor of a photo has hundreds.
//!
//! A piece is at most [`BUFFER`] bytes, and a multiple of 96 elements (but for the last): pixels of
//! one to four channels are never torn apart, and [`chunks`] has no rest to do.
//!
//! ```
//! use gpux_step::{Tensor, stream};
//!
//! let image = Tensor::of([2, 1, 2], &[0_u8, 51, 102, 255])?;
//! let mut numbers = Tensor::zeros::<f32>(image.shape())?;
//! stream::map(&image, &mut numbers, |pixel: u8| f32::from(pixel) / 255.0)?;
//! assert_eq!(numbers.view::<f32>()?.to_vec(), [0.0, 0.2, 0.4, 1.0]);
//! # Ok::<(), gpux_step::Error>(())
//! ```

use crate::{Element, Error, Tensor, chunks};

/// Most bytes of a tensor, or of several walked through together, that are held at a time.
pub const BUFFER: usize = 32 << 10;

/// What the length of a piece is a multiple of, in elements.
const MULTIPLE: usize = 96;

/// How many elements a piece has, where one element of all tensors together takes `bytes`.
const fn piece(bytes: usize) -> usize {
    BUFFER / bytes / MULTIPLE * MULTIPLE
}

/// Calls `f` with each piece of `tensor`, and where in the tensor it starts, in elements.
#[inline]
pub fn read<T: Element>(tensor: &Tensor, mut f: impl FnMut(usize, &[T])) -> Result<(), Error> {
    try_read(tensor, |start, elements| {
        f(start, elements);
        Ok(())
    })
}

/// As [`read`], to the first error of `f`.
#[inline]
pub fn try_read<T: Element>(tensor: &Tensor, mut f: impl FnMut(usize, &[T]) -> Result<(), Error>) -> Result<(), Error> {
    tensor.expect::<T>()?;
    pieces(tensor.len(), piece(size_of::<T>()))
        .try_for_each(|(start, len)| f(start, &tensor.read_unchecked(start, len)?))
}

/// Writes all of `tensor`: `f` fills each piece, told where in the tensor it starts, in elements.
#[inline]
pub fn write<T: Element>(tensor: &mut Tensor, mut f: impl FnMut(usize, &mut [T])) -> Result<(), Error> {
    tensor.expect_own::<T>()?;
    let (total, piece) = (tensor.len(), piece(size_of::<T>()));
    let mut buffer = buffer(total, piece);
    pieces(total, piece).try_for_each(|(start, len)| {
        let part = &mut buffer[..len];
        f(start, part);
        tensor.write_unchecked(start, part)
    })
}

/// Fills `into` from `from`, which has as many elements: `f` gets each piece of one and fills the
/// same piece of the other, told where they start, in elements.
#[inline]
pub fn convert<A: Element, B: Element>(
    from: &Tensor,
    into: &mut Tensor,
    mut f: impl FnMut(usize, &[A], &mut [B]),
) -> Result<(), Error> {
    from.expect::<A>()?;
    same_length(from, into)?;
    into.expect_own::<B>()?;
    let (total, piece) = (from.len(), piece(size_of::<A>() + size_of::<B>()));
    let mut buffer = buffer(total, piece);
    pieces(total, piece).try_for_each(|(start, len)| {
        let part = &mut buffer[..len];
        f(start, &from.read_unchecked(start, len)?, part);
        into.write_unchecked(start, part)
    })
}

/// `into[i] = f(from[i])`, for tensors with as many elements, in SIMD as far as `f` allows. Name the
/// types, as in `map::<u8, f32>(…)`, where `f` does not say them.
#[inline]
pub fn map<A: Element, B: Element>(from: &Tensor, into: &mut Tensor, mut f: impl FnMut(A) -> B) -> Result<(), Error> {
    convert(from, into, |_, from, into| chunks::map(from, into, &mut f))
}

/// `into[i] = f(a[i], b[i])`, for tensors with as many elements, in SIMD as far as `f` allows.
#[inline]
pub fn zip<A: Element, B: Element, C: Element>(
    a: &Tensor,
    b: &Tensor,
    into: &mut Tensor,
    mut f: impl FnMut(A, B) -> C,
) -> Result<(), Error> {
    a.expect::<A>()?;
    b.expect::<B>()?;
    into.expect_own::<C>()?;
    same_length(a, b)?;
    same_length(a, into)?;
    let (total, piece) = (a.len(), piece(size_of::<A>() + size_of::<B>() + size_of::<C>()));
    let mut buffer = buffer(total, piece);
    pieces(total, piece).try_for_each(|(start, len)| {
        let part = &mut buffer[..len];
        chunks::zip(&a.read_unchecked(start, len)?, &b.read_unchecked(start, len)?, part, &mut f);
        into.write_unchecked(start, part)
    })
}

/// Folds all elements, as [`chunks::fold`] does.
#[inline]
pub fn fold<A: Element, B: Copy>(
    tensor: &Tensor,
    identity: B,
    mut each: impl FnMut(B, A) -> B,
    mut merge: impl FnMut(B, B) -> B,
) -> Result<B, Error> {
    let mut folded = identity;
    read(tensor, |_, elements| {
        let piece = chunks::fold(elements, identity, &mut each, &mut merge);
        folded = merge(folded, piece);
    })?;
    Ok(folded)
}

/// For one piece. Zeros come with the memory; filling it would be a loop of its own.
fn buffer<T: Element>(total: usize, piece: usize) -> Vec<T> {
    vec![T::default(); piece.min(total)]
}

/// Start and length of each piece of `total` elements.
fn pieces(total: usize, piece: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..total).step_by(piece).map(move |start| (start, piece.min(total - start)))
}

fn same_length(a: &Tensor, b: &Tensor) -> Result<(), Error> {
    let (a, b) = (a.len(), b.len());
    if a == b { Ok(()) } else { Err(Error::Failed(format!("one tensor has {a} elements, the other {b}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing, less than a piece, and several pieces with a rest.
    const LENGTHS: [u32; 4] = [0, 5, 10_000, 100_003];

    fn numbers(length: u32) -> Tensor {
        Tensor::of([length], &(0..length).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn every_element_is_reached_once() {
        for length in LENGTHS {
            let tensor = numbers(length);
            let mut next = 0;
            read(&tensor, |start, elements: &[f32]| {
                assert_eq!((start, elements[0]), (next, next as f32));
                assert!(size_of_val(elements) <= BUFFER);
                next += elements.len();
                assert!(elements.len().is_multiple_of(MULTIPLE) || next == length as usize);
            })
            .unwrap();
            assert_eq!(next, length as usize);

            let mut halves = Tensor::zeros::<f64>([length]).unwrap();
            map(&tensor, &mut halves, |x: f32| f64::from(x) / 2.0).unwrap();
            let expected: Vec<_> = (0..length).map(|i| f64::from(i) / 2.0).collect();
            assert_eq!(*halves.view::<f64>().unwrap(), expected);

            let mut sums = Tensor::zeros::<f32>([length]).unwrap();
            zip(&tensor, &halves, &mut sums, |a: f32, b: f64| a + b as f32).unwrap();
            let expected: Vec<_> = (0..length).map(|i| i as f32 * 1.5).collect();
            assert_eq!(*sums.view::<f32>().unwrap(), expected);

            let mut written = Tensor::zeros::<u32>([length]).unwrap();
            write(&mut written, |start, elements| {
                for (i, element) in elements.iter_mut().enumerate() {
                    *element = (start + i) as u32;
                }
            })
            .unwrap();
            assert!(written.view::<u32>().unwrap().iter().enumerate().all(|(i, x)| *x == i as u32));
            let largest = fold(&written, 0, u32::max, u32::max).unwrap();
            assert_eq!(largest, length.saturating_sub(1));
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let (short, long) = (numbers(3), numbers(4));
        let mut into = Tensor::zeros::<f32>([4]).unwrap();
        let error = map(&short, &mut into, |x: f32| x).unwrap_err();
        assert_eq!(error, Error::failed("one tensor has 3 elements, the other 4"));
        let error = map(&long, &mut into, |x: u8| f32::from(x)).unwrap_err();
        assert_eq!(error, Error::invalid("the tensor holds float32, not uint8"));
        let error = map(&long, &mut into, |x: f32| x as i32).unwrap_err();
        assert_eq!(error, Error::failed("the tensor holds float32, not int32"));
        let error = zip(&long, &short, &mut into, |a: f32, _: f32| a).unwrap_err();
        assert!(matches!(error, Error::Failed(_)));
    }
}
