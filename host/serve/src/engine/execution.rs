//! One request of a pipeline, from its admission to its result.

use super::request_options::Ask;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::encoded_size;
use super::error::ServeError;
use super::inline_execution::{Shapes, is_soon_written};
use super::loaded_pipeline::Served;
use super::memory_permit::Share;
use super::metrics::{Laps, StepClock};
use super::request_context::Context;
use super::scheduler::{Client, Lane, Place, Refusal, Slot};
use super::tenant::Slots;
use gpux_core::catch_panic::catch_panic;
use gpux_core::{Observer, Observers, Outputs, Request, RunError, RunOptions, StepError, StepFailure, Value, Waits};

/// Values of so many bytes make a small answer.
const SMALL: usize = 1 << 10;

/// An answer of so many bytes is not worth the counting.
const UNCOUNTED: usize = 32 << 10;

/// A request whose turn it is.
pub struct Turn {
    served: Arc<Served>,
    arrived: Instant,
    deadline: Cell<Option<Instant>>,
    priority: i32,
    cancelled: Arc<AtomicBool>,
    waits: Option<Arc<dyn Waits>>,
    queued: Duration,
    context: Option<Arc<Context>>,
    /// from when to when the steps ran
    ran: Cell<Option<(Instant, Instant)>>,
    /// whether it is on the thread that reads the connection
    here: bool,
    /// of a turn here: it is not known to be short or would wait, and is to be a worker's; what came of it is nothing
    declined: Cell<bool>,
    /// what settles how long it takes
    shapes: Cell<Option<Shapes>>,
    /// the room for the answer that is made in it
    answer: Cell<Option<Share>>,
}

impl Turn {
    /// The pipeline.
    pub fn served(&self) -> &Arc<Served> {
        &self.served
    }

    /// Whether it is on the thread that reads the connection: another may follow, on a worker.
    pub const fn is_here(&self) -> bool {
        self.here
    }

    /// How long it waited for its turn.
    pub const fn queued(&self) -> Duration {
        self.queued
    }

    /// Holds it to a timeout that is only found when the request is read. That counts from its arrival, too.
    pub fn hasten(&self, timeout: Option<Duration>) -> Result<(), ServeError> {
        let Some(asked) = timeout.and_then(|timeout| self.arrived.checked_add(timeout)) else { return Ok(()) };
        if asked <= Instant::now() {
            return Err(Refusal::Expired.into());
        }
        self.deadline.set(Some(self.deadline.get().map_or(asked, |deadline| deadline.min(asked))));
        Ok(())
    }

    /// Fails once nobody waits any more for what comes of it.
    pub fn still_wanted(&self) -> Result<(), ServeError> {
        let late = self.deadline.get().is_some_and(|deadline| deadline <= Instant::now());
        if late || self.cancelled.load(Ordering::Relaxed) { Err(Refusal::Expired.into()) } else { Ok(()) }
    }

    /// Runs the pipeline on the calling thread.
    pub fn infer(&self, values: Request, observer: Option<&mut dyn Observer>) -> Result<Outputs, ServeError> {
        let short = self.served.short();
        let shapes = short.and_then(|short| short.shapes(&values));
        if self.here && !short.zip(shapes).is_some_and(|(short, shapes)| short.knows(shapes)) {
            self.declined.set(true);
            return Err(Refusal::Expired.into());
        }
        let spans = self.context.as_ref().and_then(|context| context.step_spans());
        let mut clock = StepClock::new(self.served.steps(), spans.is_some());
        let start = Instant::now();
        let result = match observer {
            None => self.run(values, &mut clock),
            Some(observer) => self.run(values, &mut Observers(vec![observer, &mut clock])),
        };
        if self.here && result.as_ref().is_err_and(is_late) {
            self.declined.set(true);
            return Err(Refusal::Expired.into());
        }
        if let Err(RunError::Validation(error)) = result {
            // None of its steps has run.
            return Err(error.into());
        }
        let end = Instant::now();
        self.served.metrics().ran(end - start);
        self.ran.set(Some((start, end)));
        if let (Some(spans), Some(steps)) = (spans, clock.traced) {
            spans.tell(steps);
        }
        // A turn here is judged however it ends; known to be short is what is soon written, too.
        self.shapes.set(shapes.filter(|_| self.here || result.as_ref().is_ok_and(is_soon_written)));
        Ok(result?)
    }

