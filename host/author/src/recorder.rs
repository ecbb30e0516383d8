//! `--record`: writes the inputs and outputs of component steps as cases.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value as Json;

use super::case::{CASE_FILE, Draft, RecordingInfo, error_text, flow};
use super::target::RunFailure;
use gpux::Pipeline;
use gpux_config::{Action, WasmSpec};
use gpux_core::{Context, Observer, PlannedStep, StepFailure, Value};

/// Numbers from here on are not case numbers.
const MAX_NUMBER: usize = 1_000_000_000;

/// The most folders that a number is looked for in.
const MAX_ENTRIES: usize = 1_000_000;

/// Nothing can be recorded or replayed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RecordError {
    /// the folder cannot be written to
    #[error("cannot record into `{}`: {reason}", path.display())]
    Io {
        /// the folder
        path: PathBuf,
        /// the system's reason
        reason: String,
    },
    /// the pipeline has no component
    #[error("this pipeline has no component step, so there is nothing to record or to replay")]
    NoComponents,
    /// no step of this name or number is a component
    #[error("no component step has the name or the number `{name}`; there is {known}")]
    NoStep {
        /// what was asked for
        name: String,
        /// the steps there are
        known: String,
    },
    /// several component steps have this name
    #[error("several component steps are called `{name}`: say which by its number, {numbers}")]
    Ambiguous {
        /// what was asked for
        name: String,
        /// the numbers of these steps
        numbers: String,
    },
}

/// Watches runs of a pipeline and writes a case for each time that a component step runs: its
/// inputs, options, and outputs or error. Nothing is overwritten, and no link is followed below
/// the folder.
pub struct Recorder<'a> {
    pipeline: &'a Pipeline,
    folder: PathBuf,
    /// only this step, by place
    only: Option<usize>,
    /// number of the last case
    number: usize,
    left: usize,
    inputs: Vec<Option<Value>>,
    /// cases written
    pub recorded: usize,
    /// whether there was more than there may be
    pub full: bool,
    /// why it stopped early
    pub fault: Option<RecordError>,
}

/// The index of the `asked` component step: by its number, from 1, or by its unique name.
/// A number means the place, also where another step has it for a name.
pub(super) fn component_step(pipeline: &Pipeline, asked: &str) -> Result<usize, RecordError> {
    find_step(&component_steps(pipeline), asked)
}

/// The place of the one component step of this name.
pub(super) fn component_step_by_name(pipeline: &Pipeline, name: &str) -> Result<usize, RecordError> {
    find_by_name(&component_steps(pipeline), name)
}

/// The place and the name of each.
fn component_steps(pipeline: &Pipeline) -> Vec<(usize, &str)> {
    let planned = pipeline.plan().steps().iter().map(|step| step.name.as_str()).enumerate();
    planned.filter(|(index, _)| component(pipeline, *index).is_some()).collect()
}

fn find_step(steps: &[(usize, &str)], asked: &str) -> Result<usize, RecordError> {
    let number = asked.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    match steps.iter().find(|(index, _)| number == Some(*index)) {
        Some((index, _)) => Ok(*index),
        None => find_by_name(steps, asked),
    }
}

fn find_by_name(steps: &[(usize, &str)], name: &str) -> Result<usize, RecordError> {
    if steps.is_empty() {
        return Err(RecordError::NoComponents);
    }
    match steps.iter().filter(|(_, known)| *known == name).collect::<Vec<_>>()[..] {
        [(index, _)] => Ok(*index),
        [] => {
            let known: Vec<_> = steps.iter().map(|(index, name)| format!("`{name}` ({})", index + 1)).collect();
            Err(RecordError::NoStep { name: name.to_owned(), known: known.join(", ") })
        }
        ref several => {
            let numbers: Vec<_> = several.iter().map(|(index, _)| (index + 1).to_string()).collect();
            Err(RecordError::Ambiguous { name: name.to_owned(), numbers: numbers.join(" or ") })
        }
    }
}

