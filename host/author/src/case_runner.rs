//! Runs golden cases and compares or blesses their results.

use std::path::Path;
use std::time::{Duration, Instant};

use super::bless;
use super::case::{Case, ErrorKind, Expectation, ExpectedError, expected_values, input_values};
use super::target::{Component, PreparedTarget, RunFailure, RunOutcome, Target};
use super::value_difference::difference;
use gpux::{ErrorCategory, GpuxError};
use gpux::{LoadOptions, Pipeline};
use gpux_config::LoadError;
use gpux_core::Value;

/// Runs cases against a component or a pipeline.
pub struct CaseRunner<'a> {
    target: Target,
    load_options: &'a LoadOptions,
    /// told what goes on
    watch_phase: Box<dyn Fn(&str) + 'a>,
}

/// The report of a case.
#[derive(Debug)]
pub struct CaseReport {
    /// the name of its folder
    pub name: String,
    /// its description
    pub description: Option<String>,
    /// how it ended
    pub outcome: CaseOutcome,
    /// time of the run itself
    pub time: Duration,
    /// log lines
    pub log: Vec<String>,
}

/// The outcome of a case.
#[derive(Debug)]
pub enum CaseOutcome {
    /// as expected
    Passed,
    /// not as expected: a line for each difference
    Failed(Vec<String>),
    /// the case itself, or its configuration, is wrong
    Invalid(GpuxError),
    /// the results are its new expectation: a line for each difference, then the written lines
    Blessed(Vec<String>),
}

impl<'a> CaseRunner<'a> {
    /// Cases of the component at `path`.
    pub fn for_component(path: &Path, load_options: &'a LoadOptions) -> Self {
        Self { target: Target::Component(Component::new(path)), load_options, watch_phase: Box::new(|_| {}) }
    }

    /// Cases of a pipeline.
    pub fn for_pipeline(pipeline: Pipeline, load_options: &'a LoadOptions) -> Self {
        Self { target: Target::Pipeline(Box::new(pipeline)), load_options, watch_phase: Box::new(|_| {}) }
    }

    /// Calls `watch` with a few words for each thing that may take long.
    #[must_use]
    pub fn on_phase(self, watch: impl Fn(&str) + 'a) -> Self {
        Self { watch_phase: Box::new(watch), ..self }
    }

    /// Runs the case of a folder; with `bless`, writes the results as its expectation. An error is
    /// one of the machine: no case could be run.
    pub fn run(&mut self, folder: &Path, bless: bool) -> Result<CaseReport, GpuxError> {
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        let mut report =
            CaseReport { name, description: None, outcome: CaseOutcome::Passed, time: Duration::ZERO, log: Vec::new() };
        let outcome = self.outcome(folder, bless, &mut report);
        report.outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if error.category() == ErrorCategory::Environment => return Err(error),
            Err(error) => CaseOutcome::Invalid(error),
        };
        Ok(report)
    }

    fn outcome(&mut self, folder: &Path, bless: bool, report: &mut CaseReport) -> Result<CaseOutcome, GpuxError> {
        let case = Case::load(folder)?;
        report.description.clone_from(&case.description);
        if let Target::Component(component) = &self.target {
            (self.watch_phase)(&format!("compiling {}, once", component.file));
        }
        let ready = match self.target.prepare(&case, self.load_options) {
            Ok(ready) => ready,
            Err(error) => return not_configured(&case, error),
        };
        let inputs = input_values(&case, &ready.inputs())?;
        (self.watch_phase)(&format!("running the case {}", report.name));
        let start = Instant::now();
        let ran = ready.run(&case, inputs)?;
        report.time = start.elapsed();
        report.log.clone_from(&ran.log);
        let lines = match differences(&case, &ready, &ran) {
            Ok(lines) => lines,
            // Bless replaces the unreadable expectation.
            Err(error) if bless => vec![error.to_string()],
            Err(error) => return Err(error),
        };
        if lines.is_empty() {
            return Ok(CaseOutcome::Passed);
        }
        if !bless {
            return Ok(CaseOutcome::Failed(lines));
        }
        let is_error_expected = matches!(case.expectation, Expectation::Error(_));
        if let (Err(failure), false) = (&ran.result, is_error_expected) {
            let line = format!(
                "error ({kind}): {}; an error is blessed only in a case that expects one: where it is right, write \
                 `error: {{ kind: {kind} }}`",
                failure.message,
                kind = failure.kind
            );
            return Ok(CaseOutcome::Failed(vec![line]));
        }
        let written = bless::bless(&case, &ready.outputs(), &ran.result)?;
        let mut shown = if case.expectation == Expectation::Unknown { Vec::new() } else { lines };
        shown.extend(written.lines().map(str::to_owned));
        Ok(CaseOutcome::Blessed(shown))
    }
}

