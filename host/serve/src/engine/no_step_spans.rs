//! In the place of `step_spans`, where gpux is built without the feature `otlp`.

use std::convert::Infallible;

use super::metrics::StepTime;

/// There are none.
#[derive(Clone, Debug)]
pub(crate) struct StepSpans(Infallible);

impl StepSpans {
    pub(crate) fn tell(&self, _steps: Vec<StepTime>) {
        match self.0 {}
    }
}
