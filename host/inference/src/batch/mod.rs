//! Dynamic batching: requests of many threads share runs of a model.
//!
//! There is no batcher thread. A request that finds a session free runs at once, alone. Others wait in
//! the queue; when a session becomes free, one of them becomes the leader and runs for all compatible
//! requests. Batches grow with the load, and the batcher never delays a request while a session is
//! idle, unless `max_delay` is set.

mod batch_costs;
mod batch_selection;
mod concatenation;
mod operator_search;
mod queue;
mod request;
mod rules;
mod sample_requests;
mod shape_ladder;
mod verification;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::engine::RunFailure;
use super::sessions::{ModelInputs, RunTimer, SessionRunError, SessionSet, bytes};
use serde::{Deserialize, Serialize};

use gpux_core::catch_panic::catch_panic;
use gpux_core::{Signature, Tensor, WaitObserver};

use queue::{Queue, QueueRole};
use request::{Batch, NextAction, Request};
use rules::BatchRules;

pub use shape_ladder::ShapeLadder;
pub use verification::BatchVerdict;
pub(super) use verification::examine;

/// Batching options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchOptions {
    /// the most rows of one run; 1 is no batching
    pub max_size: usize,
    /// how long a leader may wait for more requests, if the last batch had several
    pub max_delay: Duration,
    /// whether texts of different lengths may share a run, where the model has an attention mask
    pub pad: bool,
    /// the most tokens of one run, rows times the longest text, where texts are padded
    pub max_tokens: usize,
    /// the shapes that runs are rounded up to
    pub shapes: ShapeLadder,
    /// by how much a result may change with what runs beside it, as a part of an output's largest number; 0 is the
    /// same bits
    pub tolerance: f64,
}

impl BatchOptions {
    /// Whether each request runs alone, in its own shape.
    pub(super) const fn is_off(&self) -> bool {
        self.max_size == 1 && self.shapes.is_empty()
    }

    /// Whether requests of so many rows are batched. Those that fill a run are only for the sake of its shape.
    const fn takes(&self, rows: usize) -> bool {
        rows < self.max_size || rows == self.max_size && !self.shapes.is_empty()
    }

    /// The tokens of a run, of texts of which the longest has this length.
    fn tokens(&self, rows: usize, longest: usize) -> usize {
        self.shapes.size(rows).saturating_mul(self.shapes.length(longest))
    }
}

impl Default for BatchOptions {
    /// No batching.
    fn default() -> Self {
        Self {
            max_size: 1,
            max_delay: Duration::ZERO,
            pad: true,
            max_tokens: usize::MAX,
            shapes: ShapeLadder::default(),
            tolerance: 0.0,
        }
    }
}

/// Runs requests in batches.
pub struct Batcher {
    shared: Arc<Shared>,
}

struct Shared {
    sessions: Arc<SessionSet>,
    rules: BatchRules,
    /// whether texts of different lengths share runs
    mixes_lengths: bool,
    options: BatchOptions,
    queue: Queue,
    /// set once an output had another number of rows: requests then run alone
    off: AtomicBool,
    sizes: Arc<BatchSizes>,
    /// runs of a shape that `shapes` lacks
    unrounded: AtomicU64,
}

