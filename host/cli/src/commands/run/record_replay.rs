//! `gpux run --record` and `--replay`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::commands::test::Summary;
use crate::exit::Exit;
use crate::printer::{Printer, pluralize};
use gpux::Pipeline;
use gpux_author::{RecordError, Recorder, Replayer};

#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub(super) struct RecordArguments {
    /// Keep what crosses each component step, as cases for `gpux test`, in this folder
    #[arg(long, value_name = "DIR", group = "recording")]
    record: Option<PathBuf>,

    /// How many cases to keep at most
    #[arg(long, value_name = "N", default_value_t = 100, requires = "record")]
    record_limit: usize,

    /// Run the component steps on what was recorded, instead of on input, and compare
    #[arg(long, value_name = "DIR", group = "recording", conflicts_with_all = ["input", "file", "output", "format", "trace", "benchmark"])]
    replay: Option<PathBuf>,

    /// Record or replay only this component step: its name, or its number from 1
    #[arg(long, value_name = "STEP", requires = "recording")]
    step: Option<String>,
}

impl RecordArguments {
    /// The recorder of `--record`.
    pub(super) fn recorder<'a>(&self, pipeline: &'a Pipeline) -> Result<Option<Recorder<'a>>, RecordError> {
        let recorder = |folder| Recorder::new(pipeline, folder, self.record_limit, self.step.as_deref());
        self.record.as_deref().map(recorder).transpose()
    }

    /// Prints a summary of the record; an incomplete record is a failure.
    pub(super) fn report(&self, recorder: &Recorder<'_>, exit: Exit, printer: Printer) -> Exit {
        let folder = self.record.as_deref().unwrap_or(Path::new("")).display();
        let cases = pluralize(recorder.recorded, "case");
        printer.note(&format!("recorded {cases} in {folder}"));
        if recorder.full {
            let limit = self.record_limit;
            printer.warning(&format!("there was more to record than {limit} cases; `--record-limit` raises that"));
        }
        match &recorder.fault {
            Some(error) => printer.fail("OutputError", &error.to_string(), Exit::Failed),
            None => exit,
        }
    }

    /// Replays the record, with `--replay`.
    pub(super) fn replay(&self, pipeline: &Pipeline, timeout: Option<Duration>, printer: Printer) -> Option<Exit> {
        let folder = self.replay.as_deref()?;
        let replay = match Replayer::new(pipeline, self.step.as_deref(), timeout) {
            Ok(replay) => replay,
            Err(error) => return Some(printer.usage(&error)),
        };
        let Ok(cases) = gpux_author::cases_in(folder) else {
            let message = format!("nothing is recorded in `{}`; `gpux run --record` does that", folder.display());
            return Some(printer.fail("UsageError", &message, Exit::Usage));
        };
        let mut summary = Summary::default();
        for report in cases.iter().filter_map(|case| replay.run(case)) {
            summary.add(&report, printer);
        }
        Some(summary.finish(printer))
    }
}
