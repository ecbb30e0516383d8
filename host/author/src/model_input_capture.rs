//! Captures the inputs of a pipeline's models: samples for comparing a changed model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::case::{CASES_FOLDER, Case, Expectation, cases_in, input_values};
use gpux::{GpuxError, Pipeline};
use gpux_core::{Context, Observer, PlannedStep, Port, Request, RunError, RunOptions, Value, deadline_after};

/// The inputs of one run of a model, in the model's order.
pub type ModelSample = Vec<Option<Value>>;

/// Runs a pipeline and keeps the inputs of its model steps. Models that components call are not
/// captured.
pub struct ModelInputCapture<'a> {
    pipeline: &'a Pipeline,
    captures: Vec<(&'a str, ModelSample)>,
}

impl<'a> ModelInputCapture<'a> {
    /// Of the models of `pipeline`.
    pub fn new(pipeline: &'a Pipeline) -> Self {
        Self { pipeline, captures: Vec::new() }
    }

    /// Runs one request.
    pub fn run(&mut self, request: Request) -> Result<(), RunError> {
        let pipeline = self.pipeline;
        let deadline = deadline_after(pipeline.timeout());
        pipeline.plan().run(request, RunOptions { deadline, observer: Some(self), ..RunOptions::default() }).map(drop)
    }

    /// The inputs of the model of this name, in the order of the runs.
    pub fn samples_of(&self, model: &str) -> Vec<ModelSample> {
        self.captures.iter().filter(|(name, _)| *name == model).map(|(_, sample)| sample.clone()).collect()
    }
}

impl Observer for ModelInputCapture<'_> {
    fn before(&mut self, step: &PlannedStep, inputs: &[Option<Value>]) {
        if let Some((model, _)) = self.pipeline.model_of_step(step) {
            self.captures.push((model, inputs.to_vec()));
        }
    }

    fn after(&mut self, _: &PlannedStep, _: Duration, _: &[Value], _: &Context) {}
}

/// The folders of a pipeline's golden cases. A model or a component alone has none: files beside it belong to others.
fn cases_of(pipeline: &Pipeline) -> Vec<PathBuf> {
    if pipeline.source().is_alone() {
        return Vec::new();
    }
    cases_in(&pipeline.path().with_file_name(CASES_FOLDER)).unwrap_or_default()
}

/// The requests of a pipeline's golden cases, with their names; without those that expect an error.
pub fn case_requests(pipeline: &Pipeline) -> Result<Vec<(String, Request)>, GpuxError> {
    cases_of(pipeline).iter().filter_map(|case| case_request(pipeline, case).transpose()).collect()
}

/// The first of [`case_requests`] that can be read.
pub fn first_case_request(pipeline: &Pipeline) -> Option<Request> {
    let request = |case: &PathBuf| case_request(pipeline, case).ok().flatten();
    cases_of(pipeline).iter().find_map(request).map(|(_, request)| request)
}

/// The request of one case, with its name; `None` if it expects an error.
pub(super) fn case_request(pipeline: &Pipeline, path: &Path) -> Result<Option<(String, Request)>, GpuxError> {
    let case = Case::load(path)?;
    if matches!(case.expectation, Expectation::Error(_)) {
        return Ok(None);
    }
    case.require_pipeline_case()?;
    let ports: Vec<Port> = pipeline.plan().inputs().iter().map(|input| input.port.clone()).collect();
    let values = input_values(&case, &ports)?;
    Ok(Some((case.name, values)))
}