    /// Takes room for an answer of these values that takes up to `size` bytes while it is made, the values among them.
    /// A small one is not counted.
    pub(crate) fn hold_answer<'a>(
        &self,
        values: impl Iterator<Item = &'a Value>,
        size: impl FnOnce() -> usize,
    ) -> Result<(), ServeError> {
        if encoded_size::of_all(values) <= SMALL {
            return Ok(());
        }
        let needed = size();
        if needed <= UNCOUNTED {
            return Ok(());
        }
        let room = self.served.answers().room_of(self.context.clone());
        let most = room.most();
        if needed > most {
            return Err(ServeError::AnswerNeverFits { needed, most });
        }
        // What was held for another attempt at it is given back first.
        self.answer.take();
        self.answer.set(Some(room.share(needed)?));
        Ok(())
    }

    /// The room for the answer becomes that of the request, which has it until the answer is sent.
    fn keep_answer(&self) {
        if let (Some(share), Some(context)) = (self.answer.take(), &self.context) {
            context.keep_answer(share);
        }
    }

    /// Notes how long the whole turn took.
    fn note(&self, took: Duration) {
        match self.served.short().zip(self.shapes.get()) {
            Some((short, shapes)) if self.here => short.note_here(shapes, took),
            Some((short, shapes)) => short.note_worker(shapes, took),
            None => {}
        }
    }

    /// Where the time went of a turn that began then and ends now, and in which the steps ran.
    fn laps(&self, began: Instant, now: Instant) -> Option<Laps> {
        let (start, end) = self.ran.get()?;
        Some(Laps { queued: self.queued, input: start - began, infer: end - start, output: now - end })
    }

    fn note_queued(&self) {
        self.served.metrics().queued(self.queued);
        if let Some(context) = &self.context {
            context.note_queued(self.queued);
        }
    }

    fn run(&self, values: Request, observer: &mut dyn Observer) -> Result<Outputs, RunError> {
        let options = RunOptions {
            deadline: self.deadline.get(),
            priority: self.priority,
            waits: self.waits.clone(),
            at_once: self.here,
            observer: Some(observer),
            cancelled: Some(&self.cancelled),
        };
        self.served.plan().run(values, options)
    }
}

fn is_late(error: &RunError) -> bool {
    matches!(error, RunError::Step(error) if error.failure == StepFailure::Timeout)
}

/// How long beyond its deadline a request that runs may still answer by itself; a step looks at the
/// clock only now and then.
const PATIENCE: Duration = Duration::from_millis(100);

/// Refuses a request for which there would be no turn, before its body is read.
pub(crate) fn check(served: &Served, ask: &Ask) -> Result<(), ServeError> {
    Context::note(served.metrics());
    if served.may_be_short(ask.bytes) {
        return Ok(());
    }
    let refused = |refusal: &Refusal| served.metrics().refused(refusal.into());
    let (priority, client) = sender(Context::current().as_deref(), ask);
    let deadline = deadline(served, ask, Instant::now());
    Ok(served.lane().check(deadline, priority, client).inspect_err(refused)?)
}

/// How urgent the request is, and whose.
fn sender(context: Option<&Context>, ask: &Ask) -> (i32, Client) {
    let priority = context.map_or(ask.priority, |context| context.priority(ask.priority));
    (priority as i32, context.map_or(Client::Unknown, Context::client))
}

/// `None` for a time beyond all clocks.
fn deadline(served: &Served, ask: &Ask, arrived: Instant) -> Option<Instant> {
    let timeout = ask.timeout.map_or(served.timeout(), |timeout| timeout.min(served.timeout()));
    arrived.checked_add(timeout)
}

/// Runs `work` in a turn of the pipeline's lane, and gives what comes of it. Who drops the future
/// takes the request back: it does not begin, or ends before its next step. A turn here, on the thread
/// that reads the connection, may find that the request is not known to be short: then there is another.
pub(crate) async fn call<T: Send + 'static>(
    served: &Arc<Served>,
    ask: Ask,
    work: impl Fn(&Turn) -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let arrived = Instant::now();
    let context = Context::current();
    if let Some(context) = &context {
        context.about(served.metrics());
    }
    let timed = move |turn: &Turn| {
        let began = Instant::now();
        let done = work(turn);
        let now = Instant::now();
        turn.keep_answer();
        turn.note(now - began);
        Ok((done, turn.laps(began, now).map(|laps| (laps, now))))
    };
    // Who drops the future, because the client has gone, has no result either.
    let unanswered = Unanswered(served, arrived);
    let turned = match context.as_ref().and_then(|context| context.slots().cloned()) {
        // A list or a stream has no more runs at once than its key allows.
        Some(slots) => {
            let (deadline, served) = (deadline(served, &ask, arrived), served.clone());
            let run = move |slot| async move {
                let work = holding(slot, timed);
                admitted(&served, ask, arrived, context, work).await
            };
            Box::pin(slotted(slots, deadline, run)).await
        }
        None => admitted(served, ask, arrived, context, timed).await,
    };
    let (done, laps) = turned.unwrap_or_else(|error| (Err(error), None));
    match (&done, laps) {
        (Ok(_), Some((laps, now))) => {
            std::mem::forget(unanswered);
            served.inferences().succeeded(arrived, now, laps, !served.pipeline().batches());
        }
        // A list only finds out in its turn that its items want turns of their own.
        (Ok(_), None) => std::mem::forget(unanswered),
        // What does not fit, and is refused before it runs, is no inference.
        (Err(error), None) if error.is_invalid() => std::mem::forget(unanswered),
        // The room for bodies counts whom it refuses, in a turn or before.
        (Err(ServeError::Overload(Refusal::Memory)), _) => {}
        (Err(ServeError::Overload(refusal)), _) => served.metrics().refused(refusal.into()),
        (Err(_), _) => {}
    }
    done
}

