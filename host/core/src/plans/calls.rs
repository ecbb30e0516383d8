//! The calls that a step makes of other steps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most names that are told apart; the calls of further ones are counted together.
const MAX_NAMES: usize = 64;

/// The name of what is counted together.
const OTHERS: &str = "others";

/// The calls of one step under one name: a component's of a model or a built-in step, or the runs of a step for each
/// item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCalls {
    /// the called step
    pub name: String,
    /// how often it was called
    pub count: u64,
    /// how many of the calls failed
    pub failed: u64,
    /// time of all calls together
    pub time: Duration,
    /// the calls that the called step made
    pub calls: CallStatistics,
}

/// The calls of one step, by the names of the called steps in the order of their first calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStatistics(Vec<StepCalls>);

impl CallStatistics {
    /// Counts calls.
    pub fn record(&mut self, name: &str, count: u64, time: Duration, failed: u64) {
        let calls = self.named(name);
        calls.count += count;
        calls.failed += failed;
        calls.time += time;
    }

    /// Adds the calls that the step `name` made.
    pub fn record_within(&mut self, name: &str, calls: &Self) {
        if !calls.0.is_empty() {
            self.named(name).calls.merge(calls);
        }
    }

    /// Adds the calls of another run of the same step.
    pub fn merge(&mut self, other: &Self) {
        for more in &other.0 {
            let calls = self.named(&more.name);
            calls.count += more.count;
            calls.failed += more.failed;
            calls.time += more.time;
            calls.calls.merge(&more.calls);
        }
    }

    /// Each called step.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &StepCalls> {
        self.0.iter()
    }

    /// Whether there was no call.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn named(&mut self, name: &str) -> &mut StepCalls {
        let known = self.0.iter().position(|calls| calls.name == name);
        let index = known.unwrap_or_else(|| {
            if self.0.len() <= MAX_NAMES {
                let name = if self.0.len() < MAX_NAMES { name } else { OTHERS };
                self.0.push(StepCalls { name: name.to_owned(), ..StepCalls::default() });
            }
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_calls_by_name_and_bounds_the_names() {
        let mut calls = CallStatistics::default();
        for index in 0..1000 {
            calls.record(&format!("step {}", index % 200), 1, Duration::from_millis(1), u64::from(index % 2 == 0));
        }
        assert_eq!((calls.iter().len(), calls.iter().map(|call| call.count).sum::<u64>()), (MAX_NAMES + 1, 1000));
        let last = calls.iter().last().unwrap_or_else(|| unreachable!());
        assert_eq!((last.name.as_str(), last.count), (OTHERS, 1000 - 64 * 5));

        let mut outer = CallStatistics::default();
        outer.record("page.wasm", 1, Duration::from_secs(1), 0);
        outer.record_within("page.wasm", &calls);
        outer.merge(&outer.clone());
        let page = outer.iter().next().unwrap_or_else(|| unreachable!());
        assert_eq!((page.count, page.time), (2, Duration::from_secs(2)));
        assert_eq!(page.calls.iter().map(|call| call.failed).sum::<u64>(), 1000);
    }
}
