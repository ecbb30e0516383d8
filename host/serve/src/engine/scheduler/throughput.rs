//! Throughput of a lane, as moving averages.

use std::time::{Duration, Instant};

/// Weight of the newest value in the averages: about the last twenty count.
const NEWEST: f64 = 0.1;

/// Exponential moving averages.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    /// seconds from the start to the end of a request
    each: Option<f64>,
    /// seconds from one completion to the next while requests were queued; reflects concurrency and batches
    gap: Option<f64>,
    last: Option<Instant>,
}

impl Throughput {
    /// Records a completion at `now` after `time`; `more` if the lane has further requests.
    pub(super) fn done(&mut self, time: Duration, now: Instant, more: bool) {
        average(&mut self.each, time.as_secs_f64());
        if let Some(last) = self.last {
            average(&mut self.gap, now.saturating_duration_since(last).as_secs_f64());
        }
        self.last = more.then_some(now);
    }

    /// Expected duration of one request.
    pub(super) fn each(&self) -> Duration {
        const UNKNOWN: Duration = Duration::from_millis(1);
        self.each.map_or(UNKNOWN, |each| Duration::try_from_secs_f64(each).unwrap_or(Duration::MAX))
    }

    /// Expected wait behind `waiting` others.
    pub(super) fn wait(&self, waiting: usize) -> Duration {
        let gap = self.gap.or(self.each).unwrap_or(0.0);
        Duration::try_from_secs_f64(gap * (waiting + 1) as f64).unwrap_or(Duration::MAX)
    }

    /// Expected time to completion behind `waiting` others.
    pub(super) fn until_done(&self, waiting: usize) -> Duration {
        let each = self.each.map_or(Duration::ZERO, |_| self.each());
        self.wait(waiting).saturating_add(each)
    }
}

fn average(average: &mut Option<f64>, newest: f64) {
    *average = Some(average.map_or(newest, |old| old + NEWEST * (newest - old)));
}