/// A case may expect that its configuration is rejected.
fn not_configured(case: &Case, error: GpuxError) -> Result<CaseOutcome, GpuxError> {
    let (Expectation::Error(expected), GpuxError::Configuration(LoadError::Invalid(wrong))) =
        (&case.expectation, &error)
    else {
        return Err(error);
    };
    let messages: Vec<_> = wrong.diagnostics().iter().map(|found| found.message.clone()).collect();
    let failure = RunFailure { kind: ErrorKind::Configuration, message: messages.join("; ") };
    match error_difference(expected, &failure) {
        None => Ok(CaseOutcome::Passed),
        Some(line) if expected.kind == ErrorKind::Configuration => Ok(CaseOutcome::Failed(vec![line])),
        Some(_) => Err(error),
    }
}

/// A line for everything that is not as the case expects.
pub(super) fn differences(case: &Case, ready: &PreparedTarget<'_>, ran: &RunOutcome) -> Result<Vec<String>, GpuxError> {
    let lines = match (&case.expectation, &ran.result) {
        (Expectation::Unknown, Ok(_)) => {
            vec!["it expects nothing yet; `--bless` makes what came out what it expects".to_owned()]
        }
        (Expectation::Unknown, Err(failure)) => {
            vec![format!("it expects nothing yet, and there is an error ({}): {}", failure.kind, failure.message)]
        }
        (Expectation::Error(expected), Err(failure)) => error_difference(expected, failure).into_iter().collect(),
        (Expectation::Error(expected), Ok(outputs)) => {
            let names: Vec<_> = outputs.iter().map(|(name, _)| format!("`{name}`")).collect();
            vec![format!("expected an error ({}), but it gave {}", expected.kind, names.join(", "))]
        }
        (Expectation::Outputs, Err(failure)) => vec![format!("error ({}): {}", failure.kind, failure.message)],
        (Expectation::Outputs, Ok(outputs)) => {
            let expected = expected_values(case, &ready.outputs())?;
            output_differences(case, &expected, outputs)
        }
    };
    Ok(lines)
}

fn error_difference(expected: &ExpectedError, failure: &RunFailure) -> Option<String> {
    let RunFailure { kind, message } = failure;
    if expected.kind != *kind {
        return Some(format!("expected an error of kind {}, but it is {kind}: {message}", expected.kind));
    }
    let part = expected.contains.as_ref().filter(|part| !message.contains(part.as_str()))?;
    Some(format!("expected an error that contains {part:?}, but it is: {message}"))
}

/// A line for each output that differs from the expectation of the case.
fn output_differences(case: &Case, expected: &[super::case::CaseValue], outputs: &[(String, Value)]) -> Vec<String> {
    let mut lines = Vec::new();
    for one in expected {
        let line = match outputs.iter().find(|(name, _)| *name == one.name) {
            Some((_, given)) => difference(&one.value, given, case.tolerance.for_output(&one.name), one.metadata),
            None => Some("expected, but it did not come out".to_owned()),
        };
        lines.extend(line.map(|line| format!("`{}`: {line}", one.name)));
    }
    let more = outputs.iter().filter(|(name, _)| !expected.iter().any(|one| one.name == *name));
    lines.extend(more.map(|(name, value)| format!("`{name}`: not expected, but it gave {}", value.kind())));
    lines
}
