//! Golden cases, run and compared, or blessed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::bless;
use super::case::{Case, ErrorKind, Expectation, ExpectedError, expected_values, input_values};
use super::compare::difference;
use super::subject::{Component, Ran, Ready, Stopped, Subject};
use gpux::{Fault, GpuxError};
use gpux::{Operator, Pipeline};
use gpux_config::LoadError;
use gpux_core::Value;

/// The folder of the cases, in the folder of a step or a pipeline.
pub const CASES_FOLDER: &str = "tests";

/// Runs cases against a component or a pipeline.
pub struct Tester<'a> {
    subject: Subject,
    operator: &'a Operator,
}

/// How a case ended.
#[derive(Debug)]
pub struct CaseReport {
    /// the name of its folder
    pub name: String,
    /// what it shows, for people
    pub description: Option<String>,
    /// how it ended
    pub outcome: Outcome,
    /// time of the run itself
    pub time: Duration,
    /// what was logged
    pub log: Vec<String>,
}

/// How a case ended.
#[derive(Debug)]
pub enum Outcome {
    /// as expected
    Passed,
    /// otherwise: a line for each difference
    Differs(Vec<String>),
    /// the case itself, or what it configures, is wrong
    Wrong(GpuxError),
    /// what came out is now what it expects: a line for each difference, then the lines that were written
    Blessed(Vec<String>),
}

/// There are no cases.
#[derive(Debug, thiserror::Error)]
#[error("there are no cases in `{}`; make a folder there with a `case.yml` that says `inputs:`, and let `gpux test --bless` write what it expects", .0.display())]
pub struct NoCases(PathBuf);

/// The folders of the cases in `folder`, by name; `folder` alone if it is a case itself.
pub fn cases_in(folder: &Path) -> Result<Vec<PathBuf>, NoCases> {
    if Case::is_in(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cases: Vec<_> = entries.map(|entry| entry.path()).filter(|path| Case::is_in(path)).collect();
    cases.sort();
    if cases.is_empty() { Err(NoCases(folder.to_owned())) } else { Ok(cases) }
}

impl<'a> Tester<'a> {
    /// Cases of the component at `path`.
    pub fn of_component(path: &Path, operator: &'a Operator) -> Self {
        Self { subject: Subject::Component(Component::new(path)), operator }
    }

    /// Cases of a pipeline.
    pub fn of_pipeline(pipeline: Pipeline, operator: &'a Operator) -> Self {
        Self { subject: Subject::Pipeline(Box::new(pipeline)), operator }
    }

    /// Runs the case of a folder; with `bless`, makes what comes out what it expects. An error is
    /// one of the machine: no case could be run.
    pub fn run(&mut self, folder: &Path, bless: bool) -> Result<CaseReport, GpuxError> {
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        let mut report =
            CaseReport { name, description: None, outcome: Outcome::Passed, time: Duration::ZERO, log: Vec::new() };
        let outcome = self.outcome(folder, bless, &mut report);
        report.outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if error.fault() == Fault::Environment => return Err(error),
            Err(error) => Outcome::Wrong(error),
        };
        Ok(report)
    }

    fn outcome(&mut self, folder: &Path, bless: bool, report: &mut CaseReport) -> Result<Outcome, GpuxError> {
        let case = Case::load(folder)?;
        report.description.clone_from(&case.description);
        let ready = match self.subject.ready(&case, self.operator) {
            Ok(ready) => ready,
            Err(error) => return not_configured(&case, error),
        };
        let inputs = input_values(&case, &ready.inputs())?;
        let start = Instant::now();
        let ran = ready.run(&case, inputs)?;
        report.time = start.elapsed();
        report.log.clone_from(&ran.log);
        let lines = match differences(&case, &ready, &ran) {
            Ok(lines) => lines,
            // What cannot be read is about to be replaced.
            Err(error) if bless => vec![error.to_string()],
            Err(error) => return Err(error),
        };
        if lines.is_empty() {
            return Ok(Outcome::Passed);
        }
        if !bless {
            return Ok(Outcome::Differs(lines));
        }
        let is_error_expected = matches!(case.expectation, Expectation::Error(_));
        if let (Err(stopped), false) = (&ran.result, is_error_expected) {
            let line = format!(
                "error ({kind}): {}; an error is blessed only in a case that expects one: where it is right, write \
                 `error: {{ kind: {kind} }}`",
                stopped.message,
                kind = stopped.kind
            );
            return Ok(Outcome::Differs(vec![line]));
        }
        let written = bless::bless(&case, &ready.outputs(), &ran.result)?;
        let mut shown = if case.expectation == Expectation::Unknown { Vec::new() } else { lines };
        shown.extend(written.lines().map(str::to_owned));
        Ok(Outcome::Blessed(shown))
    }
}

