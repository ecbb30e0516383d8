//! Lock-free histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::sharded_counter::ShardedCounter;

/// Upper bounds of the buckets, in nanoseconds: from a short step to the longest usual timeout. Longer durations are in
/// a last bucket without a bound.
const BOUNDS: [u64; 21] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// Histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram(ShardedCounter<HistogramShard>);

#[derive(Debug, Default)]
struct HistogramShard {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// A snapshot of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HistogramSnapshot {
    /// per bucket, its upper bound in seconds and its own count (not cumulative)
    pub(crate) buckets: Vec<(f64, u64)>,
    /// the number of observations
    pub(crate) count: u64,
    /// the sum of all durations, in seconds
    pub(crate) sum: f64,
}

impl Histogram {
    /// Counts a duration: two atomic additions, no lock.
    pub(crate) fn observe(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanos);
        let times = self.0.shard();
        if let Some(bucket) = times.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        times.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let bounds = BOUNDS.iter().map(|nanos| *nanos as f64 / 1e9).chain([f64::INFINITY]);
        let mut buckets: Vec<_> = bounds.map(|bound| (bound, 0)).collect();
        let mut nanos = 0;
        for times in self.0.shards() {
            for ((_, all), count) in buckets.iter_mut().zip(&times.buckets) {
                *all += count.load(Ordering::Relaxed);
            }
            nanos += times.nanos.load(Ordering::Relaxed);
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        HistogramSnapshot { buckets, count, sum: nanos as f64 / 1e9 }
    }
}

impl HistogramSnapshot {
    /// The mean in seconds; 0 if empty.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The least bucket bound, in seconds, that covers this share of the observations; `None` if empty or beyond the
    /// last bound.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut below = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            below += count;
            below >= wanted && below > 0
        });
        found.map(|(bound, _)| *bound).filter(|bound| bound.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observes_into_the_right_bucket() {
        let histogram = Histogram::default();
        for micros in [1, 5, 6, 1_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        histogram.observe(Duration::from_secs(31));
        let snapshot = histogram.snapshot();
        let filled: Vec<_> = snapshot.buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!(filled, [(5e-6, 2), (1e-5, 1), (1e-3, 1), (f64::INFINITY, 1)]);
        assert_eq!((snapshot.count, snapshot.quantile(0.5), snapshot.quantile(1.0)), (5, Some(1e-5), None));
        assert!((snapshot.sum - 31.001_012).abs() < 1e-9, "{}", snapshot.sum);
    }

    #[test]
    fn empty_histogram_has_no_quantile() {
        let snapshot = Histogram::default().snapshot();
        assert_eq!((snapshot.count, snapshot.mean(), snapshot.quantile(0.5)), (0, 0.0, None));
    }
}
