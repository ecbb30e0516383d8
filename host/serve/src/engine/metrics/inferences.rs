//! Inference statistics as the Open Inference Protocol and Triton define them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::counters::Counters;
use super::sharded_counter::ShardedCounter;
use gpux_inference::BatchSizes;

/// The inferences of one version of a pipeline since the server started, over all protocols and reloads.
#[derive(Debug)]
pub(crate) struct Inferences {
    sums: ShardedCounter<Sums>,
    start: Instant,
    start_at: SystemTime,
    batches: Mutex<BTreeMap<String, Batches>>,
}

/// The sums of one shard.
#[derive(Debug, Default)]
struct Sums {
    success: Sum,
    fail: Sum,
    queue: AtomicU64,
    compute_input: AtomicU64,
    compute_infer: AtomicU64,
    compute_output: AtomicU64,
    /// successes without a batched model
    alone: AtomicU64,
    /// milliseconds from the start to the last success
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct Sum {
    count: AtomicU64,
    nanos: AtomicU64,
}

/// The batches of one model.
#[derive(Debug, Default)]
struct Batches {
    sizes: Counters<BatchSizes>,
    /// whether it is the pipeline's first batched model
    first: bool,
}

/// A count and a total duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) count: u64,
    pub(crate) nanos: u64,
}

/// Durations of the stages of one execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageTimings {
    /// time in the queue
    pub(crate) queued: Duration,
    /// from the start of the execution to the first step
    pub(crate) input: Duration,
    /// all steps
    pub(crate) infer: Duration,
    /// from the last step to the encoded response
    pub(crate) output: Duration,
}

impl Sum {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos(time), Ordering::Relaxed);
    }
}

/// Sums over all successes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compute {
    pub(crate) queue: u64,
    pub(crate) input: u64,
    pub(crate) infer: u64,
    pub(crate) output: u64,
}

impl Inferences {
    pub(crate) fn new() -> Self {
        Self {
            sums: ShardedCounter::default(),
            start: Instant::now(),
            start_at: SystemTime::now(),
            batches: Mutex::default(),
        }
    }

    /// Counts a success that arrived at `arrived` and has its result `now`; `alone` if the pipeline runs no batches.
    pub(crate) fn record_success(&self, arrived: Instant, now: Instant, timings: StageTimings, alone: bool) {
        let mine = self.sums.shard();
        mine.success.add(now - arrived);
        let sums = [
            (&mine.queue, timings.queued),
            (&mine.compute_input, timings.input),
            (&mine.compute_infer, timings.infer),
            (&mine.compute_output, timings.output),
        ];
        for (sum, time) in sums {
            sum.fetch_add(nanos(time), Ordering::Relaxed);
        }
        if alone {
            mine.alone.fetch_add(1, Ordering::Relaxed);
        }
        mine.last.fetch_max((now - self.start).as_millis() as u64, Ordering::Relaxed);
    }

    /// Counts a failure or a rejection.
    pub(crate) fn record_failure(&self, time: Duration) {
        self.sums.shard().fail.add(time);
    }

    /// Successful inferences.
    pub(crate) fn success(&self) -> Total {
        self.total(|sums| &sums.success)
    }

    /// Failed inferences.
    pub(crate) fn fail(&self) -> Total {
        self.total(|sums| &sums.fail)
    }

    fn total(&self, of: impl Fn(&Sums) -> &Sum) -> Total {
        Total { count: self.sum(|sums| &of(sums).count), nanos: self.sum(|sums| &of(sums).nanos) }
    }

    fn sum(&self, of: impl Fn(&Sums) -> &AtomicU64) -> u64 {
        self.sums.shards().map(|sums| of(sums).load(Ordering::Relaxed)).sum()
    }

    /// The time of all successes by stage.
    pub(crate) fn compute(&self) -> Compute {
        Compute {
            queue: self.sum(|sums| &sums.queue),
            input: self.sum(|sums| &sums.compute_input),
            infer: self.sum(|sums| &sums.compute_infer),
            output: self.sum(|sums| &sums.compute_output),
        }
    }

    /// The time of the last success, in milliseconds since 1970; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        if self.success().count == 0 {
            return 0;
        }
        let last = self.sums.shards().map(|sums| sums.last.load(Ordering::Relaxed)).max();
        let at = self.start_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        at.as_millis() as u64 + last.unwrap_or_default()
    }

    /// The number of executions: a batch of the first batched model counts once.
    pub(crate) fn executions(&self) -> u64 {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let first = batches.values().filter(|batches| batches.first);
        let together: u64 = first.map(|batches| batches.sizes.counts().values().sum::<u64>()).sum();
        self.sum(|sums| &sums.alone) + together
    }

    /// Counts these batches, by the names of the batched models, from now on.
    pub(crate) fn add_batches<'a>(&self, models: impl Iterator<Item = (&'a str, Arc<BatchSizes>)>) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, (name, sizes)) in models.enumerate() {
            let batches = batches.entry(name.to_owned()).or_default();
            batches.first |= index == 0;
            batches.sizes.add(sizes);
        }
    }

    /// Batch sizes of a model.
    pub(crate) fn batch_sizes(&self, model: &str) -> BTreeMap<usize, u64> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.get(model).map(|batches| batches.sizes.counts()).unwrap_or_default()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