/// What comes of `run` once it has a slot. One that others may want must not wait for whoever reads the results
/// one by one: it is waited for, and used, in a task that goes on by itself.
async fn slotted<T, F>(
    slots: Slots,
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
    let expired = || ServeError::from(Refusal::Expired);
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

/// `work` which holds the slot until it is dropped.
fn holding<T>(
    slot: OwnedSemaphorePermit,
    work: impl Fn(&Turn) -> Result<T, ServeError> + Send + 'static,
) -> impl Fn(&Turn) -> Result<T, ServeError> + Send + 'static {
    move |turn| {
        let _held = &slot;
        work(turn)
    }
}

/// Counts a failure when it is dropped.
struct Unanswered<'a>(&'a Served, Instant);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.inferences().failed(self.1.elapsed());
    }
}

async fn admitted<T: Send + 'static>(
    served: &Arc<Served>,
    ask: Ask,
    arrived: Instant,
    context: Option<Arc<Context>>,
    work: impl Fn(&Turn) -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let (priority, client) = sender(context.as_deref(), &ask);
    let deadline = deadline(served, &ask, arrived);
    let mut turn = Turn {
        served: served.clone(),
        arrived,
        deadline: Cell::new(deadline),
        priority,
        cancelled: Arc::default(),
        waits: None,
        queued: Duration::ZERO,
        context,
        ran: Cell::new(None),
        here: served.may_be_short(ask.bytes),
        declined: Cell::new(false),
        shapes: Cell::new(None),
        answer: Cell::new(None),
    };
    if turn.here {
        let done = guarded(|| work(&turn));
        if !turn.declined.get() {
            served.metrics().queued(Duration::ZERO);
            return done;
        }
        turn.here = false;
    }
    let (cancelled, begun) = (turn.cancelled.clone(), Arc::new(AtomicBool::new(false)));
    let (answer, answered) = oneshot::channel();
    let begins = begun.clone();
    let job = move |slot: Result<Arc<Slot>, Refusal>| {
        let slot = match slot {
            Ok(slot) => slot,
            Err(refusal) => {
                drop((turn, work));
                let _ = answer.send(Err(refusal.into()));
                return;
            }
        };
        begins.store(true, Ordering::Relaxed);
        let turn = Turn { waits: Some(slot), queued: arrived.elapsed(), ..turn };
        turn.note_queued();
        let done = guarded(|| work(&turn));
        // Whoever has the answer may ask again: nothing of this request is under way by then.
        drop((turn, work));
        // Nobody listens any more when the client has gone.
        let _ = answer.send(done);
    };
    let place = served.lane().submit(deadline, priority, client, cancelled.clone(), Box::new(job))?;
    let _taken_back = TakenBack { lane: served.lane(), place, begun: &begun, cancelled };
    answer_of(answered, deadline, &begun).await
}

/// Waits for the answer until the deadline: a little longer if the request has begun.
async fn answer_of<T>(
    mut answered: oneshot::Receiver<Result<T, ServeError>>,
    deadline: Option<Instant>,
    begun: &AtomicBool,
) -> Result<T, ServeError> {
    // A job that is dropped without an answer did not get its turn in time.
    let expired = || ServeError::from(Refusal::Expired);
    let Some(deadline) = deadline else { return answered.await.unwrap_or_else(|_| Err(expired())) };
    if let Ok(answer) = timeout_at(deadline.into(), &mut answered).await {
        return answer.unwrap_or_else(|_| Err(expired()));
    }
    if !begun.load(Ordering::Relaxed) {
        return Err(expired());
    }
    match timeout_at((deadline + PATIENCE).into(), answered).await {
        Ok(answer) => answer.unwrap_or_else(|_| Err(expired())),
        Err(_) => Err(left_behind()),
    }
}

/// A step that has not seen the clock is left to end by itself.
fn left_behind() -> ServeError {
    let error = StepError { number: 0, name: "pipeline".to_owned(), failure: StepFailure::Timeout, log: Vec::new() };
    ServeError::Gpux(Box::new(error).into())
}

fn guarded<T>(work: impl FnOnce() -> Result<T, ServeError>) -> Result<T, ServeError> {
    catch_panic(work).unwrap_or_else(|panic| {
        let failure = StepFailure::Failed(format!("a fault within gpux: {panic}"));
        let error = StepError { number: 0, name: "pipeline".to_owned(), failure, log: Vec::new() };
        Err(ServeError::Gpux(Box::new(error).into()))
    })
}

/// Takes the request back when it is dropped; one that has its answer does not mind.
struct TakenBack<'a> {
    lane: &'a Lane,
    place: Place,
    begun: &'a AtomicBool,
    cancelled: Arc<AtomicBool>,
}

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        if !self.begun.load(Ordering::Relaxed) {
            self.lane.take_back(self.place);
        }
    }
}

#[cfg(test)]
mod tests;
