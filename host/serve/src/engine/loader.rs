//! Loads pipelines, each on a thread of its own, so that one that fails or hangs delays no other: at the start, on
//! SIGHUP, when files change, and again after a failure.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::error::ServeError;
use super::pipeline_slot::PipelineSlot;
use super::pipeline_source::PipelineSource;
use super::server::Server;
use super::watched_files;
use crate::settings::StartPolicy;
use gpux::GpuxError;
use gpux_core::threads;

/// A load that takes longer than this does not keep the next from beginning.
const SLOW: Duration = Duration::from_secs(10);

/// The fewest loads at once.
const LEAST: usize = 2;

/// The pause after the first failure; each further one is twice as long, and at least as long as the attempt took.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How often it looks whether the server has become ready.
const POLL: Duration = Duration::from_secs(1);

/// What happens to pipelines.
#[derive(Debug)]
pub(crate) enum LoadEvent {
    /// the server has become ready
    Ready,
    /// the pipeline of this name answers for the first time
    Loaded(String),
    /// the pipeline of this name was loaded again
    Reloaded(String),
    /// it could not be loaded again: the one before answers
    NotReloaded {
        name: String,
        /// with its location: for the log
        reason: String,
    },
    /// it cannot be loaded, and is tried again after the pause
    NotLoaded { name: String, reason: String, pause: Duration },
}

/// Receives what happens, on the loader's thread.
pub(crate) type OnLoadEvent = Box<dyn Fn(LoadEvent) + Send>;

enum Message {
    /// load every pipeline again that no client unloaded
    All,
    /// the files of the pipeline of this name have changed
    Changed(String),
    Ended(Attempt),
}

/// A load that has ended.
struct Attempt {
    /// the index of its task
    task: usize,
    /// under its new name, if it has got one
    slot: Arc<PipelineSlot>,
    /// whether there was a pipeline before it
    was_loaded: bool,
    /// `None`: a client unloaded it
    result: Option<Result<(), ServeError>>,
    took: Duration,
}

/// The loading of one source.
struct Task {
    slot: Arc<PipelineSlot>,
    /// since when it is being loaded
    running: Option<Instant>,
    is_due: bool,
    /// the last failure, while no pipeline answers
    failure: Option<Failure>,
}

/// Why there is no pipeline.
struct Failure {
    reason: String,
    /// from the last attempt to the next
    pause: Duration,
    /// when the next attempt begins; `None` while it runs
    retry_at: Option<Instant>,
}

/// Asks the loader to load everything again.
#[derive(Clone)]
pub(crate) struct Reloader(Sender<Message>);

impl Reloader {
    /// Loads every pipeline again that is in service, even if its files are unchanged.
    pub(crate) fn all(&self) {
        // The loader lives as long as the server.
        let _ = self.0.send(Message::All);
    }
}

/// The thread that decides which pipeline is loaded when.
pub(crate) struct Loader {
    server: Weak<Server>,
    on_event: OnLoadEvent,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    tasks: Vec<Task>,
    /// the most loads that begin at once
    limit: usize,
    start: StartPolicy,
    /// whether it has told that the server is ready
    is_ready: bool,
    on_failed_start: Option<Box<dyn FnOnce(GpuxError) + Send>>,
}

impl Loader {
    /// Starts to load these pipelines. Calls `on_failed_start` if the server is to end because of those that cannot be
    /// loaded.
    pub(crate) fn start(
        server: &Arc<Server>,
        sources: Vec<PipelineSource>,
        on_event: OnLoadEvent,
        on_failed_start: impl FnOnce(GpuxError) + Send + 'static,
    ) -> std::io::Result<Reloader> {
        let (sender, messages) = channel();
        let reloader = Reloader(sender.clone());
        if server.settings().reload {
            let (server, changed) = (Arc::downgrade(server), sender.clone());
            threads::spawn("gpux-watch", move || {
                watched_files::watch(&server, |name| changed.send(Message::Changed(name.to_owned())).is_ok());
            })?;
        }
        let mut loader = Self {
            server: Arc::downgrade(server),
            on_event,
            messages,
            sender,
            tasks: Vec::new(),
            limit: server.settings().workers.max(LEAST),
            start: server.settings().start,
            is_ready: false,
            on_failed_start: Some(Box::new(on_failed_start)),
        };
        threads::spawn("gpux-loader", move || {
            loader.register(&sources);
            while loader.step() {}
        })?;
        Ok(reloader)
    }

    /// Reads the names of the pipelines.
    fn register(&mut self, sources: &[PipelineSource]) {
        let Some(server) = self.server.upgrade() else { return };
        let task = |slot| Task { slot, running: None, is_due: true, failure: None };
        self.tasks = server.repository().register(sources).into_iter().map(task).collect();
    }

