//! Token bucket for request rates.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A token bucket: it fills at `rate` a second, up to `burst`.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    pub(crate) rate: f64,
    pub(crate) burst: f64,
    /// the number of tokens, and the time at which it was computed
    level: Mutex<(f64, Option<Instant>)>,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, level: Mutex::new((burst, None)) }
    }

    /// Takes a token; if there is none, fails with the time until the next.
    pub(crate) fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = level.1.map_or(0.0, |last| now.saturating_duration_since(last).as_secs_f64());
        let there = passed.mul_add(self.rate, level.0).min(self.burst);
        if there < 1.0 {
            *level = (there, Some(now));
            return Err(Duration::try_from_secs_f64((1.0 - there) / self.rate).unwrap_or(Duration::MAX));
        }
        *level = (there - 1.0, Some(now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_a_burst_then_the_rate() {
        let bucket = TokenBucket::new(10.0, 3.0);
        let start = Instant::now();
        let taken = |at: u64| bucket.take(start + Duration::from_millis(at));
        assert_eq!([taken(0), taken(0), taken(0)], [Ok(()); 3]);
        let wait = taken(0).err().unwrap_or_default();
        assert!(wait > Duration::from_millis(99) && wait < Duration::from_millis(101), "{wait:?}");
        assert_eq!((taken(50).is_err(), taken(101).is_ok(), taken(102).is_err()), (true, true, true));
        let much_later: Vec<_> = (0..4).map(|_| taken(10_000).is_ok()).collect();
        assert_eq!(much_later, [true, true, true, false], "it does not fill beyond the burst");
    }
}
