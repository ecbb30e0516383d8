//! The calls that a step makes of other steps.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sanitize::sanitize_for_terminal;

/// The most names that are told apart; the calls of further ones are counted together.
const MAX_NAMES: usize = 64;

/// Bytes of a name that another process sent.
const MAX_NAME: usize = 200;

/// How deep calls that another process sent are read.
const MAX_DEPTH: usize = 4;

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

impl StepCalls {
    fn add(&mut self, count: u64, failed: u64, time: Duration) {
        self.count = self.count.saturating_add(count);
        self.failed = self.failed.saturating_add(failed);
        self.time = self.time.saturating_add(time);
    }
}

/// The calls under one name, among those of every depth.
#[derive(Clone, Debug)]
pub struct FlattenedCalls<'a> {
    /// 0 for a call of the step itself, one more for each step in between
    pub depth: usize,
    /// the names of the called steps on the way, joined by ` > `
    pub path: Cow<'a, str>,
    /// the calls
    pub calls: &'a StepCalls,
}

/// The calls of one step, by the names of the called steps in the order of their first calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStatistics(Vec<StepCalls>);

impl CallStatistics {
    /// Counts a call.
    pub fn record(&mut self, name: &str, time: Duration, has_failed: bool) {
        self.record_several(name, 1, has_failed.into(), time);
    }

    /// Counts calls that took so long together.
    pub fn record_several(&mut self, name: &str, count: u64, failed: u64, time: Duration) {
        self.named(name).add(count, failed, time);
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
            calls.add(more.count, more.failed, more.time);
            calls.calls.merge(&more.calls);
        }
    }

    /// Each called step.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &StepCalls> {
        self.0.iter()
    }

    /// Each called step, followed by those that it called: at most 64 in all.
    pub fn flattened(&self) -> Vec<FlattenedCalls<'_>> {
        let mut flattened = Vec::new();
        self.flatten(0, "", &mut flattened);
        flattened
    }

    fn flatten<'a>(&'a self, depth: usize, within: &str, flattened: &mut Vec<FlattenedCalls<'a>>) {
        for calls in &self.0 {
            if flattened.len() == MAX_NAMES {
                return;
            }
            let path = if within.is_empty() {
                Cow::Borrowed(calls.name.as_str())
            } else {
                Cow::Owned(format!("{within} > {}", calls.name))
            };
            flattened.push(FlattenedCalls { depth, path: path.clone(), calls });
            calls.calls.flatten(depth + 1, &path, flattened);
        }
    }

    /// The same within the bounds that recorded calls have, for those that another process sent: 64 names of at most
    /// 200 bytes at each depth, four deep.
    #[must_use]
    pub fn bounded(self) -> Self {
        self.bounded_to(MAX_DEPTH)
    }

    fn bounded_to(mut self, depth: usize) -> Self {
        if depth == 0 {
            return Self::default();
        }
        self.0.truncate(MAX_NAMES + 1);
        for calls in &mut self.0 {
            calls.name = sanitize_for_terminal(&calls.name);
            calls.name.truncate(calls.name.floor_char_boundary(MAX_NAME));
            calls.calls = std::mem::take(&mut calls.calls).bounded_to(depth - 1);
        }
        self
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
            calls.record(&format!("step {}", index % 200), Duration::from_millis(1), index % 2 == 0);
        }
        assert_eq!((calls.iter().len(), calls.iter().map(|call| call.count).sum::<u64>()), (MAX_NAMES + 1, 1000));
        let last = calls.iter().last().unwrap_or_else(|| unreachable!());
        assert_eq!((last.name.as_str(), last.count), (OTHERS, 1000 - 64 * 5));

        let mut outer = CallStatistics::default();
        outer.record("page.wasm", Duration::from_secs(1), false);
        outer.record_within("page.wasm", &calls);
        outer.merge(&outer.clone());
        let page = outer.iter().next().unwrap_or_else(|| unreachable!());
        assert_eq!((page.count, page.time), (2, Duration::from_secs(2)));
        assert_eq!(page.calls.iter().map(|call| call.failed).sum::<u64>(), 1000);
        let flattened = outer.flattened();
        assert_eq!((flattened.len(), flattened[1].depth, &*flattened[1].path), (64, 1, "page.wasm > step 0"));
        assert_eq!(outer.clone().bounded(), outer);
    }

    #[test]
    fn bounds_calls_of_another_process() {
        let mut calls = CallStatistics::default();
        for _ in 0..100 {
            let mut outer = CallStatistics::default();
            outer.record("a\u{1b}", Duration::MAX, true);
            outer.record_within("a\u{1b}", &calls);
            calls = outer;
        }
        calls.0.extend((0..1000).map(|_| StepCalls { name: "é".repeat(500), count: u64::MAX, ..StepCalls::default() }));
        let bounded = calls.bounded();
        assert_eq!(bounded.iter().len(), MAX_NAMES + 1);
        assert!(bounded.iter().all(|calls| calls.name.len() <= MAX_NAME && !calls.name.contains('\u{1b}')));
        assert_eq!(bounded.flattened().iter().filter(|calls| calls.path.starts_with("a ")).count(), MAX_DEPTH);
        // Sums of hostile numbers do not overflow.
        let mut twice = bounded.clone();
        twice.merge(&bounded);
        assert_eq!(twice.iter().next().map(|calls| calls.time), Some(Duration::MAX));
    }
}