/// The spec of the component step at this index.
fn component(pipeline: &Pipeline, index: usize) -> Option<&WasmSpec> {
    match &pipeline.spec().pipeline.get(index)?.action {
        Action::Wasm(wasm) => Some(wasm),
        _ => None,
    }
}

impl<'a> Recorder<'a> {
    /// Records into `folder`, which is made if it is not there, at most `limit` cases; with `only`,
    /// of the step of that name.
    pub fn new(pipeline: &'a Pipeline, folder: &Path, limit: usize, only: Option<&str>) -> Result<Self, RecordError> {
        let only = only.map(|name| component_step(pipeline, name)).transpose()?;
        if !(0..pipeline.plan().steps().len()).any(|index| component(pipeline, index).is_some()) {
            return Err(RecordError::NoComponents);
        }
        let io = |error: std::io::Error| RecordError::Io { path: folder.to_owned(), reason: error.to_string() };
        if !folder.is_dir() {
            make_private(folder, true).map_err(io)?;
        }
        Ok(Self {
            pipeline,
            only,
            number: highest_number(folder).map_err(io)?,
            folder: folder.to_owned(),
            left: limit,
            inputs: Vec::new(),
            recorded: 0,
            full: false,
            fault: None,
        })
    }

    /// The component at the place of `step`, if that is to be recorded.
    fn watched(&self, step: &PlannedStep) -> Option<(usize, &'a WasmSpec)> {
        let index = self.pipeline.plan().steps().iter().position(|known| std::ptr::eq(known, step))?;
        let wanted = self.only.is_none_or(|only| only == index) && self.fault.is_none();
        Some((index, component(self.pipeline, index).filter(|_| wanted)?))
    }

    fn record(
        &mut self,
        step: &PlannedStep,
        result: Result<&[Value], &StepFailure>,
        time: Duration,
        context: &Context,
    ) {
        let Some((index, wasm)) = self.watched(step) else { return };
        let inputs = std::mem::take(&mut self.inputs);
        if self.left == 0 {
            self.full = true;
            return;
        }
        let draft = draft(step, index, wasm, &inputs, result, time, context);
        match self.write(index, &step.name, &draft) {
            Ok(()) => {
                self.left -= 1;
                self.recorded += 1;
            }
            Err(error) => {
                self.fault = Some(RecordError::Io { path: self.folder.clone(), reason: error.to_string() });
            }
        }
    }

