//! Execution of one request, from its admission to its result.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::body_budget::RequestBudget;
use super::error::ServeError;
use super::loaded_pipeline::LoadedPipeline;
use super::memory_charge::Charge;
use super::metrics::{StageTimings, StepTimer};
use super::request_context::RequestContext;
use super::request_options::RequestOptions;
use super::runner::SentRequest;
use super::scheduler::{Client, JobOutcome, Lane, QueuePosition, Rejection};
use super::tenant::ConcurrencySlots;
use gpux::GpuxError;
use gpux_core::MemoryPermit;
use gpux_core::catch_panic::catch_panic;
use gpux_core::encoded_size;
use gpux_core::{Outputs, Request, RunOptions, StepError, StepFailure, TextCounts, Value, WaitObserver};
use gpux_inference::SessionSet;
use gpux_worker::Trace;

/// Values up to this size, in bytes, make a response that is not charged: its encoded size is not computed.
const SMALL: usize = 1 << 10;

/// One request while it is executed.
pub struct Execution {
    loaded: Arc<LoadedPipeline>,
    arrived: Instant,
    deadline: Cell<Option<Instant>>,
    /// the time that the request asked for
    timeout: Cell<Option<Duration>>,
    priority: i32,
    cancelled: Arc<AtomicBool>,
    waits: Option<Arc<dyn WaitObserver>>,
    queued: Duration,
    context: Option<Arc<RequestContext>>,
    /// start and end of the steps
    ran: Cell<Option<(Instant, Instant)>>,
    /// whether a run had no result in time
    timed_out: Cell<bool>,
    /// the memory permit of the response
    answer: Cell<Option<MemoryPermit>>,
}

impl Execution {
    /// The pipeline.
    pub fn loaded(&self) -> &Arc<LoadedPipeline> {
        &self.loaded
    }

    /// Time in the queue.
    pub const fn queued(&self) -> Duration {
        self.queued
    }

    /// Shortens the deadline to a timeout that was found in the body. It counts from the arrival.
    pub fn shorten_deadline(&self, timeout: Option<Duration>) -> Result<(), ServeError> {
        let Some(asked) = timeout.and_then(|timeout| self.arrived.checked_add(timeout)) else { return Ok(()) };
        if asked <= Instant::now() {
            self.timeout.set(timeout);
            return Err(Rejection::Expired.into());
        }
        if self.deadline.get().is_none_or(|deadline| asked < deadline) {
            self.deadline.set(Some(asked));
            self.timeout.set(timeout);
        }
        Ok(())
    }

    /// Fails once the deadline has passed or the client has gone.
    pub fn check_cancelled(&self) -> Result<(), ServeError> {
        let late = self.deadline.get().is_some_and(|deadline| deadline <= Instant::now());
        if late || self.cancelled.load(Ordering::Relaxed) { Err(Rejection::Expired.into()) } else { Ok(()) }
    }

    /// Runs the pipeline on the calling thread.
    pub fn infer(&self, values: Request, trace: Option<&mut Trace>) -> Result<Outputs, ServeError> {
        self.run(Instant::now(), |options, budget, clock| {
            self.loaded.runner().run(self.loaded.info(), values, options, budget, clock, trace)
        })
    }

    /// Waits for the end of a request that was sent at `start`.
    fn finish(&self, sent: SentRequest, start: Instant) -> Result<Outputs, ServeError> {
        self.run(start, |options, budget, clock| {
            self.loaded.runner().finish(self.loaded.info(), sent, options, budget, clock)
        })
    }