/// A histogram of rows per run.
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
        self.add(rows, 1);
    }

    /// Counts this many runs.
    pub fn add(&self, rows: usize, runs: u64) {
        if let Some(count) = self.0.get(rows).or(self.0.last()) {
            count.fetch_add(runs, Ordering::Relaxed);
        }
    }

    /// The number of runs by rows.
    pub fn by_rows(&self) -> BTreeMap<usize, u64> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl Batcher {
    /// A batcher over the sessions of a model with this signature, by what [`examine`] has found about it. Fails with
    /// the reason if the model cannot be batched: its first axis is fixed, or results depend on their neighbours by
    /// more than the tolerance.
    pub(super) fn new(
        sessions: Arc<SessionSet>,
        signature: &Signature,
        options: BatchOptions,
        verdict: &BatchVerdict,
    ) -> Result<Self, String> {
        let mut rules = BatchRules::from_signature(signature, options.pad)?;
        let tolerance = options.tolerance;
        let equal_lengths = verdict.equal_lengths(tolerance);
        if !equal_lengths.difference.is_within(tolerance) {
            return Err(with_remedy(&equal_lengths, &options));
        }
        let padded = verdict.padded(tolerance).filter(|_| rules.pads());
        let mixes_lengths = padded.as_ref().is_some_and(|padded| padded.difference.is_within(tolerance));
        if padded.is_none() || !mixes_lengths && !options.shapes.has_lengths() {
            rules = BatchRules::unpadded();
        }
        if options.shapes.has_lengths() && !rules.pads() {
            return Err(
                "`lengths` are for models whose texts can be padded: with an `attention_mask` that they heed, \
                        and open axes"
                    .to_owned(),
            );
        }
        if !options.shapes.is_empty() {
            verification::warm_up(&sessions, signature, &options.shapes, verdict.size)?;
        }
        let queue = Queue::default();
        let sizes = Arc::default();
        let off = AtomicBool::new(false);
        Ok(Self {
            shared: Arc::new(Shared {
                sessions,
                rules,
                mixes_lengths,
                options,
                queue,
                off,
                sizes,
                unrounded: AtomicU64::new(0),
            }),
        })
    }

    /// Runs sample requests individually and batched. Fails with the first difference; requests that are
    /// never batched, or fail alone, are left out.
    pub fn verify(&self, requests: &[ModelInputs]) -> Result<(), String> {
        let rules = &self.shared.rules;
        let likes: Vec<_> = requests.iter().map(|request| rules.profile(request)).collect();
        for (at, profile) in likes.iter().enumerate() {
            let Some(profile) = profile else { continue };
            let is_like = |other: &Option<rules::RequestProfile>| {
                other.as_ref().is_some_and(|other| other.key == profile.key && self.may_share(profile, other))
            };
            if likes[..at].iter().any(is_like) {
                continue;
            }
            let compatible: Vec<_> =
                requests.iter().zip(&likes).filter(|(_, other)| is_like(other)).map(|(request, _)| request).collect();
            // A single one runs beside itself: as many rows as that are a batch as well.
            let group = if compatible.len() == 1 { vec![compatible[0]; 2] } else { compatible };
            for group in group.chunks(self.shared.options.max_size.clamp(2, 32)) {
                if let Some(difference) = self.verify_group(group) {
                    return Err(difference);
                }
            }
        }
        Ok(())
    }

    /// Whether requests with equal keys may share a run.
    fn may_share(&self, one: &rules::RequestProfile, other: &rules::RequestProfile) -> bool {
        let length = |of: &rules::RequestProfile| of.length.map(|length| self.shared.options.shapes.length(length));
        self.shared.mixes_lengths || length(one) == length(other)
    }

    /// The difference between individual and batched runs, if it is beyond the tolerance.
    fn verify_group(&self, group: &[&ModelInputs]) -> Option<String> {
        let Shared { sessions, rules, options, .. } = &*self.shared;
        let mut run = |inputs: &ModelInputs| sessions.run(inputs.clone(), None).map_err(|failure| failure.to_string());
        let (finding, _) = verification::difference(&mut run, rules, &options.shapes, group).ok()?;
        (!finding.difference.is_within(options.tolerance)).then(|| finding.to_string())
    }

    /// The batching options.
    pub fn options(&self) -> &BatchOptions {
        &self.shared.options
    }

    /// Runs of a shape that [`BatchOptions::shapes`] lacks, for which some providers compile the model while a
    /// request waits; `None` without such shapes.
    pub fn unrounded_runs(&self) -> Option<u64> {
        (!self.shared.options.shapes.is_empty()).then(|| self.shared.unrounded.load(Ordering::Relaxed))
    }

    /// Whether texts of different lengths share runs.
    pub fn pads(&self) -> bool {
        self.shared.mixes_lengths
    }

    /// The histogram of rows per run.
    pub fn sizes(&self) -> &Arc<BatchSizes> {
        &self.shared.sizes
    }

    /// Requests that wait for a session.
    pub fn waiting(&self) -> usize {
        self.shared.queue.len()
    }

    /// Runs the model on `inputs`, batched where possible. The queue is ordered by `priority`, then by
    /// arrival. `waits` brackets the time with the model: meanwhile others prepare the next batch.
    pub fn run(
        &self,
        inputs: ModelInputs,
        deadline: Option<Instant>,
        priority: i32,
        waits: Option<&dyn WaitObserver>,
    ) -> Result<Vec<Tensor>, SessionRunError> {
        let shared = &self.shared;
        let profile = if shared.off.load(Ordering::Relaxed) { None } else { shared.rules.profile(&inputs) };
        let Some(profile) = profile.filter(|profile| shared.options.takes(profile.rows)) else {
            let rows = inputs.first().map_or(1, |(_, tensor)| tensor.shape().first().copied().unwrap_or(1));
            shared.sizes.count(rows);
            shared.count_shape(rows, shared.rules.length(&inputs));
            return shared.sessions.run(inputs, deadline);
        };
        let request = Arc::new(Request::new(inputs, profile, deadline, priority));
        let _with_model = waits.map(|waits| WaitGuard::new(waits, &request));
        let _inside = shared.sessions.count_caller();
        if shared.queue.enter(&request, shared.sessions.target_concurrency()) == QueueRole::Lead {
            shared.run_as_leader(&request);
        }
        shared.wait(&request)
    }
}