/// A case may expect that what it configures is refused.
fn not_configured(case: &Case, error: GpuxError) -> Result<Outcome, GpuxError> {
    let (Expectation::Error(expected), GpuxError::Configuration(LoadError::Invalid(wrong))) =
        (&case.expectation, &error)
    else {
        return Err(error);
    };
    let messages: Vec<_> = wrong.diagnostics().iter().map(|found| found.message.clone()).collect();
    let stopped = Stopped { kind: ErrorKind::Configuration, message: messages.join("; ") };
    match error_difference(expected, &stopped) {
        None => Ok(Outcome::Passed),
        Some(line) if expected.kind == ErrorKind::Configuration => Ok(Outcome::Differs(vec![line])),
        Some(_) => Err(error),
    }
}

/// A line for everything that is not as the case expects.
pub(super) fn differences(case: &Case, ready: &Ready<'_>, ran: &Ran) -> Result<Vec<String>, GpuxError> {
    let lines = match (&case.expectation, &ran.result) {
        (Expectation::Unknown, Ok(_)) => {
            vec!["it expects nothing yet; `--bless` makes what came out what it expects".to_owned()]
        }
        (Expectation::Unknown, Err(stopped)) => {
            vec![format!("it expects nothing yet, and there is an error ({}): {}", stopped.kind, stopped.message)]
        }
        (Expectation::Error(expected), Err(stopped)) => error_difference(expected, stopped).into_iter().collect(),
        (Expectation::Error(expected), Ok(outputs)) => {
            let names: Vec<_> = outputs.iter().map(|(name, _)| format!("`{name}`")).collect();
            vec![format!("expected an error ({}), but it gave {}", expected.kind, names.join(", "))]
        }
        (Expectation::Outputs, Err(stopped)) => vec![format!("error ({}): {}", stopped.kind, stopped.message)],
        (Expectation::Outputs, Ok(outputs)) => {
            let expected = expected_values(case, &ready.outputs())?;
            output_differences(case, &expected, outputs)
        }
    };
    Ok(lines)
}

fn error_difference(expected: &ExpectedError, stopped: &Stopped) -> Option<String> {
    let Stopped { kind, message } = stopped;
    if expected.kind != *kind {
        return Some(format!("expected an error of kind {}, but it is {kind}: {message}", expected.kind));
    }
    let part = expected.contains.as_ref().filter(|part| !message.contains(part.as_str()))?;
    Some(format!("expected an error that contains {part:?}, but it is: {message}"))
}

/// What came out, against what a case or a record says should.
fn output_differences(case: &Case, expected: &[super::case::Expected], outputs: &[(String, Value)]) -> Vec<String> {
    let mut lines = Vec::new();
    for one in expected {
        let line = match outputs.iter().find(|(name, _)| *name == one.name) {
            Some((_, given)) => difference(&one.value, given, case.tolerance, one.metadata),
            None => Some("expected, but it did not come out".to_owned()),
        };
        lines.extend(line.map(|line| format!("`{}`: {line}", one.name)));
    }
    let more = outputs.iter().filter(|(name, _)| !expected.iter().any(|one| one.name == *name));
    lines.extend(more.map(|(name, value)| format!("`{name}`: not expected, but it gave {}", value.kind())));
    lines
}
