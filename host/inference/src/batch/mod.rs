//! Requests of many threads, put together into one run of a model.
//!
//! There is no thread for it. A request that finds a session free runs at once, alone. Others wait;
//! when a session becomes free, one of them is woken, takes along those that wait and are like it,
//! and runs for all. So batches grow with the load, and nobody waits for company that may not come,
//! unless a delay is asked for.

mod company;
mod join;
mod queue;
mod request;
mod rules;
mod trial;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::engine::RunFailure;
use super::sessions::{ModelInputs, SessionSet, Unavailable};
use gpux_core::catch_panic::catch_panic;
use gpux_core::{Signature, Tensor, Waits};

use queue::{Asked, Queue};
use request::{Batch, Request, Turn};
use rules::Rules;

/// How requests are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// the most rows of one run; 1 is no batching
    pub max_size: usize,
    /// how long a request that could run may wait for others, if the last that ran had company
    pub max_delay: Duration,
    /// whether texts of different lengths may share a run, where the model has an attention mask
    pub pad: bool,
}

impl Default for BatchOptions {
    /// No batching.
    fn default() -> Self {
        Self { max_size: 1, max_delay: Duration::ZERO, pad: true }
    }
}

/// Runs requests together.
pub struct Batcher {
    shared: Arc<Shared>,
}

struct Shared {
    sessions: Arc<SessionSet>,
    rules: Rules,
    options: BatchOptions,
    queue: Queue,
    /// an output turned out not to have a row for each row: from then on, requests run alone
    off: AtomicBool,
    sizes: Arc<BatchSizes>,
}

/// How often so many rows ran together.
#[derive(Debug)]
pub struct BatchSizes(Vec<AtomicU64>);

impl Default for BatchSizes {
    /// The last, of 256, also counts all above.
    fn default() -> Self {
        Self((0..=256).map(|_| AtomicU64::new(0)).collect())
    }
}

