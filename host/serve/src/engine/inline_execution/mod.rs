//! Which requests are known to be short: they have their turn on the thread that reads their connection, without
//! a hop to a worker. What that thread is kept for, all of its connections wait for.
//!
//! How long a request takes is foreseen where the shapes of what it brings settle that: it brings tensors of
//! numbers alone, to operators none of which does more for one number than for another. A request whose shapes
//! were not short before goes to a worker; what a worker has quickly done is short from then on.

mod fixed_cost;

use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gpux::Pipeline;
use gpux_core::{ElementType, Kind, Outputs, Request};

/// About what a hop to a worker and back costs: the connection's thread keeps a turn for less than that.
const SHORT: Duration = Duration::from_micros(50);

/// A turn that was thought to be short, and has kept the connection's thread as long as this, is so no more. A
/// thread that the system has set aside meanwhile may take some milliseconds.
const LONG: Duration = Duration::from_millis(5);

/// A body that is read, or outputs that are written, in a few microseconds.
const SMALL: usize = 8 << 10;

/// Combinations of shapes that are known at a time.
const KNOWN: usize = 64;

/// The shapes of requests that were short.
#[derive(Debug)]
pub(crate) struct Short {
    hashes: RandomState,
    /// each in the place that its first bits name
    known: [AtomicU64; KNOWN],
    any: AtomicBool,
}

/// What a request brings: names, element types, shapes. Never 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shapes(u64);

impl Short {
    /// `None` where shapes do not settle how long a request takes.
    pub(crate) fn of(pipeline: &Pipeline) -> Option<Self> {
        let numbers = |kind: &Kind| match kind {
            Kind::Tensor(tensor) => tensor.elements.iter().all(|element| element != ElementType::String),
            _ => false,
        };
        // Nor are requests short that wait for each other.
        let settled = !pipeline.batches()
            && pipeline.plan().inputs().iter().all(|input| numbers(&input.port.kind))
            && pipeline.spec().pipeline.iter().all(fixed_cost::is_step_settled)
            && pipeline.models().all(|(_, model)| fixed_cost::is_model_settled(model));
        settled.then(Self::new)
    }

    fn new() -> Self {
        Self { hashes: RandomState::new(), known: std::array::from_fn(|_| AtomicU64::new(0)), any: false.into() }
    }

    /// Whether a request with a body of so many bytes may be short.
    pub(crate) fn may_be(&self, bytes: usize) -> bool {
        bytes <= SMALL && self.any.load(Ordering::Relaxed)
    }

    /// What a request brings; `None` if that is anything but numbers.
    pub(crate) fn shapes(&self, request: &Request) -> Option<Shapes> {
        let mut hash = self.hashes.build_hasher();
        for (name, value) in request {
            let tensor = value.as_tensor().filter(|tensor| tensor.byte_len() <= SMALL)?;
            (name, tensor.element(), tensor.shape()).hash(&mut hash);
        }
        Some(Shapes(hash.finish() | 1))
    }

    /// Whether requests that bring this were short.
    pub(crate) fn knows(&self, shapes: Shapes) -> bool {
        self.place(shapes).load(Ordering::Relaxed) == shapes.0
    }

    /// A worker has done a request in `took`, from bytes to bytes.
    pub(crate) fn note_worker(&self, shapes: Shapes, took: Duration) {
        if took < SHORT && !self.knows(shapes) {
            self.place(shapes).store(shapes.0, Ordering::Relaxed);
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// The connection's thread has done one.
    pub(crate) fn note_here(&self, shapes: Shapes, took: Duration) {
        if took >= LONG {
            let _ = self.place(shapes).compare_exchange(shapes.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn place(&self, Shapes(hash): Shapes) -> &AtomicU64 {
        &self.known[(hash >> (u64::BITS - KNOWN.ilog2())) as usize]
    }
}

/// Whether what was given is written in a few microseconds.
pub(crate) fn is_soon_written(outputs: &Outputs) -> bool {
    outputs.iter().map(|(_, value)| value.byte_len()).sum::<usize>() <= SMALL
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Tensor, Value};

    fn request(shape: &[usize]) -> Request {
        vec![("x".to_owned(), Value::from(Tensor::zeros(ElementType::Float32, shape.to_vec()).unwrap()))]
    }

    #[test]
    fn shapes_are_short_once_a_worker_was_quick_until_they_keep_a_thread() {
        let short = Short::new();
        let [row, column] = [[1, 8], [8, 1]].map(|shape| short.shapes(&request(&shape)).unwrap());
        assert!(!short.may_be(1) && !short.knows(row));
        short.note_worker(row, SHORT);
        assert!(!short.may_be(1), "it took as long as a hop");
        short.note_worker(row, SHORT / 2);
        assert!(short.may_be(SMALL) && !short.may_be(SMALL + 1));
        assert!(short.knows(row) && !short.knows(column), "as many numbers may take another time");
        short.note_here(row, LONG / 2);
        assert!(short.knows(row));
        short.note_here(row, LONG);
        assert!(!short.knows(row));
    }

    #[test]
    fn only_few_numbers_have_shapes() {
        let short = Short::new();
        assert!(short.shapes(&request(&[SMALL / 4])).is_some());
        assert!(short.shapes(&request(&[SMALL / 4 + 1])).is_none());
        assert!(short.shapes(&vec![("x".to_owned(), Value::from("text"))]).is_none());
    }
}
