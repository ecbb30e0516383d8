//! Counts a step's failures by reason, for metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::step::StepFailure;

/// Counts of one step's failures since the pipeline was made. A success costs nothing here.
#[derive(Debug, Default)]
pub struct FailureCounts(Mutex<BTreeMap<String, u64>>);

impl FailureCounts {
    /// Counts a failure.
    pub fn count(&self, failure: &StepFailure) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(reason(failure)).or_default() += 1;
    }

    /// How often each reason ended a request here: `invalid_input`, `failed`, `unsupported`, `timeout`,
    /// `cancelled`, and `limit_` with the limit's name (`limit_time`, `limit_memory` …).
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn reason(failure: &StepFailure) -> String {
    match failure {
        StepFailure::InvalidInput(_) => "invalid_input".to_owned(),
        StepFailure::Failed(_) => "failed".to_owned(),
        StepFailure::Unsupported(_) => "unsupported".to_owned(),
        StepFailure::Limit(limit) => format!("limit_{}", limit.limit),
        StepFailure::Timeout => "timeout".to_owned(),
        StepFailure::Cancelled => "cancelled".to_owned(),
    }
}