impl BatchSizes {
    fn count(&self, rows: usize) {
        if let Some(count) = self.0.get(rows).or(self.0.last()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a run had so many rows; index 0 is for runs of no rows.
    pub fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Batcher {
    /// A batcher over the sessions of a model with this signature. Fails with the reason if the
    /// model's requests must not be put together: its first axis is fixed, or a trial with made-up
    /// inputs shows that results depend on their neighbours.
    pub fn new(sessions: Arc<SessionSet>, signature: &Signature, options: BatchOptions) -> Result<Self, String> {
        let rules = trial::prove(&sessions, signature, Rules::of(signature, options.pad)?)?;
        let queue = Queue::default();
        let sizes = Arc::default();
        let off = AtomicBool::new(false);
        Ok(Self { shared: Arc::new(Shared { sessions, rules, options, queue, off, sizes }) })
    }

    /// Runs requests that came in practice alone and together. Fails with what is different; those that
    /// would never run together, or fail alone, are left out.
    pub fn prove(&self, requests: &[ModelInputs]) -> Result<(), String> {
        let rules = &self.shared.rules;
        let likes: Vec<_> = requests.iter().map(|request| rules.like(request)).collect();
        for (at, like) in likes.iter().enumerate() {
            let Some(like) = like else { continue };
            let is_like = |other: &Option<rules::Like>| other.as_ref().is_some_and(|other| other.key == like.key);
            if likes[..at].iter().any(is_like) {
                continue;
            }
            let alike: Vec<_> =
                requests.iter().zip(&likes).filter(|(_, other)| is_like(other)).map(|(request, _)| request).collect();
            // A single one runs beside itself: as many rows as that are a batch as well.
            let group = if alike.len() == 1 { vec![alike[0]; 2] } else { alike };
            for group in group.chunks(self.shared.options.max_size.clamp(2, 32)) {
                if let Ok(Some(difference)) = trial::together(&self.shared.sessions, rules, group) {
                    return Err(difference);
                }
            }
        }
        Ok(())
    }

    /// How requests are put together.
    pub fn options(&self) -> BatchOptions {
        self.shared.options
    }

    /// Whether texts of different lengths share runs.
    pub fn pads(&self) -> bool {
        self.shared.rules.pads()
    }

    /// How often a run had so many rows.
    pub fn sizes(&self) -> &Arc<BatchSizes> {
        &self.shared.sizes
    }

    /// Requests that wait for a session.
    pub fn waiting(&self) -> usize {
        self.shared.queue.len()
    }

    /// Runs the model on `inputs`, together with others where that may be. Of those that wait, the
    /// greatest `priority` comes first, then who came first. `waits` is told that it is with
    /// the model: meanwhile others prepare what may run together next.
    pub fn run(
        &self,
        inputs: ModelInputs,
        deadline: Option<Instant>,
        priority: i32,
        waits: Option<&dyn Waits>,
    ) -> Result<Vec<Tensor>, Unavailable> {
        let shared = &self.shared;
        let like = if shared.off.load(Ordering::Relaxed) { None } else { shared.rules.like(&inputs) };
        let Some(like) = like.filter(|like| like.rows < shared.options.max_size) else {
            shared.sizes.count(inputs.first().map_or(1, |(_, tensor)| tensor.shape().first().copied().unwrap_or(1)));
            return shared.sessions.run(inputs, deadline);
        };
        let request = Arc::new(Request::new(inputs, like, deadline, priority));
        let _with_model = waits.map(|waits| WithModel::of(waits, &request));
        let _inside = shared.sessions.enter();
        if shared.queue.enter(&request, shared.sessions.open()) == Asked::Lead {
            shared.lead(&request);
        }
        shared.wait(&request)
    }
}

impl Shared {
    /// Runs for this request and for those that are like it.
    fn lead(self: &Arc<Self>, leader: &Arc<Request>) {
        let most = self.options.max_size;
        let start = self.rules.pads().then(|| self.sessions.start_cost()).flatten();
        let requests = self.queue.take(leader, most, self.options.max_delay, start);
        let deadline = requests.iter().map(|request| request.deadline).reduce(later).flatten();
        let rows: usize = requests.iter().map(|request| request.rows).sum();
        self.sizes.count(rows);
        let inputs: Vec<_> = requests.iter().map(|request| &request.inputs).collect();
        // Those that were taken must hear of it, whatever happens.
        let joined = catch_panic(|| self.rules.join(&inputs));
        let batch = Batch::of(requests);
        for request in &batch.requests {
            request.joins(&batch);
        }
        let mut joined = match joined {
            Ok(Ok(joined)) => joined,
            Ok(Err(error)) => {
                return self.deliver(&batch, |_| Err(RunFailure::Failed(error.to_string()).into()));
            }
            // One of them may be the cause, here as well.
            Err(_) => return self.each_alone(&batch),
        };
        let inputs = std::mem::take(&mut joined.inputs);
        let (shared, together) = (self.clone(), batch.clone());
        let then = move |result: Result<Vec<Tensor>, Unavailable>| match result {
            Ok(outputs) => {
                if let Ok(Ok(parts)) = catch_panic(|| joined.split(&shared.rules, &outputs)) {
                    let mut parts = parts.into_iter();
                    shared.deliver(&together, |_| Ok(parts.next().unwrap_or_default()));
                } else {
                    shared.off.store(true, Ordering::Relaxed);
                    shared.each_alone(&together);
                }
            }
            Err(error) if together.requests.len() == 1 => {
                let mut error = Some(error);
                shared.deliver(&together, |_| Err(error.take().unwrap_or(Unavailable::Timeout)));
            }
            Err(Unavailable::Timeout | Unavailable::Run(RunFailure::Timeout)) => {
                shared.deliver(&together, |_| Err(Unavailable::Timeout));
            }
            // One of them may be the cause, and the others must not suffer for it.
            Err(_) => shared.each_alone(&together),
        };
        if let Some(elsewhere) = self.sessions.start(inputs, deadline, &batch.worked, then) {
            *batch.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = Some(elsewhere);
        }
    }

    /// Gives each request its result, after the next in the queue has got its turn.
    fn deliver(&self, batch: &Batch, mut result: impl FnMut(usize) -> Result<Vec<Tensor>, Unavailable>) {
        self.pass_on(batch);
        let share = batch.share();
        for (index, request) in batch.requests.iter().enumerate() {
            request.worked(share);
            request.answer(result(index));
        }
    }

    fn each_alone(&self, batch: &Batch) {
        self.pass_on(batch);
        let share = batch.share();
        for request in &batch.requests {
            request.worked(share);
            request.run_alone();
        }
    }

    fn pass_on(&self, batch: &Batch) {
        if !batch.passed_on.swap(true, Ordering::AcqRel) {
            self.queue.pass_on(self.sessions.open());
        }
    }

    /// Waits until the request has its result, and leads when it is its turn.
    fn wait(self: &Arc<Self>, request: &Arc<Request>) -> Result<Vec<Tensor>, Unavailable> {
        loop {
            match request.turn() {
                Turn::Answered(result) => return result,
                Turn::Alone => {
                    let worked = Arc::default();
                    self.sizes.count(request.rows);
                    let result = self.sessions.run_timed(request.inputs.clone(), request.deadline, &worked);
                    request.worked(worked.so_far());
                    return result;
                }
                Turn::Lead => self.lead(request),
                Turn::Late if self.queue.leave(request, self.sessions.open()) => return Err(Unavailable::Timeout),
                // It was taken, or called to lead, just now.
                Turn::Late => {}
                Turn::LeftBehind(batch) => {
                    request.worked(batch.share());
                    self.leave_behind(&batch);
                    return Err(Unavailable::Timeout);
                }
            }
        }
    }

    /// One whose batch still runs after its deadline goes. The last of them retires the session.
    fn leave_behind(&self, batch: &Batch) {
        if batch.waiting.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let elsewhere = batch.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).take();
        if elsewhere.is_some_and(|elsewhere| elsewhere.retire()) {
            self.pass_on(batch);
        }
    }
}

/// The time that a request spends with the model.
struct WithModel<'a> {
    waits: &'a dyn Waits,
    request: &'a Request,
}

impl<'a> WithModel<'a> {
    fn of(waits: &'a dyn Waits, request: &'a Request) -> Self {
        waits.begin();
        Self { waits, request }
    }
}

impl Drop for WithModel<'_> {
    fn drop(&mut self) {
        self.waits.end(self.request.time());
    }
}

/// The later of two deadlines; none is later than any.
fn later(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.zip(other).map(|(one, other)| one.max(other))
}

#[cfg(test)]
mod tests;
