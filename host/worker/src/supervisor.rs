//! A pipeline in a process of its own, which is started again when it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::channel::{CallOptions, ChannelError, Lateness, Reply, SlotNumber};
use crate::command::{PipelineEnvironment, WorkerCommand, cannot_start};
use crate::configuration_error;
use crate::memory_watch::Watched as _;
use crate::messages::{self, WorkerMessage};
use crate::model_statistics::ModelStatistics;
use crate::warm_up::WarmUpReport;
use crate::worker_process::{StartedWorker, Worker, WorkerProcess, lock};
use gpux::GpuxError;
use gpux::error::ModelCrash;
use gpux::internal::{Definition, PipelineInfo};
use gpux_core::{Request, threads};
use gpux_inference::BatchSizes;

/// What happens to workers, for the log.
#[derive(Clone, Debug)]
pub enum WorkerEvent {
    /// the system does not give workers all namespaces; said once
    NamespacesMissing {
        /// what they have instead, and why
        reason: String,
    },
    /// the worker of this pipeline has ended
    Ended {
        /// the pipeline
        pipeline: String,
        /// how it ended, with its last words
        reason: String,
    },
    /// a new worker answers
    Restarted {
        /// the pipeline
        pipeline: String,
        /// from the end of the worker before
        time: Duration,
    },
    /// workers are started without a template, which takes longer and more memory
    NoTemplate {
        /// why
        reason: String,
    },
    /// no new worker can be started
    NotRestarted {
        /// the pipeline
        pipeline: String,
        /// why
        reason: String,
        /// until the next attempt
        pause: Duration,
    },
}

/// Receives what happens to workers.
pub type OnWorkerEvent = Arc<dyn Fn(WorkerEvent) + Send + Sync>;

/// Why a request got no reply.
#[derive(Debug)]
pub enum WorkerError {
    /// the worker has ended while it ran the request
    Crash(ModelCrash),
    /// there is no worker, and there will be none soon
    Unavailable(String),
    /// the request's deadline passed while no worker was there
    Timeout,
    /// the request is too large for a worker
    TooLarge(String),
    /// too many requests are in flight
    Full,
    /// [`CallOptions::admits`] did not admit the answer
    NotAdmitted,
}

/// So many times as long as a step may run after its deadline, a request may wait in the worker's queue, where no step
/// of its own is to blame.
const LONGER_WAIT: u32 = 10;

/// Crashes in a row, each within [`STABLE`], after which a pipeline is quarantined.
const MAX_CRASHES: u32 = 5;

/// A worker that has lived so long has recovered from the crash before.
const STABLE: Duration = Duration::from_mins(1);

/// The pause before the second restart in a row; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A new worker may take so many times as long as the first took until it was ready, and this in addition; at most
/// [`WorkerCommand::load_timeout`].
const SLOWER: u32 = 10;
const LEAST_RESTART_LIMIT: Duration = Duration::from_secs(20);

/// The longest pause, also of a quarantined pipeline.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A pipeline that runs in a process of its own.
pub struct IsolatedPipeline(Arc<Shared>);

struct Shared {
    definition: Definition,
    /// the names of its steps
    steps: Vec<String>,
    command: WorkerCommand,
    state: Mutex<State>,
    changed: Condvar,
    statistics: Mutex<Vec<ModelStatistics>>,
    /// for each model, the runs of all workers by rows, and its name if it is batched
    batches: Vec<(Option<String>, Arc<BatchSizes>)>,
    crashes: AtomicU64,
    /// how long a new worker may take until it is ready
    restart_limit: Duration,
}

enum State {
    Running(Arc<Worker>),
    /// there is none, or it is being started
    Restarting(Option<Arc<Worker>>),
    /// it crashed too often, or cannot be loaded any more
    Failed(String),
    Closed,
}