    /// Runs the pipeline by `run`, and records how that went.
    fn run(
        &self,
        start: Instant,
        run: impl FnOnce(RunOptions<'_>, &dyn Fn() -> RequestBudget, &mut StepTimer<'_>) -> Result<Outputs, ServeError>,
    ) -> Result<Outputs, ServeError> {
        let spans = self.context.as_ref().and_then(|context| context.step_spans());
        let mut clock = StepTimer::new(self.loaded.steps(), spans.is_some());
        let options = RunOptions {
            deadline: self.deadline.get(),
            priority: self.priority,
            waits: self.waits.clone(),
            observer: None,
            cancelled: Some(self.cancelled.clone()),
        };
        let budget = || self.loaded.response_budget().for_context(self.context.clone());
        let result = run(options, &budget, &mut clock);
        if result.as_ref().is_err_and(ServeError::is_invalid) {
            // Validation failed before the first step.
            return result;
        }
        self.timed_out.set(result.as_ref().is_err_and(ServeError::is_timeout));
        if !clock.has_begun() && result.as_ref().is_err_and(ServeError::is_given_up) {
            // It waited in the process of its pipeline.
            return result;
        }
        let end = Instant::now();
        self.loaded.metrics().record_run_time(end - start);
        self.ran.set(Some((start, end)));
        if let Some(context) = &self.context {
            context.note_run(end - start, clock.tokenization);
        }
        self.note_texts(clock.texts);
        if let (Some(spans), Some(steps)) = (spans, clock.traced) {
            spans.record(steps);
        }
        if let Err(ServeError::Gpux(GpuxError::Step(error))) = &result
            && let Some(step) = error.number.checked_sub(1).and_then(|index| self.loaded.steps().get(index))
        {
            step.failures.count(&error.failure);
        }
        result
    }

    /// Reserves memory for a response. `size` is the peak while it is encoded, including these values. Small responses
    /// are not charged.
    pub(crate) fn reserve_response<'a>(
        &self,
        values: impl Iterator<Item = &'a Value>,
        size: impl FnOnce() -> usize,
    ) -> Result<(), ServeError> {
        if encoded_size::of_all(values) <= SMALL {
            return Ok(());
        }
        let reserve = |bytes| self.loaded.response_budget().for_context(self.context.clone()).reserve(bytes);
        self.answer.set(Charge::EncodedResponse.reserve(size(), reserve)?);
        Ok(())
    }

    /// Hands the permit of the response to the request, which keeps it until the response is sent.
    fn keep_response_permit(&self) {
        if let (Some(permit), Some(context)) = (self.answer.take(), &self.context) {
            context.keep_response_permit(permit);
        }
    }

    /// The time by stage of an execution from `began` to `now`; `None` if no steps ran.
    fn timings(&self, began: Instant, now: Instant) -> Option<StageTimings> {
        let (start, end) = self.ran.get()?;
        Some(StageTimings { queued: self.queued, input: start - began, infer: end - start, output: now - end })
    }

    fn note_texts(&self, texts: TextCounts) {
        if texts == TextCounts::default() {
            return;
        }
        self.loaded.metrics().truncated.fetch_add(texts.truncated.into(), Ordering::Relaxed);
        if let Some(context) = &self.context {
            context.note_texts(texts);
        }
    }

    fn note_queued(&self) {
        self.loaded.metrics().record_queue_time(self.queued);
        if let Some(context) = &self.context {
            context.note_queued(self.queued);
        }
    }
}

/// How long after its deadline a running request may still complete: a step checks the deadline only now and then.
const ABANDON_AFTER_DEADLINE: Duration = Duration::from_millis(100);

/// Rejects a request that the lane would not admit, before its body is read.
pub(crate) fn check(loaded: &LoadedPipeline, options: &RequestOptions) -> Result<(), ServeError> {
    RequestContext::note_pipeline(loaded.metrics());
    if loaded.may_run_inline(options.body_bytes) {
        return Ok(());
    }
    let refused = |rejection: &Rejection| loaded.metrics().note_rejection(rejection.into());
    let (priority, client) = priority_and_client(RequestContext::current().as_deref(), options);
    let deadline = deadline(loaded, options, Instant::now());
    Ok(loaded.lane().check(deadline, priority, client).inspect_err(refused)?)
}

/// Priority and client of the request.
fn priority_and_client(context: Option<&RequestContext>, options: &RequestOptions) -> (i32, Client) {
    let priority = context.map_or(options.priority, |context| context.priority(options.priority));
    (priority as i32, context.map_or(Client::Unknown, RequestContext::client))
}

/// The deadline of a request; `None` if it overflows.
fn deadline(loaded: &LoadedPipeline, options: &RequestOptions, arrived: Instant) -> Option<Instant> {
    let timeout = options.timeout.map_or(loaded.timeout(), |timeout| timeout.min(loaded.timeout()));
    arrived.checked_add(timeout)
}

