//! Capacity of a lane: the requests that it answers in time, counted over the last seconds in which it had any.

use std::time::{Duration, Instant};

use gpux_core::MovingEstimate;

/// The time constant in which earlier completions lose weight, in seconds. Within it several runs end, also of a model
/// that runs many requests together and so completes many at once.
const WINDOW: f64 = 4.0;

/// Completions and the time that they took.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    /// completed in time, weighted by age
    completions: f64,
    /// seconds in which the lane had requests, weighted by age
    busy: f64,
    /// the beginning of the time that is not in `busy` yet
    busy_since: Option<Instant>,
    last: Option<Instant>,
    /// seconds of work on a request
    work: MovingEstimate,
}

impl Throughput {
    /// The lane has requests from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.busy_since.get_or_insert(now);
    }

    /// Records the end of a request; `more` if the lane has further ones.
    pub(super) fn end(&mut self, completion: Option<Completion>, now: Instant, more: bool) {
        if let Some(completion) = completion {
            let seconds_since = |instant: Instant| now.saturating_duration_since(instant).as_secs_f64();
            let age = self.last.map_or(1.0, |last| (-seconds_since(last) / WINDOW).exp());
            self.completions = self.completions * age + if completion.is_in_time { 1.0 } else { 0.0 };
            self.busy = self.busy * age + self.busy_since.map_or(0.0, seconds_since);
            self.busy_since = Some(now);
            self.last = Some(now);
            let work = completion.work_time.as_secs_f64();
            // Work that the deadline ended would have taken longer.
            if completion.is_in_time || self.work.mean().is_none_or(|mean| work > mean) {
                self.work.record(work);
            }
        }
        self.busy_since = self.busy_since.filter(|_| more);
    }

    /// Expected time of work on a request.
    pub(super) fn work(&self) -> Option<Duration> {
        self.work.mean().map(seconds)
    }

    /// The time of work that few requests exceed.
    pub(super) fn longest_work(&self) -> Duration {
        self.work.upper().map_or(Duration::ZERO, seconds)
    }

    /// Expected time until a request is done that has `ahead` others before it, in the queue or started; zero while
    /// unknown.
    pub(super) fn until_done(&self, ahead: usize) -> Duration {
        let done = (ahead + 1) as f64 * self.busy / self.completions;
        if done.is_nan() { Duration::ZERO } else { seconds(done) }
    }
}

/// The end of a request that ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    /// the time of work on it, without waits for others
    pub(super) work_time: Duration,
    /// whether its deadline was met
    pub(super) is_in_time: bool,
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    const fn completion(is_in_time: bool) -> Completion {
        Completion { work_time: MILLISECOND.saturating_mul(10), is_in_time }
    }

    /// Within a hundredth.
    fn assert_near(time: Duration, expected: Duration) {
        assert!(time.abs_diff(expected) <= expected / 100, "{time:?} is not {expected:?}");
    }

    #[test]
    fn counts_batches_as_their_rows() {
        let (mut throughput, start) = (Throughput::default(), Instant::now());
        assert_eq!(throughput.until_done(100), Duration::ZERO, "unknown");
        throughput.begin(start);
        for batch in 1..=50 {
            // Sixteen at once, every 160 ms, and the same estimate right after them as later.
            (0..16).for_each(|_| throughput.end(Some(completion(true)), start + 160 * MILLISECOND * batch, true));
            assert_near(throughput.until_done(31), 320 * MILLISECOND);
        }
    }

    #[test]
    fn follows_the_machine() {
        let (mut throughput, mut now) = (Throughput::default(), Instant::now());
        throughput.begin(now);
        let mut run = |time: Duration, completions: usize, throughput: &mut Throughput| {
            for _ in 0..completions {
                now += time;
                throughput.end(Some(completion(true)), now, true);
            }
            now
        };
        run(10 * MILLISECOND, 1000, &mut throughput);
        assert_near(throughput.until_done(9), 100 * MILLISECOND);
        // Three times slower, for as long as three times the window.
        run(30 * MILLISECOND, 400, &mut throughput);
        assert!(throughput.until_done(9) > 270 * MILLISECOND, "{:?}", throughput.until_done(9));
        // One run takes a minute: soon forgotten, even if one request runs at a time.
        run(60_000 * MILLISECOND, 1, &mut throughput);
        assert!(throughput.until_done(0) > Duration::from_secs(1));
        run(10 * MILLISECOND, 2000, &mut throughput);
        assert!(throughput.until_done(0) < 15 * MILLISECOND, "{:?}", throughput.until_done(0));
    }

    #[test]
    fn leaves_idle_time_and_late_completions_out() {
        let (mut throughput, mut now) = (Throughput::default(), Instant::now());
        for _ in 0..10 {
            now += Duration::from_secs(3);
            throughput.begin(now);
            now += 10 * MILLISECOND;
            throughput.end(Some(completion(true)), now, false);
        }
        assert_near(throughput.until_done(9), 100 * MILLISECOND);
        throughput.begin(now);
        for number in 0..4000 {
            now += 10 * MILLISECOND;
            throughput.end(Some(completion(number % 4 == 0)), now, true);
        }
        assert_near(throughput.until_done(0), 40 * MILLISECOND);
        (0..10_000).for_each(|_| {
            now += 10 * MILLISECOND;
            throughput.end(Some(completion(false)), now, true);
        });
        assert!(throughput.until_done(0) > Duration::from_hours(1), "nothing is answered in time");
        // One that did not run is no completion.
        let before = throughput.until_done(0);
        throughput.end(None, now + MILLISECOND, true);
        assert_eq!(throughput.until_done(0), before);
    }
}