impl IsolatedPipeline {
    /// Starts a process that loads the pipeline, and waits until it is warm.
    ///
    /// # Errors
    ///
    /// The process cannot be started or load the pipeline, or loaded another version of its file.
    pub fn start(
        definition: Definition,
        command: &WorkerCommand,
        on_event: OnWorkerEvent,
    ) -> Result<(Self, PipelineInfo, WarmUpReport), GpuxError> {
        let begun = Instant::now();
        let process = WorkerProcess::spawn(&definition, command)?;
        tell_template_failure(command, &on_event);
        let limit =
            process.worker.clone().limit_loading(command.load_timeout, " (`--load-timeout`)").map_err(cannot_start)?;
        let started = StartedWorker::load(process, &definition)?;
        drop(limit);
        let path = definition.source().path();
        if started.info.files.get(path) != Some(&definition.version()) {
            return Err(configuration_error(format!("`{}` changed while it was loaded", path.display())));
        }
        if let Some(reason) = started.namespaces.clone()
            && !command.has_reported_namespaces.swap(true, Ordering::Relaxed)
        {
            on_event(WorkerEvent::NamespacesMissing { reason });
        }
        let restart_limit = (begun.elapsed() * SLOWER + LEAST_RESTART_LIMIT).min(command.load_timeout);
        let (info, report) = (started.info.clone(), started.warm_up_report.clone());
        let shared = Arc::new(Shared {
            definition,
            steps: info.steps.clone(),
            command: command.clone(),
            state: Mutex::new(State::Running(started.process.worker.clone())),
            changed: Condvar::new(),
            statistics: Mutex::new(started.statistics.clone()),
            batches: info
                .models
                .iter()
                .map(|model| (model.is_batched.then(|| model.name.clone()), Arc::default()))
                .collect(),
            crashes: AtomicU64::new(0),
            restart_limit,
        });
        let supervised = shared.clone();
        threads::spawn("gpux-supervisor", move || supervised.supervise(started, &on_event)).map_err(cannot_start)?;
        Ok((Self(shared), info, report))
    }

    /// Runs a request in the worker; while there is none, waits for the next.
    pub fn run(&self, request: &Request, options: &CallOptions<'_>) -> Result<Reply, WorkerError> {
        loop {
            let worker = self.0.worker(options)?;
            match worker.channel.call(request, options, self.0.overdue(&worker)) {
                // The worker ended before it took the request, which waits for the next.
                Err(ChannelError::Ended { has_begun: false, .. }) => {}
                done => return done.map_err(|error| self.0.explain(error, &worker)),
            }
        }
    }

    /// Sends a request to the worker, without waiting for its end; gives it back if [`run`](Self::run) would wait
    /// before that, or fail.
    pub fn begin(&self, request: Request, options: &CallOptions<'_>) -> Result<PendingCall, Request> {
        let Some(worker) = self.0.running_worker() else { return Err(request) };
        match worker.channel.begin(&request, options) {
            Ok(slot) => {
                let (shared, deadline) = (self.0.clone(), options.deadline);
                Ok(PendingCall { shared, worker, request, deadline, slot: Some(slot) })
            }
            Err(_) => Err(request),
        }
    }

    /// The numbers of its models, at most a second old.
    pub fn model_statistics(&self) -> Vec<ModelStatistics> {
        lock(&self.0.statistics).clone()
    }

    /// The runs of its batched models by rows, by the models' names; at most a second old.
    pub fn batch_sizes(&self) -> impl Iterator<Item = (&str, &Arc<BatchSizes>)> {
        self.0.batches.iter().filter_map(|(name, sizes)| Some((name.as_deref()?, sizes)))
    }

    /// The environment of its workers, for another process that runs the pipeline.
    ///
    /// # Errors
    ///
    /// The folder for temporary files cannot be made.
    pub fn environment(&self) -> Result<PipelineEnvironment, GpuxError> {
        self.0.command.environment_of(&self.0.definition)
    }

    /// How often its worker has ended.
    pub fn crashes(&self) -> u64 {
        self.0.crashes.load(Ordering::Relaxed)
    }