/// What comes before the inference of a request: its input, with what `finish` needs, or the whole result.
pub(crate) enum Prepared<S, T> {
    /// the pipeline is to be run
    Input(Request, S),
    /// nothing is left to do
    Done(T),
}

/// Runs `work` once, on this thread or in the pipeline's lane, and returns its result. Dropping the future cancels the
/// request: it does not start, or ends before its next step.
pub(crate) async fn execute<T: Send + 'static>(
    loaded: &Arc<LoadedPipeline>,
    options: RequestOptions,
    work: impl FnOnce(&Execution) -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let finish = |_: &Execution, never: Infallible, _| match never {};
    // The whole work would be done before the I/O thread could wait.
    let options =
        RequestOptions { body_bytes: options.body_bytes.filter(|_| !loaded.runner().is_isolated()), ..options };
    execute_parts(loaded, options, |execution| work(execution).map(Prepared::Done), finish).await
}

/// Runs `prepare`, the pipeline and `finish`, as [`execute`] runs its work. A request to an isolated pipeline may be
/// sent from this thread.
pub(crate) async fn execute_parts<S: Send + 'static, T: Send + 'static>(
    loaded: &Arc<LoadedPipeline>,
    options: RequestOptions,
    prepare: impl FnOnce(&Execution) -> Result<Prepared<S, T>, ServeError> + Send + 'static,
    finish: impl FnOnce(&Execution, S, Outputs) -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let arrived = Instant::now();
    let context = RequestContext::current();
    if let Some(context) = &context {
        context.set_pipeline(loaded.metrics());
    }

    let timeout = options.timeout;
    // A dropped future, because the client has gone, counts as a failure, too.
    let failure = FailureOnDrop(loaded, arrived);
    let outcome = match context.as_ref().and_then(|context| context.slots().cloned()) {
        // The items of a list or stream run within the concurrency of their key.
        Some(slots) => {
            let (deadline, loaded) = (deadline(loaded, &options, arrived), loaded.clone());
            let run = move |slot| async move {
                let finish = with_slot(slot, finish);
                submit(&loaded, options, arrived, context, prepare, finish).await
            };
            Box::pin(run_in_slot(slots, deadline, run)).await
        }
        None => submit(loaded, options, arrived, context, prepare, finish).await,
    };

    let (done, timings) = outcome.unwrap_or_else(|error| (Err(error), None));
    match (&done, timings) {
        (Ok(_), Some((timings, now))) => {
            std::mem::forget(failure);
            loaded.inferences().record_success(arrived, now, timings, !loaded.info().is_batched());
        }
        // A list is only recognized while it executes; its items are then executed one by one.
        (Ok(_), None) => std::mem::forget(failure),
        // A request that is rejected as invalid before it runs is no inference.
        (Err(error), None) if error.is_invalid() => std::mem::forget(failure),
        // The memory budget counts its rejections itself.
        (Err(ServeError::Overload(Rejection::Memory)), _) => {}
        (Err(ServeError::Overload(rejection)), _) => loaded.metrics().note_rejection(rejection.into()),
        (Err(ServeError::Expired(_)), _) => loaded.metrics().note_rejection((&Rejection::Expired).into()),
        (Err(_), _) => {}
    }
    done.map_err(|error| error.explain_timeout(|| loaded.time_limit(timeout)))
}

/// Runs `run` with a slot. A slot shared with other requests must not stay taken while the client reads results one by
/// one and does not poll this future. So a separate task waits for it and uses it.
async fn run_in_slot<T, F>(
    slots: ConcurrencySlots,
    deadline: Option<Instant>,
    run: impl FnOnce(OwnedSemaphorePermit) -> F + Send + 'static,
) -> Result<T, ServeError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ServeError>> + Send + 'static,
{
    if let Some(slot) = slots.own() {
        return run(slot).await;
    }
    let expired = || ServeError::from(Rejection::Expired);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let slot = match deadline {
            Some(deadline) => timeout_at(deadline.into(), slots.one()).await.map_err(|_| expired())?,
            None => slots.one().await,
        };
        run(slot.map_err(|_| expired())?).await
    });
    match task.join_next().await {
        Some(Ok(done)) => done,
        _ => Err(expired()),
    }
}

