//! Inline execution: cheap requests run on the I/O thread, without a hop to a worker.
//!
//! While a request runs there, all connections of that thread wait. So only requests run inline whose cost depends on
//! input shapes alone: numeric tensors, for operators whose cost does not depend on values. A worker executes unknown
//! shapes first; shapes that it executed quickly run inline from then on.

mod fixed_cost;

use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gpux::Pipeline;
use gpux_core::{ElementType, Kind, Outputs, Request};

/// About the cost of a hop to a worker and back. Cheaper requests run on the I/O thread.
const HOP_COST: Duration = Duration::from_micros(50);

/// Shapes whose inline execution took this long are forgotten. A preempted thread may take some milliseconds.
const TOO_LONG: Duration = Duration::from_millis(5);

/// A body that is read, or outputs that are written, in a few microseconds.
const SMALL: usize = 8 << 10;

/// Shape hashes that are remembered.
const KNOWN: usize = 64;

/// Shapes whose requests were cheaper than a hop to a worker.
#[derive(Debug)]
pub(crate) struct InlineExecution {
    hashes: RandomState,
    /// indexed by the first bits of the hash
    known: [AtomicU64; KNOWN],
    any: AtomicBool,
}

/// Hash of the names, element types and shapes of a request's inputs. Never 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShapeHash(u64);

impl InlineExecution {
    /// `None` where the cost of a request does not depend on shapes alone.
    pub(crate) fn for_pipeline(pipeline: &Pipeline) -> Option<Self> {
        let numbers = |kind: &Kind| match kind {
            Kind::Tensor(tensor) => tensor.elements.iter().all(|element| element != ElementType::String),
            _ => false,
        };
        // Batched requests wait for each other.
        let is_cost_fixed = !pipeline.batches()
            && pipeline.plan().inputs().iter().all(|input| numbers(&input.port.kind))
            && pipeline.spec().pipeline.iter().all(fixed_cost::is_step_cost_fixed)
            && pipeline.models().all(|(_, model)| fixed_cost::is_model_cost_fixed(model));
        is_cost_fixed.then(Self::new)
    }

    fn new() -> Self {
        Self { hashes: RandomState::new(), known: std::array::from_fn(|_| AtomicU64::new(0)), any: false.into() }
    }

    /// Whether a request with a body of this size may run inline.
    pub(crate) fn may_apply(&self, bytes: usize) -> bool {
        bytes <= SMALL && self.any.load(Ordering::Relaxed)
    }

    /// The hash of a request's shapes; `None` if it holds anything but small numeric tensors.
    pub(crate) fn shapes(&self, request: &Request) -> Option<ShapeHash> {
        let mut hash = self.hashes.build_hasher();
        for (name, value) in request {
            let tensor = value.as_tensor().filter(|tensor| tensor.byte_len() <= SMALL)?;
            (name, tensor.element(), tensor.shape()).hash(&mut hash);
        }
        Some(ShapeHash(hash.finish() | 1))
    }

    /// Whether requests of these shapes were cheap.
    pub(crate) fn contains(&self, shapes: ShapeHash) -> bool {
        self.entry(shapes).load(Ordering::Relaxed) == shapes.0
    }

    /// Notes that a worker executed a request in `took`, from bytes to bytes.
    pub(crate) fn note_worker_run(&self, shapes: ShapeHash, took: Duration) {
        if took < HOP_COST && !self.contains(shapes) {
            self.entry(shapes).store(shapes.0, Ordering::Relaxed);
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the I/O thread executed a request in `took`.
    pub(crate) fn note_inline_run(&self, shapes: ShapeHash, took: Duration) {
        if took >= TOO_LONG {
            let _ = self.entry(shapes).compare_exchange(shapes.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn entry(&self, ShapeHash(hash): ShapeHash) -> &AtomicU64 {
        &self.known[(hash >> (u64::BITS - KNOWN.ilog2())) as usize]
    }
}

/// Whether outputs are encoded in a few microseconds.
pub(crate) fn is_small_output(outputs: &Outputs) -> bool {
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
    fn learns_and_forgets_cheap_shapes() {
        let inline = InlineExecution::new();
        let [row, column] = [[1, 8], [8, 1]].map(|shape| inline.shapes(&request(&shape)).unwrap());
        assert!(!inline.may_apply(1) && !inline.contains(row));
        inline.note_worker_run(row, HOP_COST);
        assert!(!inline.may_apply(1), "it took as long as a hop");
        inline.note_worker_run(row, HOP_COST / 2);
        assert!(inline.may_apply(SMALL) && !inline.may_apply(SMALL + 1));
        assert!(inline.contains(row) && !inline.contains(column), "as many numbers may take another time");
        inline.note_inline_run(row, TOO_LONG / 2);
        assert!(inline.contains(row));
        inline.note_inline_run(row, TOO_LONG);
        assert!(!inline.contains(row));
    }

    #[test]
    fn hashes_shapes_of_small_tensors_only() {
        let inline = InlineExecution::new();
        assert!(inline.shapes(&request(&[SMALL / 4])).is_some());
        assert!(inline.shapes(&request(&[SMALL / 4 + 1])).is_none());
        assert!(inline.shapes(&vec![("x".to_owned(), Value::from("text"))]).is_none());
    }
}