    /// Why it does not answer; `None` while it does, or will soon.
    pub fn failure(&self) -> Option<String> {
        match &*lock(&self.0.state) {
            State::Failed(reason) => Some(reason.clone()),
            State::Running(_) | State::Restarting(_) | State::Closed => None,
        }
    }
}

fn tell_template_failure(command: &WorkerCommand, on_event: &OnWorkerEvent) {
    if let Some(reason) = command.templates.as_ref().and_then(|templates| templates.take_failure()) {
        on_event(WorkerEvent::NoTemplate { reason });
    }
}

/// A request that was sent to a worker. Dropped, it is cancelled, and a thread waits for its end.
pub struct PendingCall {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    request: Request,
    deadline: Option<Instant>,
    slot: Option<SlotNumber>,
}

impl PendingCall {
    /// Waits for an answer of at most `most` bytes, without a thread; gives the request back if no such comes within
    /// `limit`, or its deadline passes. If `is_alone`, the thread itself waits first, for [`BRIEFLY`](crate::BRIEFLY).
    pub async fn answered(mut self, limit: Duration, most: usize, is_alone: bool) -> Result<SmallAnswer, Self> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = left.map_or(limit, |left| left.min(limit));
        let len = match &self.slot {
            Some(slot) => tokio::time::timeout(limit, self.worker.channel.answered(slot, most, is_alone)).await,
            None => Ok(Ok(None)),
        };
        match (len, self.slot.take()) {
            (Ok(Ok(Some(len))), Some(slot)) => {
                Ok(SmallAnswer { shared: self.shared.clone(), worker: self.worker.clone(), slot, len })
            }
            (_, slot) => {
                self.slot = slot;
                Err(self)
            }
        }
    }

    /// Waits for the end of the request, as [`IsolatedPipeline::run`] does.
    pub fn finish(mut self, pipeline: &IsolatedPipeline, options: &CallOptions<'_>) -> Result<Reply, WorkerError> {
        let Some(slot) = self.slot.take() else { return pipeline.run(&self.request, options) };
        match self.worker.channel.finish(slot, options, self.shared.overdue(&self.worker)) {
            Err(ChannelError::Ended { has_begun: false, .. }) => pipeline.run(&self.request, options),
            done => done.map_err(|error| self.shared.explain(error, &self.worker)),
        }
    }
}

/// An answer that lies in the shared memory.
pub struct SmallAnswer {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    slot: SlotNumber,
    len: usize,
}

impl SmallAnswer {
    /// Reads it, without waiting.
    pub fn read(self, options: &CallOptions<'_>) -> Result<Reply, WorkerError> {
        let reply = self.worker.channel.read_answer(self.slot, self.len, options);
        reply.map_err(|error| self.shared.explain(error, &self.worker))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let (shared, worker, deadline) = (self.shared.clone(), self.worker.clone(), self.deadline);
        let waiting = move || {
            let cancelled = AtomicBool::new(true);
            let nothing = |_| false;
            let options =
                CallOptions { deadline, cancelled: Some(&cancelled), admits: Some(&nothing), ..CallOptions::default() };
            let _ = worker.channel.finish(slot, &options, shared.overdue(&worker));
        };
        // Nobody else ends a request that is late.
        if threads::spawn("gpux-cancelled", waiting).is_err() {
            self.worker.kill("killed: the system has no thread to wait for a cancelled request".to_owned());
        }
    }
}

impl Drop for IsolatedPipeline {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *lock(&self.0.state), State::Closed);
        self.0.changed.notify_all();
        if let State::Running(worker) | State::Restarting(Some(worker)) = before {
            // Its requests are done: they would keep this.
            worker.kill("closed".to_owned());
        }
    }
}

impl Shared {
    fn name(&self) -> &str {
        &self.definition.spec().name.value
    }

    /// The crash of a request in this step, from 1; 0 is before the first.
    fn crash(&self, reason: String, step: usize) -> ModelCrash {
        let name = step.checked_sub(1).and_then(|index| self.steps.get(index));
        ModelCrash { reason, step: name.map(|name| (step, name.clone())) }
    }

