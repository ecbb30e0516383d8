//! What is counted of one pipeline.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;

use super::histogram::Histogram;
use super::inferences::Inferences;
use super::ledger::Ledger;
use crate::pipeline::{Context, Failures, Observer, Plan, PlannedStep, StepFailure, Value};
use crate::serve::schedule::Refusal;

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Protocol {
    /// `/predict` and what is beside it
    Http,
    /// the Open Inference Protocol on HTTP, `/v2`
    OipHttp,
    /// gRPC
    Grpc,
}

impl Protocol {
    pub(super) const ALL: [Self; 3] = [Self::Http, Self::OipHttp, Self::Grpc];

    /// As the metrics and the log call it.
    pub(in crate::serve) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::OipHttp => "oip-http",
            Self::Grpc => "grpc",
        }
    }
}

/// Statuses that are counted each for itself; all others are counted by their hundred.
const STATUSES: [u16; 21] =
    [100, 200, 204, 300, 304, 400, 401, 403, 404, 405, 406, 408, 413, 415, 429, 499, 500, 501, 503, 504, 505];

/// Names of the status codes of gRPC, by their number.
const GRPC: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Answers, by protocol and status.
#[derive(Debug, Default)]
pub(in crate::serve) struct Answers([[AtomicU64; STATUSES.len()]; 3]);

impl Answers {
    /// Counts an answer. Of gRPC, `status` is its own code.
    pub(in crate::serve) fn count(&self, protocol: Protocol, status: u16) {
        let slot = if protocol == Protocol::Grpc {
            usize::from(status).min(GRPC.len() - 1)
        } else {
            let exact = STATUSES.binary_search(&status);
            exact.or_else(|_| STATUSES.binary_search(&(status / 100 * 100))).unwrap_or(STATUSES.len() - 1)
        };
        if let Some(count) = self.0.get(protocol as usize).and_then(|counts| counts.get(slot)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those there were: protocol, status, how many.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Protocol, String, u64)> {
        let of = |(protocol, counts): (Protocol, &[AtomicU64; STATUSES.len()])| {
            let name = move |slot: usize| match protocol {
                Protocol::Grpc => GRPC.get(slot).unwrap_or(&"UNKNOWN").to_string(),
                _ => STATUSES.get(slot).map(ToString::to_string).unwrap_or_default(),
            };
            let counts: Vec<_> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            let some = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
            some.map(move |(slot, count)| (protocol, name(slot), count)).collect::<Vec<_>>()
        };
        Protocol::ALL.into_iter().zip(&self.0).flat_map(of)
    }

    /// How many succeeded, and how many did not.
    pub(super) fn outcome(&self) -> (u64, u64) {
        let succeeded = |status: &str| status == "OK" || status.starts_with('2');
        self.counts().fold(
            (0, 0),
            |(good, bad), (_, status, count)| {
                if succeeded(&status) { (good + count, bad) } else { (good, bad + count) }
            },
        )
    }
}

/// Requests that did not run, by why.
#[derive(Debug, Default)]
pub(in crate::serve) struct Refusals([AtomicU64; 7]);

/// Why a request did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Refused {
    /// too many wait
    Full,
    /// its turn would come too late
    Late,
    /// its timeout passed before its turn
    Expired,
    /// the server ends
    Closing,
    /// the bodies of all requests hold as much as they may
    Memory,
    /// its key has had its requests of this second
    Rate,
    /// its key has as many under way as it may
    Concurrency,
}

impl Refused {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Full, "queue_full"),
        (Self::Late, "too_late"),
        (Self::Expired, "expired"),
        (Self::Closing, "closing"),
        (Self::Memory, "memory"),
        (Self::Rate, "key_rate"),
        (Self::Concurrency, "key_concurrency"),
    ];
}

impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Full { .. } => Self::Full,
            Refusal::Late { .. } => Self::Late,
            Refusal::Expired => Self::Expired,
            Refusal::Closing => Self::Closing,
            Refusal::Memory => Self::Memory,
        }
    }
}

impl Refusals {
    /// Counts one.
    pub(in crate::serve) fn count(&self, refused: Refused) {
        if let Some(count) = self.0.get(refused as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All of them, by name; those that have not happened as well.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refused::ALL.into_iter().zip(&self.0).map(|((_, name), count)| (name, count.load(Ordering::Relaxed)))
    }
}

/// What is counted of one step.
#[derive(Debug, Default)]
pub(in crate::serve) struct StepMetrics {
    pub(super) time: Histogram,
    pub(super) failures: Ledger<Failures>,
}

/// What is counted of a plan's steps, in order.
pub(in crate::serve) type Steps = Vec<Arc<StepMetrics>>;

/// What is counted of one pipeline, through all its reloads.
#[derive(Debug, Default)]
pub(in crate::serve) struct PipelineMetrics {
    pub(super) name: String,
    pub(super) answers: Answers,
    pub(super) refusals: Refusals,
    /// from the head of a request to the head of its answer
    pub(super) request: Histogram,
    /// from its arrival to its turn
    pub(super) queue: Histogram,
    /// runs of the plan: of requests' lists and streams each item is one
    pub(super) run: Histogram,
    /// what was loaded anew and answers now
    pub(in crate::serve) reloads: AtomicU64,
    /// what could not be loaded; the one before answers
    pub(in crate::serve) failed_reloads: AtomicU64,
    /// by place and name
    steps: Mutex<BTreeMap<(usize, String), Arc<StepMetrics>>>,
    /// by version
    inferences: Mutex<BTreeMap<String, Arc<Inferences>>>,
}

impl PipelineMetrics {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The pipeline's name; empty for none.
    pub(in crate::serve) fn name(&self) -> &str {
        &self.name
    }

