//! Replaces `step_spans` in builds without the feature `otlp`.

use std::convert::Infallible;

use super::metrics::StepTime;

/// Cannot be constructed.
#[derive(Clone, Debug)]
pub(crate) struct StepSpans(Infallible);

impl StepSpans {
    pub(crate) fn record(&self, _steps: Vec<StepTime>) {
        match self.0 {}
    }
}