    /// A new folder for the case, its files, and `case.yml` last: a folder without it is no case.
    fn write(&mut self, index: usize, name: &str, draft: &Draft) -> std::io::Result<()> {
        let name = name.strip_suffix(".wasm").unwrap_or(name);
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
        let folder = loop {
            self.number += 1;
            let folder = self.folder.join(format!("{:06}-{}-{name}", self.number, index + 1));
            match make_private(&folder, false) {
                Ok(()) => break folder,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        let case = (CASE_FILE.to_owned(), draft.text.clone().into_bytes());
        let written = draft.files.iter().chain([&case]).try_for_each(|(name, content)| {
            OpenOptions::new().write(true).create_new(true).open(folder.join(name))?.write_all(content)
        });
        if written.is_err() {
            // A partial case is useless; the first error is the one to report.
            let _ = std::fs::remove_dir_all(&folder);
        }
        written
    }
}

/// Makes a folder that only its owner may enter: requests may be private.
fn make_private(folder: &Path, parents: bool) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(parents);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// The highest number of a case in the folder.
fn highest_number(folder: &Path) -> std::io::Result<usize> {
    let number = |name: &str| name.split('-').next()?.parse().ok().filter(|number| *number < MAX_NUMBER);
    let entries = std::fs::read_dir(folder)?.take(MAX_ENTRIES).flatten();
    Ok(entries.filter_map(|entry| number(&entry.file_name().to_string_lossy())).max().unwrap_or(0))
}

fn draft(
    step: &PlannedStep,
    index: usize,
    wasm: &WasmSpec,
    inputs: &[Option<Value>],
    result: Result<&[Value], &StepFailure>,
    time: Duration,
    context: &Context,
) -> Draft {
    let digest = step.step.details().get("digest").and_then(Json::as_str).map(str::to_owned);
    let failure = match result {
        Err(failure @ (StepFailure::Timeout | StepFailure::Cancelled)) => Some(failure.to_string()),
        _ => None,
    };

    let recorded = RecordingInfo {
        step: index + 1,
        name: step.name.clone(),
        component: digest,
        // Microseconds are enough, and easier to read.
        time_ms: (time.as_secs_f64() * 1e6).round() / 1e3,
        memory_peak: context.memory_peak,
        failure,
        log: context.log.clone(),
    };

    let mut draft = Draft::default();
    draft.text = format!("# Recorded by `gpux run --record`.\nrecorded: {}\n", flow(&recorded));

    let said = [
        ("options", wasm.options.to_json()),
        ("limits", serde_json::to_value(&wasm.limits).unwrap_or_default()),
        ("grant", serde_json::to_value(&wasm.grant).unwrap_or_default()),
    ];
    for (key, json) in said {
        if json.as_object().is_some_and(|fields| !fields.is_empty()) {
            draft.text += &format!("{key}: {}\n", flow(&json));
        }
    }

    let signature = step.step.signature();
    let given = signature.inputs.iter().zip(inputs);
    let given = given.filter_map(|(port, value)| Some((port.name.as_str(), value.as_ref()?, &port.kind)));
    draft.section("inputs", "input", given, &|_| None);

    match result {
        Ok(outputs) => {
            let gave = signature.outputs.iter().zip(outputs);
            let gave = gave.map(|(port, value)| (port.name.as_str(), value, &port.kind));
            draft.section("outputs", "output", gave, &|_| None);
        }
        Err(StepFailure::Timeout | StepFailure::Cancelled) => {}
        Err(failure) => {
            let RunFailure { kind, message } = RunFailure::from(failure);
            draft.text += &error_text(kind, &message);
        }
    }
    draft
}

impl Observer for Recorder<'_> {
    fn before(&mut self, step: &PlannedStep, inputs: &[Option<Value>]) {
        // Held only for a recorded step: a value without other owners is changed in place.
        if self.left > 0 && self.watched(step).is_some() {
            self.inputs = inputs.to_vec();
        }
    }

    fn failed(&mut self, step: &PlannedStep, failure: &StepFailure, time: Duration, context: &Context) {
        self.record(step, Err(failure), time, context);
    }

    fn after(&mut self, step: &PlannedStep, time: Duration, outputs: &[Value], context: &Context) {
        self.record(step, Ok(outputs), time, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_step_by_number_or_unique_name() {
        let steps = [(0, "a.wasm"), (1, "b.wasm"), (3, "2"), (4, "b.wasm")];
        let message = |result: Result<usize, RecordError>| result.map_err(|error| error.to_string());
        let find = |asked: &str| message(find_step(&steps, asked));
        for (asked, index) in [("a.wasm", 0), ("1", 0), ("2", 1), ("4", 3), ("5", 4)] {
            assert_eq!(find(asked), Ok(index), "{asked}");
        }
        assert_eq!(
            find("b.wasm").unwrap_err(),
            "several component steps are called `b.wasm`: say which by its number, 2 or 5"
        );
        let known = "no component step has the name or the number `3`; there is `a.wasm` (1), `b.wasm` (2), `2` (4), `b.wasm` (5)";
        assert_eq!(find("3").unwrap_err(), known);
        // A recorded step has a name.
        assert_eq!(message(find_by_name(&steps, "2")), Ok(3));
        assert!(find_by_name(&[], "2").is_err());
    }

    #[test]
    fn numbers_cases_after_the_highest() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["000007-1-x", "000012-2-y", "notes", "18446744073709551615-1-x", "99999999999999999999999-1-x"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(highest_number(folder.path()).unwrap(), 12);
    }
}