    /// Those of the plan's steps; one of the same name at the same place is the one there was.
    pub(in crate::serve) fn steps(&self, plan: &Plan) -> Steps {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = plan.steps().iter().enumerate();
        let metrics = planned.map(|(index, step)| {
            let metrics = steps.entry((index, step.name.clone())).or_default();
            metrics.failures.add(step.failures.clone());
            metrics.clone()
        });
        metrics.collect()
    }

    /// Those of this version.
    pub(in crate::serve) fn inferences(&self, version: &str) -> Arc<Inferences> {
        let mut inferences = self.inferences.lock().unwrap_or_else(PoisonError::into_inner);
        inferences.entry(version.to_owned()).or_insert_with(|| Arc::new(Inferences::new())).clone()
    }

    /// How often the model of this name ran on so many rows, whichever version it was of.
    pub(super) fn batch_sizes(&self, model: &str) -> BTreeMap<usize, u64> {
        let inferences = self.inferences.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sizes = BTreeMap::new();
        for (rows, count) in inferences.values().flat_map(|inferences| inferences.batch_sizes(model)) {
            *sizes.entry(rows).or_default() += count;
        }
        sizes
    }

    /// An answer has gone out, `time` after its request came.
    pub(in crate::serve) fn answered(&self, protocol: Protocol, status: u16, time: Duration) {
        self.answers.count(protocol, status);
        self.request.observe(time);
    }

    /// A request has got its turn.
    pub(in crate::serve) fn queued(&self, time: Duration) {
        self.queue.observe(time);
    }

    /// A run has ended.
    pub(in crate::serve) fn ran(&self, time: Duration) {
        self.run.observe(time);
    }

    /// A request did not run.
    pub(in crate::serve) fn refused(&self, refused: Refused) {
        self.refusals.count(refused);
    }
}

/// One step of one run, for a trace.
#[derive(Clone, Debug)]
pub(in crate::serve) struct StepTime {
    /// its name
    pub(in crate::serve) name: String,
    /// when it ended
    pub(in crate::serve) end: Instant,
    /// how long it took
    pub(in crate::serve) time: Duration,
    /// why it failed
    pub(in crate::serve) failure: Option<String>,
}

/// Times the steps of one run.
pub(in crate::serve) struct StepClock<'a> {
    steps: &'a [Arc<StepMetrics>],
    next: usize,
    /// where they are wanted one by one
    pub(in crate::serve) traced: Option<Vec<StepTime>>,
}

impl<'a> StepClock<'a> {
    pub(in crate::serve) fn new(steps: &'a [Arc<StepMetrics>], traced: bool) -> Self {
        Self { steps, next: 0, traced: traced.then(Vec::new) }
    }

    fn note(&mut self, step: &PlannedStep, time: Duration, failure: Option<&StepFailure>) {
        if let Some(step) = self.steps.get(self.next) {
            step.time.observe(time);
        }
        self.next += 1;
        if let Some(traced) = &mut self.traced {
            let failure = failure.map(ToString::to_string);
            traced.push(StepTime { name: step.name.clone(), end: Instant::now(), time, failure });
        }
    }
}

impl Observer for StepClock<'_> {
    fn failed(&mut self, step: &PlannedStep, failure: &StepFailure, time: Duration, _: &Context) {
        self.note(step, time, Some(failure));
    }

    fn after(&mut self, step: &PlannedStep, time: Duration, _: &[Value], _: &Context) {
        self.note(step, time, None);
    }
}

/// The status of gRPC that says what one of HTTP does (gRPC's own table, and 413, 429, 499, 504).
pub(in crate::serve) fn grpc_code(status: StatusCode) -> u16 {
    match status.as_u16() {
        200..=299 => 0,
        404 => 5,
        400 | 405 | 406 | 415 | 422 => 3,
        401 => 16,
        403 => 7,
        408 | 504 => 4,
        413 | 429 => 8,
        499 => 1,
        501 => 12,
        503 => 14,
        _ => 13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_protocol_and_status() {
        let answers = Answers::default();
        for (protocol, status) in [
            (Protocol::Http, 200),
            (Protocol::Http, 200),
            (Protocol::Http, 418),
            (Protocol::OipHttp, 503),
            (Protocol::Grpc, 0),
            (Protocol::Grpc, 14),
            (Protocol::Grpc, 99),
        ] {
            answers.count(protocol, status);
        }
        let counts: Vec<_> =
            answers.counts().map(|(protocol, status, count)| (protocol.name(), status, count)).collect();
        let expected = [
            ("http", "200", 2),
            ("http", "400", 1),
            ("oip-http", "503", 1),
            ("grpc", "OK", 1),
            ("grpc", "UNAVAILABLE", 1),
            ("grpc", "UNAUTHENTICATED", 1),
        ];
        assert_eq!(counts, expected.map(|(protocol, status, count)| (protocol, status.to_owned(), count)));
        assert_eq!(answers.outcome(), (3, 4));
    }

    #[test]
    fn statuses_are_in_order_so_that_they_are_found() {
        assert!(STATUSES.is_sorted());
        for (index, (refused, _)) in Refused::ALL.iter().enumerate() {
            assert_eq!(*refused as usize, index);
        }
    }

    #[test]
    fn statuses_of_http_have_one_of_grpc() {
        let code = |status: u16| grpc_code(StatusCode::from_u16(status).unwrap_or_default());
        assert_eq!([200, 400, 404, 401, 403, 429, 503, 504, 500].map(code), [0, 3, 5, 16, 7, 8, 14, 4, 13]);
    }
}
