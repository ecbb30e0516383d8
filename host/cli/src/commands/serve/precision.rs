//! Chooses the precision of models beside the server, where it is `auto` and was not measured on this machine yet.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::events::{EventLogger, decision_notes};
use crate::precision;
use gpux::internal::{PipelineInfo, PrecisionRequest};
use gpux::{GpuxError, LoadOptions, PrecisionReport};
use gpux_core::files::FileVersion;
use gpux_core::threads;
use gpux_serve::{PipelineSlot, Server};

/// How often it looks for pipelines that were loaded since.
const INTERVAL: Duration = Duration::from_secs(2);

/// Measures in child processes of low priority, one pipeline after another. `exact` answers until a choice is made,
/// then the pipeline is loaded again.
pub(super) struct PrecisionChooser {
    server: Arc<Server>,
    events: Arc<EventLogger>,
    /// the operator's, for the children
    load_options: LoadOptions,
}

impl PrecisionChooser {
    /// Starts the thread; it ends with the process.
    pub(super) fn start(
        server: Arc<Server>,
        events: Arc<EventLogger>,
        load_options: LoadOptions,
    ) -> std::io::Result<()> {
        let chooser = Self { server, events, load_options };
        threads::spawn("gpux-precision", move || chooser.run())
    }

    fn run(&self) {
        // A choice that cannot be made or kept is not tried again for the same models.
        let mut tried = HashSet::new();
        loop {
            for slot in self.server.repository().slots() {
                let models = slot.loaded().map(|loaded| undecided_models(loaded.info())).unwrap_or_default();
                if !models.is_empty() && tried.insert((slot.name().to_owned(), models)) {
                    self.choose(&slot);
                }
            }
            std::thread::sleep(INTERVAL);
        }
    }

    fn choose(&self, slot: &Arc<PipelineSlot>) {
        let name = slot.name();
        self.events.note(&format!("{name}: measuring for `precision: auto`; `exact` answers meanwhile"));
        match self.measure(slot) {
            // The files have changed since.
            Ok(None) => return,
            Ok(Some(report)) => precision::warning(&report).iter().for_each(|warning| {
                self.events.warning(&format!("{name}: {warning}"));
            }),
            Err(reason) => {
                self.events.warning(&format!("{name}: no precision was chosen, so `exact` answers: {reason}"));
                return;
            }
        }
        if !slot.loaded().is_some_and(|loaded| is_unchanged(loaded.info())) {
            self.events.note(&format!("{name}: its files have changed, so the precision applies once it is reloaded"));
            return;
        }
        match self.server.repository().reload(slot) {
            Some(Err(error)) => {
                self.events.warning(&format!("{name} could not be loaded again; the one before answers: {error}"));
            }
            Some(Ok(())) => {
                let loaded = slot.loaded();
                let notes = loaded.iter().flat_map(|loaded| decision_notes(loaded.info()));
                notes.for_each(|note| self.events.note(&format!("{name}: {note}")));
            }
            None => {}
        }
    }

    fn measure(&self, slot: &PipelineSlot) -> Result<Option<PrecisionReport>, GpuxError> {
        let request = |load_options: &LoadOptions| PrecisionRequest {
            pipeline: slot.source().0.clone().into(),
            samples: Vec::new(),
            load_options: load_options.clone(),
            background: true,
        };
        #[cfg(target_os = "linux")]
        if let Some(environment) = slot.loaded().and_then(|loaded| loaded.worker_environment()) {
            let environment = environment?;
            return request(&environment.options.load_options).choose_in(&environment.variables);
        }
        request(&self.load_options).choose()
    }
}

/// The digests of models whose precision is not chosen yet.
fn undecided_models(pipeline: &PipelineInfo) -> Vec<String> {
    let undecided = pipeline.models.iter().filter(|model| model.precision.is_undecided);
    undecided.map(|model| model.digest.clone()).collect()
}

/// Whether the pipeline's files are those that it was loaded from.
fn is_unchanged(pipeline: &PipelineInfo) -> bool {
    pipeline.files.iter().all(|(path, version)| FileVersion::of(path) == *version)
}
