//! Counts of the calls that steps make of other steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpux_core::CallStatistics;

/// The most names of a step, across reloads: the calls of further ones are counted together.
const MAX_NAMES: usize = 64;

/// The name of what is counted together.
const OTHERS: &str = "others";

/// The calls that one step made, by the names of the called steps.
#[derive(Debug, Default)]
pub(crate) struct CallMetrics(Mutex<BTreeMap<String, CallCount>>);

/// The calls of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallCount {
    pub(crate) count: u64,
    pub(crate) failed: u64,
    pub(crate) time: Duration,
}

impl CallMetrics {
    /// Adds the calls of one run.
    pub(crate) fn record(&self, calls: &CallStatistics) {
        if calls.is_empty() {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for called in calls.flattened() {
            let is_new = !counts.contains_key(&*called.path);
            let name = if is_new && counts.len() >= MAX_NAMES { OTHERS } else { &called.path };
            let count = match counts.get_mut(name) {
                Some(count) => count,
                None => counts.entry(name.to_owned()).or_default(),
            };
            count.count = count.count.saturating_add(called.calls.count);
            count.failed = count.failed.saturating_add(called.calls.failed);
            count.time = count.time.saturating_add(called.calls.time);
        }
    }

    /// The counts by name.
    pub(crate) fn counts(&self) -> Vec<(String, CallCount)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_names_of_called_steps() {
        let metrics = CallMetrics::default();
        for run in 0..100 {
            let mut calls = CallStatistics::default();
            calls.record(&format!("step {run}"), Duration::from_millis(2), run == 7);
            calls.record("resize", Duration::from_millis(1), false);
            metrics.record(&calls);
        }
        let counts = metrics.counts();
        assert_eq!(counts.len(), MAX_NAMES + 1);
        let count = |name: &str| counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        let resize = CallCount { count: 100, failed: 0, time: Duration::from_millis(100) };
        assert_eq!(count("resize"), Some(resize));
        assert_eq!(count("step 7").map(|count| count.failed), Some(1));
        assert_eq!(count(OTHERS).map(|count| count.count), Some(100 - 63));
    }
}