impl Batcher {
    /// Runs the model on each of several inputs. Those that may share a run are joined before they take their turn.
    pub fn run_items(
        &self,
        items: Vec<ModelInputs>,
        deadline: Option<Instant>,
        priority: i32,
        waits: Option<&dyn WaitObserver>,
    ) -> Vec<Result<Vec<Tensor>, SessionRunError>> {
        let run = |inputs: ModelInputs| self.run(inputs, deadline, priority, waits);
        let mut results: Vec<Option<_>> = items.iter().map(|_| None).collect();
        for group in self.group(&items) {
            let inputs: Vec<_> = group.iter().map(|item| &items[*item]).collect();
            match self.run_joined(&inputs, run) {
                Some(parts) => {
                    for (item, outputs) in group.iter().zip(parts) {
                        results[*item] = Some(Ok(outputs));
                    }
                }
                // One of them may be the cause of a failure.
                None => group.iter().for_each(|item| results[*item] = Some(run(items[*item].clone()))),
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Err(SessionRunError::Timeout))).collect()
    }

    /// The numbers of the items that share runs.
    fn group(&self, items: &[ModelInputs]) -> Vec<Vec<usize>> {
        let Shared { rules, options, off, .. } = &*self.shared;
        let is_off = off.load(Ordering::Relaxed);
        let profiles: Vec<_> = items.iter().map(|item| rules.profile(item).filter(|_| !is_off)).collect();
        let mut groups: Vec<(Vec<usize>, usize, usize)> = Vec::new();
        for (item, profile) in profiles.iter().enumerate() {
            let Some(profile) = profile else {
                groups.push((vec![item], usize::MAX, 0));
                continue;
            };
            let length = profile.length.unwrap_or(1);
            let fits = |(members, rows, longest): &&mut (Vec<usize>, usize, usize)| {
                let first = members.first().and_then(|first| profiles[*first].as_ref());
                let more = rows.saturating_add(profile.rows);
                more <= options.max_size
                    && options.tokens(more, length.max(*longest)) <= options.max_tokens
                    && first.is_some_and(|first| first.key == profile.key && self.may_share(first, profile))
            };
            match groups.iter_mut().find(fits) {
                Some((members, rows, longest)) => {
                    members.push(item);
                    *rows += profile.rows;
                    *longest = length.max(*longest);
                }
                None => groups.push((vec![item], profile.rows, length)),
            }
        }
        groups.into_iter().map(|(members, ..)| members).collect()
    }

