//! The threads of a worker that run its requests.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::channel::{IncomingRequest, RequestService, StepTime};
use crate::engine_threads;
use crate::step_failure;
use crate::trace::{Trace, run_observed};
use gpux::Pipeline;
use gpux_core::catch_panic::catch_panic;
use gpux_core::{Context, Observer, PlannedStep, RunOptions, StepFailure, TextCounts, Value, WaitObserver, threads};

/// How long a thread waits for requests before it ends, if another waits as well.
const IDLE: Duration = Duration::from_secs(5);

/// Threads that take requests and run them, as many as there may be and as are needed.
pub(crate) struct RequestThreads {
    pipeline: Arc<Pipeline>,
    service: RequestService,
    most: usize,
    /// those that take or run a request, without those whose request waits for others
    active: AtomicUsize,
}

impl RequestThreads {
    /// Starts the first of at most `most` threads.
    pub(crate) fn start(pipeline: Arc<Pipeline>, service: RequestService, most: usize) -> io::Result<()> {
        let threads = Arc::new(Self { pipeline, service, most: most.max(1), active: AtomicUsize::new(0) });
        if threads.add() { Ok(()) } else { Err(io::Error::other("the system starts no thread for requests")) }
    }

    /// Starts a thread, if there may be one more; returns whether it did.
    fn add(self: &Arc<Self>) -> bool {
        let one_more = |active| (active < self.most).then_some(active + 1);
        if self.active.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err() {
            return false;
        }
        let threads = self.clone();
        let has_started = threads::start(Box::new(move || {
            threads.work();
            ControlFlow::Continue(())
        }))
        .is_ok();
        if !has_started {
            // The threads that there are take the next request.
            self.active.fetch_sub(1, Ordering::SeqCst);
        }
        has_started
    }

    /// Starts a thread if none waits for the next request.
    fn replace(self: &Arc<Self>) {
        if self.service.is_busy().unwrap_or(true) {
            self.add();
        }
    }

    fn work(self: &Arc<Self>) {
        loop {
            match self.service.next(IDLE) {
                Ok(Some(request)) => {
                    self.replace();
                    engine_threads::require();
                    if self.answer(request).is_err() {
                        std::process::abort();
                    }
                    self.service.leave();
                    // Others were started while requests waited.
                    let one_less = |active| (active > self.most).then(|| active - 1);
                    if self.active.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                        return;
                    }
                }
                Ok(None) => {
                    self.active.fetch_sub(1, Ordering::SeqCst);
                    return;
                }
                // The memory is not what it was: the server starts another worker.
                Err(_) => std::process::abort(),
            }
        }
    }

    fn answer(self: &Arc<Self>, mut request: IncomingRequest) -> io::Result<()> {
        // Not shared, so that steps may change them in place.
        let values = std::mem::take(&mut request.values);
        let request = &request;
        let mut recorder = StepRecorder { request, begun: 0, steps: Vec::new() };
        let mut trace = request.is_traced.then(Trace::default);
        let run = || {
            let options = RunOptions {
                deadline: request.deadline,
                priority: request.priority,
                waits: Some(Arc::new(Waits { threads: self.clone(), server: request.waits() })),
                observer: None,
                cancelled: Some(request.cancelled()),
            };
            run_observed(self.pipeline.plan(), values, options, &mut recorder, trace.as_mut())
        };
        let result =
            catch_panic(run).unwrap_or_else(|panic| Err(step_failure(format!("a fault within gpux: {panic}"))));
        request.answer(&result, &recorder.steps, trace.as_ref())
    }
}

/// Lets another thread take the place of one whose request waits for others, and tells the server.
struct Waits {
    threads: Arc<RequestThreads>,
    server: Option<Arc<dyn WaitObserver>>,
}

impl WaitObserver for Waits {
    fn begin(&self) {
        self.threads.active.fetch_sub(1, Ordering::SeqCst);
        self.threads.service.leave();
        self.threads.replace();
        if let Some(server) = &self.server {
            server.begin();
        }
    }

    fn end(&self, delegated_work: Duration) {
        self.threads.active.fetch_add(1, Ordering::SeqCst);
        self.threads.service.resume();
        if let Some(server) = &self.server {
            server.end(delegated_work);
        }
    }
}

/// Notes which step runs, and how long each took.
struct StepRecorder<'a> {
    request: &'a IncomingRequest,
    begun: u32,
    steps: Vec<StepTime>,
}

impl Observer for StepRecorder<'_> {
    fn before(&mut self, _: &PlannedStep, _: &[Option<Value>]) {
        self.begun += 1;
        self.request.note_step(self.begun);
    }

    fn wants_values(&self) -> bool {
        false
    }

    fn failed(&mut self, _: &PlannedStep, _: &StepFailure, time: Duration, context: &Context) {
        self.steps.push(StepTime {
            time,
            has_failed: true,
            texts: TextCounts::default(),
            calls: context.calls.clone(),
        });
    }

    fn after(&mut self, _: &PlannedStep, time: Duration, _: &[Value], context: &Context) {
        let (texts, calls) = (context.texts, context.calls.clone());
        self.steps.push(StepTime { time, has_failed: false, texts, calls });
    }
}
