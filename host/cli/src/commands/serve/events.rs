//! Events of the server, printed or logged.

use std::borrow::Cow;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use crate::printer::{LogLevel, Printer};
use crate::progress::ProgressLine;
use crate::server_log::{Log, LogFormat};
use gpux::internal::{ModelSummary, PipelineInfo};
use gpux_core::sanitize::sanitize_for_terminal;
#[cfg(target_os = "linux")]
use gpux_serve::WorkerEvent;
use gpux_serve::{Event, ListenAddress, LoadedPipeline, Server};

/// Prints or logs events.
pub(super) struct EventLogger {
    pub(super) printer: Printer,
    /// destination of the lines: a slow reader of stderr must not block the server
    pub(super) log: Log,
    pub(super) format: LogFormat,
    /// `http` or `https`
    pub(super) scheme: &'static str,
    /// shown until the server is ready
    pub(super) progress: Mutex<Option<ProgressLine>>,
}

/// The pipeline of this name, unless a client has unloaded it since.
fn loaded_pipeline(server: &Server, name: &str) -> Option<Arc<LoadedPipeline>> {
    server.repository().slots().iter().find(|slot| slot.name() == name)?.loaded()
}

impl EventLogger {
    /// The URL of the server at this address; for an unspecified address, that of this machine.
    fn url(&self, address: &ListenAddress) -> String {
        match address {
            ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
                format!("{}://localhost:{}", self.scheme, address.port())
            }
            ListenAddress::Tcp(address) => format!("{}://{address}", self.scheme),
            ListenAddress::Unix(_) => address.to_string(),
        }
    }

    /// Prints or logs an event.
    pub(super) fn log(&self, server: &Server, event: &Event) {
        match event {
            Event::Isolated => self.isolated(server),
            Event::Listening(address) => {
                self.detail(&format!("listening on {}; loading", self.url(address)));
            }
            Event::Grpc(address) => self.note(&format!("gRPC on {address} as well")),
            Event::Ready(address) => {
                // Not waited for: a terminal that is paused must not keep the server from being ready.
                drop(self.erase_progress());
                self.note(&format!("ready on {}", self.url(address)));
            }
            Event::Loaded(name) => self.loaded(server, name),
            Event::NotLoaded { name, reason, pause } => {
                let seconds = pause.as_secs_f32().ceil();
                self.warning(&format!("{name} cannot be loaded; it is tried again in {seconds} s: {reason}"));
            }
            Event::Reloaded(name) => {
                let loaded = loaded_pipeline(server, name);
                let digest = loaded.and_then(|loaded| Some(format!(" ({})", loaded.info().digest.as_ref()?)));
                self.note(&format!("{name} was loaded again{}", digest.unwrap_or_default()));
            }
            Event::NotReloaded { name, reason } => {
                self.warning(&format!("{name} could not be loaded again; the one before answers: {reason}"));
            }
            #[cfg(target_os = "linux")]
            Event::Worker(event) => self.worker(event),
            Event::Warning(warning) => self.warning(warning),
            Event::Draining => self.note("ending: requests under way are finished"),
        }
    }

    /// Shows a line until the server is ready, or [`Self::erase_progress`] is called.
    pub(super) fn show_progress(&self, text: &'static str) {
        let line = ProgressLine::on_terminal(self.printer, text);
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    /// Erases the line about loading, in the background. The receiver, if there is a line, is disconnected once it is
    /// gone.
    pub(super) fn erase_progress(&self) -> Option<Receiver<()>> {
        let line = self.progress.lock().unwrap_or_else(PoisonError::into_inner).take();
        line.map(ProgressLine::erase_in_background)
    }

    fn loaded(&self, server: &Server, name: &str) {
        let Some(loaded) = loaded_pipeline(server, name) else { return };
        for warning in &loaded.info().warnings {
            self.warning(&format!("{name}: {warning}"));
        }
        let (version, engine) = (loaded.version(), &loaded.info().engine);
        let digest = loaded.info().digest.as_ref().map(|digest| format!(" ({digest})")).unwrap_or_default();
        self.note(&format!("{name} {version}{digest} on {engine}"));
        for note in decision_notes(loaded.info()) {
            self.note(&format!("{name}: {note}"));
        }
        if let Some(failure) = &loaded.warm_up_report().failure {
            self.warning(&format!(
                "{name} is not warm, so its first requests take longer: {failure}; requests in `serving.warmup` warm it up"
            ));
        }
    }

    #[cfg(target_os = "linux")]
    fn isolated(&self, server: &Server) {
        if let Some(worker) = &server.settings().worker {
            let memory = worker.memory.limits().each >> 20;
            self.note(&format!("each pipeline has a process of its own, with at most {memory} MiB of memory"));
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "as on Linux")]
    const fn isolated(&self, _: &Server) {}

    #[cfg(target_os = "linux")]
    fn worker(&self, event: &WorkerEvent) {
        match event {
            WorkerEvent::NamespacesMissing { reason } => {
                self.note(&format!("the processes of pipelines have {reason}"));
            }
            WorkerEvent::Ended { pipeline, reason } => {
                self.warning(&format!("{pipeline}: its process ended: {reason}"));
            }
            WorkerEvent::Restarted { pipeline, time } => {
                self.note(&format!("{pipeline} answers again after {} ms, in a new process", time.as_millis()));
            }
            WorkerEvent::NoTemplate { reason } => {
                self.warning(&format!(
                    "processes of pipelines are started one by one, which takes longer and more memory: {reason}"
                ));
            }
            WorkerEvent::NotRestarted { pipeline, reason, pause } => {
                let seconds = pause.as_secs_f32();
                self.warning(&format!("{pipeline} does not answer: {reason}; it is tried again in {seconds} s"));
            }
        }
    }

    /// A line; what it quotes (the reason of a pipeline's process) may have more.
    pub(super) fn note(&self, text: &str) {
        match self.format {
            LogFormat::Text if self.printer.json || self.printer.level < LogLevel::Info => {}
            LogFormat::Text => self.log.line(&indent_lines(&sanitize_for_terminal(text))),
            LogFormat::Json => tracing::info!(target: "gpux", "{text}"),
        }
    }

    fn detail(&self, text: &str) {
        match self.format {
            LogFormat::Text if self.printer.is_verbose() => self.note(text),
            LogFormat::Text => {}
            LogFormat::Json => tracing::debug!(target: "gpux", "{text}"),
        }
    }

    pub(super) fn warning(&self, text: &str) {
        match self.format {
            LogFormat::Text if self.printer.level < LogLevel::Warn => {}
            LogFormat::Text => self.log.line(&indent_lines(&self.printer.warning_line(text))),
            LogFormat::Json => tracing::warn!(target: "gpux", "{text}"),
        }
    }
}

/// The text with its further lines indented: what a pipeline's process says must not look like a line of the log.
fn indent_lines(text: &str) -> Cow<'_, str> {
    if text.contains('\n') { text.replace('\n', "\n    ").into() } else { text.into() }
}

/// The log's lines about what `auto` chose for each model.
pub(super) fn decision_notes(pipeline: &PipelineInfo) -> impl Iterator<Item = String> {
    pipeline.models.iter().filter_map(|ModelSummary { name, provider, precision, .. }| {
        let decision = precision.decision.as_ref()?;
        let runs_on =
            if decision.provider == *provider { String::new() } else { format!("; it runs on {provider} now") };
        Some(format!("precision of {name}: {decision}{runs_on}"))
    })
}