    /// Runs several inputs as one; `None` for a single one, and if they do not run together.
    fn run_joined(
        &self,
        items: &[&ModelInputs],
        run: impl FnOnce(ModelInputs) -> Result<Vec<Tensor>, SessionRunError>,
    ) -> Option<Vec<Vec<Tensor>>> {
        if items.len() < 2 {
            return None;
        }
        let mut joined = self.shared.rules.join(items, &ShapeLadder::default()).ok()?;
        let outputs = run(std::mem::take(&mut joined.inputs)).ok()?;
        joined.split(&self.shared.rules, &outputs).ok()
    }
}

impl Shared {
    /// Counts a run of this shape, if no run of it was tried when the model was loaded.
    fn count_shape(&self, rows: usize, length: Option<usize>) {
        if !self.options.shapes.contains(rows, length) {
            self.unrounded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs the batch of this request.
    fn run_as_leader(self: &Arc<Self>, leader: &Arc<Request>) {
        let start = match (self.rules.pads(), self.mixes_lengths) {
            (true, true) => self.sessions.overhead_bytes(),
            // No padding pays where it changes results.
            (true, false) => Some(0),
            (false, _) => None,
        };

        let requests = self.queue.take(leader, &self.options, start);
        let deadline = requests.iter().map(|request| request.deadline).reduce(later).flatten();
        let rows: usize = requests.iter().map(|request| request.rows).sum();
        self.sizes.count(rows);

        let inputs: Vec<_> = requests.iter().map(|request| &request.inputs).collect();
        // A panic here must not leave the selected requests waiting.
        let joined = catch_panic(|| self.rules.join(&inputs, &self.options.shapes));

        let batch = Batch::new(requests);
        for request in &batch.requests {
            request.set_running(&batch);
        }

        let mut joined = match joined {
            Ok(Ok(joined)) => joined,
            Ok(Err(error)) => {
                return self.deliver(&batch, |_| Err(RunFailure::Failed(error.to_string()).into()));
            }
            // One of them may be the cause, here as well.
            Err(_) => return self.run_individually(&batch),
        };

        self.count_shape(joined.rows, joined.length);
        let inputs = std::mem::take(&mut joined.inputs);
        let input_bytes = bytes(&inputs);

        let (shared, together) = (self.clone(), batch.clone());
        let then = move |result: Result<Vec<Tensor>, SessionRunError>| {
            shared.record_run(&together.timer, joined.rows, input_bytes, &result);
            match result {
                Ok(outputs) => {
                    if let Ok(Ok(parts)) = catch_panic(|| joined.split(&shared.rules, &outputs)) {
                        let mut parts = parts.into_iter();
                        shared.deliver(&together, |_| Ok(parts.next().unwrap_or_default()));
                    } else {
                        shared.off.store(true, Ordering::Relaxed);
                        shared.run_individually(&together);
                    }
                }
                Err(error) if together.requests.len() == 1 => {
                    let mut error = Some(error);
                    shared.deliver(&together, |_| Err(error.take().unwrap_or(SessionRunError::Timeout)));
                }
                Err(SessionRunError::Timeout | SessionRunError::Run(RunFailure::Timeout)) => {
                    shared.deliver(&together, |_| Err(SessionRunError::Timeout));
                }
                // One of them may be the cause, and the others must not suffer for it.
                Err(_) => shared.run_individually(&together),
            }
        };

        if let Some(offloaded) = self.sessions.start(inputs, deadline, &batch.timer, then) {
            *batch.offloaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(offloaded);
        }
    }

    /// Records what a run cost, if it ended by itself or at its deadline.
    fn record_run<T>(&self, timer: &RunTimer, rows: usize, bytes: usize, result: &Result<T, SessionRunError>) {
        let is_complete = result.is_ok();
        let is_timeout = matches!(result, Err(SessionRunError::Timeout | SessionRunError::Run(RunFailure::Timeout)));
        let time = timer.elapsed();
        if is_complete || is_timeout && !time.is_zero() {
            self.queue.costs.record(timer.is_single_threaded(), rows, bytes, time, is_complete);
        }
    }

    /// Gives each request its result, after the next in the queue has got its turn.
    fn deliver(&self, batch: &Batch, mut result: impl FnMut(usize) -> Result<Vec<Tensor>, SessionRunError>) {
        self.finish_run(batch);
        let share = batch.share();
        for (index, request) in batch.requests.iter().enumerate() {
            request.add_time(share);
            request.answer(result(index));
        }
    }

    fn run_individually(&self, batch: &Batch) {
        self.finish_run(batch);
        let share = batch.share();
        for request in &batch.requests {
            request.add_time(share);
            request.set_alone();
        }
    }

    fn finish_run(&self, batch: &Batch) {
        if !batch.is_finished.swap(true, Ordering::AcqRel) {
            self.queue.finish_run(self.sessions.target_concurrency());
        }
    }

    /// Waits until the request has its result, and leads when it is its turn.
    fn wait(self: &Arc<Self>, request: &Arc<Request>) -> Result<Vec<Tensor>, SessionRunError> {
        loop {
            match request.next_action() {
                NextAction::Answered(result) => return result,
                NextAction::RunAlone => {
                    let timer = Arc::default();
                    self.sizes.count(request.rows);
                    self.count_shape(request.rows, request.length);
                    let result = self.sessions.run_timed(request.inputs.clone(), request.deadline, &timer);
                    request.add_time(timer.elapsed());
                    return result;
                }
                NextAction::Lead => self.run_as_leader(request),
                NextAction::TimedOut if self.queue.remove(request, self.sessions.target_concurrency()) => {
                    return Err(SessionRunError::Timeout);
                }
                // It was taken, or called to lead, just now.
                NextAction::TimedOut => {}
                NextAction::Abandoned(batch) => {
                    request.add_time(batch.share());
                    self.abandon(&batch);
                    return Err(SessionRunError::Timeout);
                }
            }
        }
    }

    /// One whose batch still runs after its deadline goes. The last of them retires the session.
    fn abandon(&self, batch: &Batch) {
        if batch.waiting.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let offloaded = batch.offloaded.lock().unwrap_or_else(PoisonError::into_inner).take();
        if offloaded.is_some_and(|offloaded| offloaded.retire()) {
            self.finish_run(batch);
        }
    }
}

/// The time that a request spends with the model.
struct WaitGuard<'a> {
    waits: &'a dyn WaitObserver,
    request: &'a Request,
}

impl<'a> WaitGuard<'a> {
    fn new(waits: &'a dyn WaitObserver, request: &'a Request) -> Self {
        waits.begin();
        Self { waits, request }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.waits.end(self.request.time());
    }
}

/// Why requests run one at a time, and what lets them share runs.
fn with_remedy(finding: &verification::Finding, options: &BatchOptions) -> String {
    let needed = [1e-3, 1e-2].into_iter().find(|tolerance| finding.difference.is_within(*tolerance));
    match needed {
        Some(tolerance) => {
            let size = options.max_size;
            format!("{finding}. `batching: {{ max_size: {size}, tolerance: {tolerance} }}` lets them share runs")
        }
        None => finding.to_string(),
    }
}

/// The later of two deadlines; none is later than any.
fn later(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.zip(other).map(|(one, other)| one.max(other))
}

#[cfg(test)]
mod tests;
