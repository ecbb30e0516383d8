//! Timing a plan on one request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::calls::CallStatistics;
use super::plan::{Plan, PlannedStep};
use super::run::{Observer, RunError, RunOptions, deadline_after};
use super::step::Context;
use crate::values::value::Value;

/// Times of repeated runs, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyStatistics {
    /// mean
    pub avg_inference_time: f64,
    /// fastest
    pub min_inference_time: f64,
    /// slowest
    pub max_inference_time: f64,
    /// median
    pub p50: f64,
    /// 95 % were at most this
    pub p95: f64,
    /// 99 % were at most this
    pub p99: f64,
    /// runs a second, one after the other: 1000 / mean
    pub fps: f64,
}

impl LatencyStatistics {
    /// The statistics of these times; zeros for none. Percentiles are nearest-rank.
    pub fn from_times(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let millis = |time: &Duration| time.as_secs_f64() * 1e3;
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return Self::default() };
        let rank = |share: f64| {
            let index = (share * times.len() as f64).ceil() as usize;
            times.get(index.saturating_sub(1)).map_or(0.0, millis)
        };
        let avg = times.iter().map(millis).sum::<f64>() / times.len() as f64;
        Self {
            avg_inference_time: avg,
            min_inference_time: millis(first),
            max_inference_time: millis(last),
            p50: rank(0.50),
            p95: rank(0.95),
            p99: rank(0.99),
            fps: 1e3 / avg.max(f64::MIN_POSITIVE),
        }
    }
}

/// The result of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Benchmark {
    /// how many runs were timed; fewer than asked for if it was stopped
    pub runs: usize,
    /// the whole plan
    pub total: LatencyStatistics,
    /// each step, in the same runs
    pub steps: Vec<StepBenchmark>,
}

/// One step of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct StepBenchmark {
    /// its name
    pub name: String,
    /// its times
    pub times: LatencyStatistics,
    /// the calls that it made of other steps, in all runs together
    pub calls: CallStatistics,
}

/// How a benchmark is run.
#[derive(Clone, Copy, Debug)]
pub struct BenchmarkOptions<'a> {
    /// timed runs
    pub runs: usize,
    /// runs before those, not timed
    pub warmup: usize,
    /// limit of one run
    pub timeout: Option<Duration>,
    /// set to end early with what there is
    pub cancelled: Option<&'a AtomicBool>,
}

/// Collects how long each step took.
struct StepTimes {
    next: usize,
    times: Vec<Vec<Duration>>,
    calls: Vec<CallStatistics>,
}

impl Observer for StepTimes {
    fn wants_values(&self) -> bool {
        false
    }

    fn after(&mut self, _: &PlannedStep, time: Duration, _: &[Value], context: &Context) {
        self.times[self.next].push(time);
        self.calls[self.next].merge(&context.calls);
        self.next += 1;
    }
}

impl Plan {
    /// Runs one request again and again on this thread.
    pub fn benchmark(&self, request: &[(String, Value)], options: BenchmarkOptions<'_>) -> Result<Benchmark, RunError> {
        let stopped = || options.cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed));
        let deadline = || deadline_after(options.timeout);
        for _ in 0..options.warmup {
            self.run(request.to_vec(), RunOptions { deadline: deadline(), ..RunOptions::default() })?;
            if stopped() {
                break;
            }
        }
        let mut totals = Vec::with_capacity(options.runs.min(1 << 20));
        let count = self.steps().len();
        let mut watch =
            StepTimes { next: 0, times: vec![Vec::new(); count], calls: vec![CallStatistics::default(); count] };
        while totals.len() < options.runs && !stopped() {
            let values = request.to_vec();
            watch.next = 0;
            let observer: &mut dyn Observer = &mut watch;
            let start = Instant::now();
            self.run(values, RunOptions { deadline: deadline(), observer: Some(observer), ..RunOptions::default() })?;
            totals.push(start.elapsed());
        }
        let names = self.steps().iter().map(|step| step.name.clone());
        let steps = names.zip(watch.times).zip(watch.calls).filter(|((_, times), _)| !times.is_empty());
        let steps = steps.map(|((name, times), calls)| StepBenchmark {
            name,
            times: LatencyStatistics::from_times(times),
            calls,
        });
        let steps = steps.collect();
        Ok(Benchmark { runs: totals.len(), total: LatencyStatistics::from_times(totals), steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        let statistics = LatencyStatistics::from_times(times);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            close(statistics.p50, 50.0) && close(statistics.p95, 95.0) && close(statistics.p99, 99.0),
            "{statistics:?}"
        );
        assert!(close(statistics.min_inference_time, 1.0) && close(statistics.max_inference_time, 100.0));
        assert!(close(statistics.avg_inference_time, 50.5) && close(statistics.fps, 1000.0 / 50.5));
        assert_eq!(LatencyStatistics::from_times(Vec::new()), LatencyStatistics::default());
    }
}
