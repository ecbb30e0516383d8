//! `--replay`: runs the component steps of a pipeline on recorded cases.

use std::path::Path;
use std::time::{Duration, Instant};

use super::case::{Case, RecordingInfo, input_values};
use super::case_runner::{CaseOutcome, CaseReport, differences};
use super::recorder::{RecordError, component_step, component_step_by_name};
use super::target::{ConfiguredStep, PreparedTarget};
use gpux::GpuxError;
use gpux::Pipeline;
use gpux_config::Diagnostic;

/// Runs recorded cases against the steps of a pipeline, with the pipeline's current
/// options.
pub struct Replayer<'a> {
    pipeline: &'a Pipeline,
    only: Option<usize>,
    timeout: Option<Duration>,
}

impl<'a> Replayer<'a> {
    /// With `only`, just the cases of the step of that name or number.
    pub fn new(pipeline: &'a Pipeline, only: Option<&str>, timeout: Option<Duration>) -> Result<Self, RecordError> {
        let only = only.map(|name| component_step(pipeline, name)).transpose()?;
        Ok(Self { pipeline, only, timeout })
    }

    /// Runs the case of a folder; `None` if it is one of another step than was asked for.
    pub fn run(&self, folder: &Path) -> Option<CaseReport> {
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        let mut report =
            CaseReport { name, description: None, outcome: CaseOutcome::Passed, time: Duration::ZERO, log: Vec::new() };
        report.outcome = match self.outcome(folder, &mut report) {
            Ok(outcome) => outcome?,
            Err(error) => CaseOutcome::Invalid(error),
        };
        Some(report)
    }

    fn outcome(&self, folder: &Path, report: &mut CaseReport) -> Result<Option<CaseOutcome>, GpuxError> {
        let case = Case::load(folder)?;
        let Some(recorded) = &case.recorded else {
            let fault = Diagnostic::new("not-recorded", 0..0, "this case was not recorded from a pipeline");
            return Err(case
                .configuration_error(vec![fault.hint("it lacks `recorded:`; run it with `gpux test`")])
                .into());
        };
        let index = self.step_index(&case, recorded)?;
        if self.only.is_some_and(|only| only != index) {
            return Ok(None);
        }
        let step = self.pipeline.plan().steps()[index].step.clone();
        let ready = PreparedTarget::Step(ConfiguredStep { step, timeout: self.timeout });
        let inputs = input_values(&case, &ready.inputs())?;
        let start = Instant::now();
        let ran = ready.run(&case, inputs)?;
        report.time = start.elapsed();
        report.log.clone_from(&ran.log);
        let lines = differences(&case, &ready, &ran)?;
        Ok(Some(if lines.is_empty() { CaseOutcome::Passed } else { CaseOutcome::Failed(lines) }))
    }

    /// The index of the step of a case now: its old index, or that of the only step of its name.
    fn step_index(&self, case: &Case, recorded: &RecordingInfo) -> Result<usize, GpuxError> {
        let steps = self.pipeline.plan().steps();
        let there = recorded
            .step
            .checked_sub(1)
            .filter(|index| steps.get(*index).is_some_and(|step| step.name == recorded.name));
        let found = there.map_or_else(|| component_step_by_name(self.pipeline, &recorded.name), Ok);
        found.map_err(|error| {
            let fault = Diagnostic::new("no-step", case.span("recorded"), error.to_string());
            case.configuration_error(vec![
                fault.hint("it was recorded from another pipeline, or the step has another name now"),
            ])
            .into()
        })
    }
}