    /// Kills the worker when a request is too late.
    fn overdue(&self, worker: &Worker) -> impl Fn(Lateness) {
        let kill_after = self.command.kill_after;
        let wait_limit = kill_after * LONGER_WAIT;
        move |late: Lateness| {
            if late.running > kill_after {
                worker.kill(format!("killed: a step ignored its deadline by more than {kill_after:?}"));
            } else if late.waiting > wait_limit {
                worker
                    .kill(format!("killed: it left a request waiting for more than {wait_limit:?} after its deadline"));
            }
        }
    }

    /// The worker, if there is one.
    fn running_worker(&self) -> Option<Arc<Worker>> {
        match &*lock(&self.state) {
            State::Running(worker) if !worker.is_dying.load(Ordering::SeqCst) => Some(worker.clone()),
            _ => None,
        }
    }

    /// What an error of a call means to its caller.
    fn explain(&self, error: ChannelError, worker: &Worker) -> WorkerError {
        match error {
            ChannelError::Ended { step, .. } => {
                let reason = lock(&worker.reason).clone().unwrap_or_default();
                WorkerError::Crash(self.crash(reason, step as usize))
            }
            ChannelError::TooLarge(why) => WorkerError::TooLarge(why),
            ChannelError::Full => WorkerError::Full,
            ChannelError::NotAdmitted => WorkerError::NotAdmitted,
            ChannelError::Invalid(error) => {
                let reason = format!("killed: its answer cannot be read: {error}");
                worker.kill(reason.clone());
                WorkerError::Crash(self.crash(reason, 0))
            }
        }
    }

    /// The worker; while there is none, others may use the place of the request that waits.
    fn worker(&self, options: &CallOptions<'_>) -> Result<Arc<Worker>, WorkerError> {
        if let Some(worker) = self.running_worker() {
            return Ok(worker);
        }
        if let Some(waits) = options.waits {
            waits.begin();
        }
        let worker = self.wait_for_worker(options.deadline);
        if let Some(waits) = options.waits {
            waits.end(Duration::ZERO);
        }
        worker
    }