    fn fail_start(&mut self, error: GpuxError) {
        if let Some(fail) = self.on_failed_start.take() {
            fail(error);
        }
    }

    /// Begins what is due and waits for what is next; `false` once the server is gone.
    fn step(&mut self) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        self.begin_due(&server);
        if !self.is_ready && server.repository().is_ready() {
            self.is_ready = true;
            (self.on_event)(LoadEvent::Ready);
        }
        drop(server);
        match self.messages.recv_timeout(self.next_time().saturating_duration_since(Instant::now())) {
            Ok(Message::All) => self.tasks.iter_mut().for_each(|task| task.is_due = true),
            Ok(Message::Changed(name)) => {
                let changed = self.tasks.iter_mut().filter(|task| task.slot.name() == name);
                changed.for_each(|task| task.is_due = true);
            }
            Ok(Message::Ended(attempt)) => self.note(attempt),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    /// When something is due without a message.
    fn next_time(&self) -> Instant {
        let now = Instant::now();
        let slow = self.tasks.iter().filter_map(|task| Some(task.running? + SLOW)).filter(|time| *time > now);
        let retries = self.tasks.iter().filter_map(|task| task.failure.as_ref()?.retry_at);
        // Readiness comes with time, too.
        let latest = now + if self.is_ready { LONGEST_PAUSE } else { POLL };
        slow.chain(retries).fold(latest, Instant::min)
    }

    /// Begins the loads that are due, as many at once as there are workers; those that take long do not count.
    fn begin_due(&mut self, server: &Arc<Server>) {
        let now = Instant::now();
        for task in &mut self.tasks {
            if let Some(failure) = &mut task.failure
                && failure.retry_at.take_if(|at| *at <= now).is_some()
            {
                // A client may have loaded it since.
                task.is_due |= task.slot.loaded().is_none();
            }
        }
        let is_quick = |task: &Task| task.running.is_some_and(|since| now.duration_since(since) < SLOW);
        let mut running = self.tasks.iter().filter(|task| is_quick(task)).count();
        for (index, task) in self.tasks.iter_mut().enumerate() {
            if running >= self.limit {
                break;
            }
            if task.is_due && task.running.is_none() {
                task.is_due = false;
                task.running = Some(now);
                task.failure.iter_mut().for_each(|failure| failure.retry_at = None);
                running += 1;
                begin(index, task.slot.clone(), server.clone(), self.sender.clone());
            }
        }
    }

    fn note(&mut self, attempt: Attempt) {
        let Attempt { task: index, slot, was_loaded, result, took } = attempt;
        let Some(task) = self.tasks.get_mut(index) else { return };
        task.running = None;
        task.slot = slot;
        let name = task.slot.name().to_owned();
        let before = task.failure.take();
        let error = match result {
            Some(Err(error)) => error,
            Some(Ok(())) => {
                (self.on_event)(if was_loaded { LoadEvent::Reloaded(name) } else { LoadEvent::Loaded(name) });
                return;
            }
            None => return,
        };
        // With its location: this is for the log.
        let reason = task.slot.failure().unwrap_or_else(|| error.to_string());
        if was_loaded {
            (self.on_event)(LoadEvent::NotReloaded { name, reason });
            return;
        }
        let pause = before.as_ref().map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE)).max(took);
        let retry_at = Some(Instant::now() + pause);
        task.slot.set_retry_at(retry_at);
        task.failure = Some(Failure { reason: reason.clone(), pause, retry_at });
        if self.ends_server() {
            self.fail_start(error.into_cause());
        } else if before.is_none_or(|before| before.reason != reason) {
            (self.on_event)(LoadEvent::NotLoaded { name, reason, pause });
        }
    }

    /// Whether the server ends because of what could not be loaded.
    fn ends_server(&self) -> bool {
        let is_out = |task: &Task| task.failure.is_some() && task.slot.loaded().is_none();
        !self.is_ready
            && match self.start {
                StartPolicy::All => true,
                StartPolicy::Any => self.tasks.iter().all(is_out),
                StartPolicy::Restart => false,
            }
    }
}

/// Loads on a thread of its own or, where none can be started, on this one.
fn begin(task: usize, slot: Arc<PipelineSlot>, server: Arc<Server>, ended: Sender<Message>) {
    let load = move || {
        let (begun, was_loaded) = (Instant::now(), slot.loaded().is_some());
        let (slot, result) = server.repository().attempt(&slot);
        // The loader is gone if the server ends.
        let _ = ended.send(Message::Ended(Attempt { task, slot, was_loaded, result, took: begun.elapsed() }));
    };
    if threads::spawn("gpux-load", load.clone()).is_err() {
        load();
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