/// Holds the slot until `finish` returns or is dropped.
fn with_slot<S, T>(
    slot: OwnedSemaphorePermit,
    finish: impl FnOnce(&Execution, S, Outputs) -> Result<T, ServeError> + Send + 'static,
) -> impl FnOnce(&Execution, S, Outputs) -> Result<T, ServeError> + Send + 'static {
    move |execution, state, outputs| {
        let done = finish(execution, state, outputs);
        drop(slot);
        done
    }
}

/// Counts a failure when it is dropped.
struct FailureOnDrop<'a>(&'a LoadedPipeline, Instant);

impl Drop for FailureOnDrop<'_> {
    fn drop(&mut self) {
        self.0.inferences().record_failure(self.1.elapsed());
    }
}

/// How far a request has come.
enum Progress<P, S> {
    New(P),
    Prepared(Request, S),
    /// sent to the process of the pipeline, at this time
    Sent(SentRequest, Instant, S),
}

/// The result of a request, and its time by stage with its end, if steps ran.
type Timed<T> = (Result<T, ServeError>, Option<(StageTimings, Instant)>);

/// Does what is left of a request that was begun at `began`.
fn complete<S, T>(
    execution: &Execution,
    began: Instant,
    progress: Progress<impl FnOnce(&Execution) -> Result<Prepared<S, T>, ServeError>, S>,
    finish: impl FnOnce(&Execution, S, Outputs) -> Result<T, ServeError>,
) -> Timed<T> {
    let work = || {
        let (outputs, state) = match progress {
            Progress::New(prepare) => match prepare(execution)? {
                Prepared::Input(values, state) => (execution.infer(values, None)?, state),
                Prepared::Done(done) => return Ok(done),
            },
            Progress::Prepared(values, state) => (execution.infer(values, None)?, state),
            Progress::Sent(sent, start, state) => (execution.finish(sent, start)?, state),
        };
        finish(execution, state, outputs)
    };
    let limit = || execution.loaded.time_limit(execution.timeout.get());
    let done = run_guarded(work).map_err(|error| error.explain_timeout(limit));
    let now = Instant::now();
    execution.keep_response_permit();
    (done, execution.timings(began, now).map(|timings| (timings, now)))
}

/// Prepares a request on the I/O thread, and sends it to the process of the pipeline; the result if it needs no
/// inference, or fails.
fn send<S, T, P>(execution: &Execution, prepare: P) -> Result<Progress<P, S>, Result<T, ServeError>>
where
    P: FnOnce(&Execution) -> Result<Prepared<S, T>, ServeError>,
{
    let (values, state) = match run_guarded(|| prepare(execution)) {
        Ok(Prepared::Input(values, state)) => (values, state),
        Ok(Prepared::Done(done)) => return Err(Ok(done)),
        Err(error) => return Err(Err(error)),
    };
    let start = Instant::now();
    Ok(match execution.loaded.runner().send(values, execution.deadline.get(), execution.priority) {
        Ok(sent) => Progress::Sent(sent, start, state),
        Err(values) => Progress::Prepared(values, state),
    })
}