    fn wait_for_worker(&self, deadline: Option<Instant>) -> Result<Arc<Worker>, WorkerError> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Running(worker) if !worker.is_dying.load(Ordering::SeqCst) => return Ok(worker.clone()),
                State::Failed(reason) => return Err(WorkerError::Unavailable(reason.clone())),
                State::Closed => return Err(WorkerError::Unavailable("the pipeline was unloaded".to_owned())),
                State::Running(_) | State::Restarting(_) => {}
            }
            let left = deadline.map_or(LONGEST_PAUSE, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(WorkerError::Timeout);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn is_closed(&self) -> bool {
        matches!(*lock(&self.state), State::Closed)
    }

    /// Changes the state, unless the pipeline was closed.
    fn set(&self, to: State) -> bool {
        let mut state = lock(&self.state);
        if matches!(*state, State::Closed) {
            return false;
        }
        *state = to;
        self.changed.notify_all();
        true
    }

    /// Waits for the end of each worker and starts the next, until the pipeline is closed.
    fn supervise(self: Arc<Self>, mut started: StartedWorker, on_event: &OnWorkerEvent) {
        let mut crashes = 0;
        loop {
            let began = Instant::now();
            let info = started.info.clone();
            let (reason, last_words) = self.wait_for_end(started);
            if self.is_closed() {
                return;
            }
            let ended = Instant::now();
            self.crashes.fetch_add(1, Ordering::Relaxed);
            // What it printed is for the log, not for clients.
            on_event(WorkerEvent::Ended { pipeline: self.name().to_owned(), reason: format!("{reason}{last_words}") });
            crashes = if began.elapsed() > STABLE { 1 } else { crashes + 1 };
            let quarantine = format!("its process ended {crashes} times in a row, at last: {reason}");
            let Some(next) = self.restart(&info, crashes, quarantine, on_event) else { return };
            started = next;
            if !self.set(State::Running(started.process.worker.clone())) {
                started.process.worker.kill("closed".to_owned());
                return;
            }
            on_event(WorkerEvent::Restarted { pipeline: self.name().to_owned(), time: ended.elapsed() });
        }
    }

    /// Reads what the worker tells until it ends; returns how it ended, and what it printed at last.
    fn wait_for_end(&self, StartedWorker { mut process, statistics, .. }: StartedWorker) -> (String, String) {
        // The counts of this worker that are in `batches`, or are those of its warm-up.
        let mut sent: Vec<_> = statistics.into_iter().map(|model| model.batch_sizes).collect();
        sent.resize_with(self.batches.len(), BTreeMap::new);
        loop {
            let message = match messages::receive(&mut process.control) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    process.worker.kill(format!("killed: what it tells the server cannot be read: {error}"));
                    break;
                }
            };
            // A worker with other models than the first would not have been taken.
            if let WorkerMessage::Statistics(statistics) = message
                && statistics.len() == self.batches.len()
            {
                for (((_, sizes), model), sent) in self.batches.iter().zip(&statistics).zip(&mut sent) {
                    for (rows, runs) in &model.batch_sizes {
                        sizes.add(*rows, runs.saturating_sub(sent.get(rows).copied().unwrap_or_default()));
                    }
                    sent.clone_from(&model.batch_sizes);
                }
                *lock(&self.statistics) = statistics;
            }
        }
        let status = process.wait();
        // Before its calls return, so that nobody takes this worker again.
        self.set(State::Restarting(None));
        let reason = lock(&process.worker.reason).get_or_insert(status).clone();
        process.worker.channel.end();
        (reason, process.last_words())
    }

    /// Tries until a worker with the same pipeline has started; `None` if the pipeline was closed.
    fn restart(
        &self,
        info: &PipelineInfo,
        crashes: u32,
        quarantine: String,
        on_event: &OnWorkerEvent,
    ) -> Option<StartedWorker> {
        let mut pause = match crashes {
            0 | 1 => Duration::ZERO,
            _ => (FIRST_PAUSE * 2_u32.saturating_pow(crashes - 2)).min(LONGEST_PAUSE),
        };
        if crashes >= MAX_CRASHES {
            pause = LONGEST_PAUSE;
            self.set(State::Failed(quarantine.clone()));
            on_event(WorkerEvent::NotRestarted { pipeline: self.name().to_owned(), reason: quarantine, pause });
        }

        loop {
            if !self.pause(pause) {
                return None;
            }
            let started = WorkerProcess::spawn(&self.definition, &self.command);
            tell_template_failure(&self.command, on_event);
            // Requests wait while the first attempt goes on, and are rejected during later ones.
            if let Ok(process) = &started
                && !self.note_start(&process.worker)
            {
                return None;
            }

            let loaded = started.and_then(|process| {
                let _limit = process.worker.clone().limit_loading(self.restart_limit, "").map_err(cannot_start)?;
                StartedWorker::load(process, &self.definition)
            });
            let reason = match loaded {
                Ok(started) if started.info.is_same_as(info) => return Some(started),
                Ok(started) => {
                    started.process.worker.kill("closed".to_owned());
                    "its files have changed since they were loaded; reload it".to_owned()
                }
                Err(error) => error.to_string(),
            };

            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            if !self.set(State::Failed(reason.clone())) {
                return None;
            }
            on_event(WorkerEvent::NotRestarted { pipeline: self.name().to_owned(), reason, pause });
        }
    }

    /// Remembers the worker that is being started, so that closing the pipeline ends it; `false` if that has happened.
    fn note_start(&self, worker: &Arc<Worker>) -> bool {
        let mut state = lock(&self.state);
        match &mut *state {
            State::Closed => return false,
            State::Restarting(starting) => *starting = Some(worker.clone()),
            State::Running(_) | State::Failed(_) => {}
        }
        true
    }

    /// Waits; `false` once the pipeline is closed.
    fn pause(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        let mut state = lock(&self.state);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if matches!(*state, State::Closed) {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