async fn submit<S: Send + 'static, T: Send + 'static, P>(
    loaded: &Arc<LoadedPipeline>,
    options: RequestOptions,
    arrived: Instant,
    context: Option<Arc<RequestContext>>,
    prepare: P,
    finish: impl FnOnce(&Execution, S, Outputs) -> Result<T, ServeError> + Send + 'static,
) -> Result<Timed<T>, ServeError>
where
    P: FnOnce(&Execution) -> Result<Prepared<S, T>, ServeError> + Send + 'static,
{
    let (priority, client) = priority_and_client(context.as_deref(), &options);
    let deadline = deadline(loaded, &options, arrived);
    let execution = Execution {
        loaded: loaded.clone(),
        arrived,
        deadline: Cell::new(deadline),
        timeout: Cell::new(options.timeout),
        priority,
        cancelled: Arc::default(),
        waits: None,
        queued: Duration::ZERO,
        context,
        ran: Cell::new(None),
        timed_out: Cell::new(false),
        answer: Cell::new(None),
    };

    if loaded.may_run_inline(options.body_bytes) {
        let reserved: Option<SmallVec<[_; 1]>> = loaded.runner().sessions().map(SessionSet::reserve).collect();
        if reserved.is_some() {
            let done = complete(&execution, Instant::now(), Progress::New(prepare), finish);
            loaded.metrics().record_queue_time(Duration::ZERO);
            return Ok(done);
        }
    }

    let progress = match loaded.begin_short(options.body_bytes) {
        None => Progress::New(prepare),
        Some(short) => match send(&execution, prepare) {
            Err(done) => return Ok((done, None)),
            Ok(Progress::Sent(sent, start, state)) => {
                let (sent, is_answered) = sent.answered(&short).await;
                let progress = Progress::Sent(sent, start, state);
                if is_answered {
                    let done = complete(&execution, arrived, progress, finish);
                    short.end();
                    loaded.metrics().record_queue_time(Duration::ZERO);
                    return Ok(done);
                }
                progress
            }
            Ok(progress) => progress,
        },
    };

    let (cancelled, begun) = (execution.cancelled.clone(), Arc::new(AtomicBool::new(false)));
    let (answer, answered) = oneshot::channel();
    let begins = begun.clone();

    let job = move |slot: Result<Arc<dyn WaitObserver>, Rejection>| {
        let slot = match slot {
            Ok(slot) => slot,
            Err(rejection) => {
                drop((execution, progress, finish));
                let _ = answer.send(Err(rejection.into()));
                return JobOutcome::TimedOut;
            }
        };

        begins.store(true, Ordering::Relaxed);
        // One that was sent did not wait.
        let began = if matches!(progress, Progress::Sent(..)) { arrived } else { Instant::now() };
        let execution = Execution { waits: Some(slot), queued: began - arrived, ..execution };
        execution.note_queued();
        let done = complete(&execution, began, progress, finish);
        let outcome = if execution.timed_out.get() { JobOutcome::TimedOut } else { JobOutcome::Answered };
        // Dropped before the response is sent: the client may send its next request at once.
        drop(execution);
        // The receiver is gone if the client has disconnected.
        let _ = answer.send(Ok(done));
        outcome
    };

    let place = loaded.lane().submit(deadline, priority, client, cancelled.clone(), Box::new(job))?;
    let _taken_back = CancelOnDrop { lane: loaded.lane(), place, begun: &begun, cancelled };
    await_result(answered, deadline, &begun).await
}

/// Waits for the result until the deadline, and for [`ABANDON_AFTER_DEADLINE`] longer if the request has started.
async fn await_result<T>(
    mut answered: oneshot::Receiver<Result<T, ServeError>>,
    deadline: Option<Instant>,
    begun: &AtomicBool,
) -> Result<T, ServeError> {
    // A job that is dropped without a result did not start in time.
    let expired = || ServeError::from(Rejection::Expired);
    let Some(deadline) = deadline else { return answered.await.unwrap_or_else(|_| Err(expired())) };
    if let Ok(answer) = timeout_at(deadline.into(), &mut answered).await {
        return answer.unwrap_or_else(|_| Err(expired()));
    }
    if !begun.load(Ordering::Relaxed) {
        return Err(expired());
    }
    match timeout_at((deadline + ABANDON_AFTER_DEADLINE).into(), answered).await {
        Ok(answer) => answer.unwrap_or_else(|_| Err(expired())),
        Err(_) => Err(abandoned()),
    }
}

/// The error of a step that ignores its deadline; its thread continues in the background.
fn abandoned() -> ServeError {
    let error = StepError::of_pipeline(StepFailure::Timeout);
    ServeError::Gpux(Box::new(error).into())
}

fn run_guarded<T>(work: impl FnOnce() -> Result<T, ServeError>) -> Result<T, ServeError> {
    catch_panic(work).unwrap_or_else(|panic| {
        let failure = StepFailure::Failed(format!("a fault within gpux: {panic}"));
        let error = StepError::of_pipeline(failure);
        Err(ServeError::Gpux(Box::new(error).into()))
    })
}

/// Cancels the request when it is dropped; a no-op once it has completed.
struct CancelOnDrop<'a> {
    lane: &'a Lane,
    place: QueuePosition,
    begun: &'a AtomicBool,
    cancelled: Arc<AtomicBool>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        if !self.begun.load(Ordering::Relaxed) {
            self.lane.cancel(self.place);
        }
    }
}

#[cfg(test)]
mod tests;
