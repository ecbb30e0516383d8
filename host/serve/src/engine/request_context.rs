//! Context of a request: identity, limits and accounting.
//!
//! The edge creates the context of every request. The repository and the execution check it, so that no protocol can
//! bypass the checks.

use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::error::ServeError;
use super::metrics::{Metrics, PipelineMetrics, RejectionReason};
use super::request_options::Priority;
use super::scheduler::Client;
use super::step_spans::StepSpans;
use super::tenant::{ConcurrencySlots, LimitExceeded, Tenant, TenantPermit};
use gpux_core::{MemoryPermit, TextCounts};

tokio::task_local! {
    static CURRENT: Arc<RequestContext>;
}

/// Context of one request.
#[derive(Debug)]
pub(crate) struct RequestContext {
    id: Box<str>,
    /// the client, for fair shares of a pipeline's time
    client: Client,
    /// the path under which proxies show the server to its client
    prefix: Option<String>,
    /// the permit of its tenant; `None` if no key is needed. Held also by a run that continues after its client has
    /// gone.
    permit: Option<TenantPermit>,
    /// slots for its executions, if its key limits concurrency
    slots: Option<ConcurrencySlots>,
    /// spans of its steps, if it is traced
    step_spans: Option<StepSpans>,
    pipeline: OnceLock<Arc<PipelineMetrics>>,
    /// whether its first item has arrived
    begun: AtomicBool,
    queued_nanos: AtomicU64,
    truncated: AtomicU32,
    tokens: AtomicU64,
    tokenization_nanos: AtomicU64,
    run_nanos: AtomicU64,
    /// the memory permit of its response
    response_permit: Mutex<Option<MemoryPermit>>,
}

impl RequestContext {
    pub(crate) fn new(id: &str, permit: Option<TenantPermit>, step_spans: Option<StepSpans>) -> Self {
        let slots = permit.as_ref().and_then(|permit| permit.tenant().slots());
        // A reload may create a new tenant, which starts without charges.
        let client = permit.as_ref().map(|permit| Client::Key(std::ptr::from_ref(permit.tenant()).addr()));
        Self {
            id: id.into(),
            client: client.unwrap_or_default(),
            prefix: None,
            permit,
            slots,
            step_spans,
            pipeline: OnceLock::new(),
            begun: AtomicBool::new(false),
            queued_nanos: AtomicU64::new(0),
            truncated: AtomicU32::new(0),
            tokens: AtomicU64::new(0),
            tokenization_nanos: AtomicU64::new(0),
            run_nanos: AtomicU64::new(0),
            response_permit: Mutex::default(),
        }
    }

    /// Identifies the client by this address if the request has no key.
    pub(crate) fn sent_from(self, address: Option<IpAddr>) -> Self {
        let client = match self.client {
            Client::Unknown => address.map_or(Client::Unknown, Client::from),
            known => known,
        };
        Self { client, ..self }
    }

    /// Notes the path under which proxies show the server to its client.
    pub(crate) fn shown_under(self, prefix: Option<String>) -> Self {
        Self { prefix, ..self }
    }

    /// The path under which proxies show the server to its client, if they name one.
    pub(crate) fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// The context of the request that the calling task executes.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Runs a future in this context.
    pub(crate) fn scope<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// Runs a closure in this context.
    pub(crate) fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// The request ID.
    pub(crate) const fn id(&self) -> &str {
        &self.id
    }

    /// The tenant of its key.
    pub(crate) fn tenant(&self) -> Option<&Tenant> {
        self.permit.as_ref().map(TenantPermit::tenant)
    }

    /// Whether the request of the calling task may use the pipeline. If keys are required (`guarded`), a request
    /// without a key may not.
    pub(crate) fn permits(guarded: bool, pipeline: &str) -> bool {
        !guarded
            || Self::current().is_some_and(|context| context.tenant().is_some_and(|tenant| tenant.can_use(pipeline)))
    }

    /// Records the pipeline of the request of the calling task.
    pub(crate) fn note_pipeline(pipeline: &Arc<PipelineMetrics>) {
        let _ = CURRENT.try_with(|context| context.set_pipeline(pipeline));
    }

    /// Counts an item of its list or stream. Each item after the first takes a token of its key. Fails if the key was
    /// revoked or has no token.
    pub(crate) fn admit_item(&self, metrics: &Metrics) -> Result<(), ServeError> {
        let again = self.begun.swap(true, Ordering::Relaxed);
        let Some(tenant) = self.tenant() else { return Ok(()) };
        if tenant.is_revoked() {
            return Err(ServeError::Unauthorized("the key is no longer what it was; send a new request".to_owned()));
        }
        let paid = if again { tenant.take_token() } else { Ok(()) };
        paid.map_err(|exceeded| {
            self.pipeline().unwrap_or_else(|| metrics.none()).note_rejection(RejectionReason::from(&exceeded));
            exceeded.into()
        })
    }

    /// Slots for its executions, if its key limits concurrency.
    pub(crate) const fn slots(&self) -> Option<&ConcurrencySlots> {
        self.slots.as_ref()
    }

    /// Records its pipeline.
    pub(crate) fn set_pipeline(&self, pipeline: &Arc<PipelineMetrics>) {
        let _ = self.pipeline.set(pipeline.clone());
    }

    /// Its pipeline, if it is known.
    pub(crate) fn pipeline(&self) -> Option<&Arc<PipelineMetrics>> {
        self.pipeline.get()
    }

    /// The granted priority when the request asks for `asked`.
    pub(crate) fn priority(&self, asked: Priority) -> Priority {
        self.tenant().map_or(asked, |tenant| tenant.priority(asked))
    }

    /// The client, for fair shares of a pipeline's time.
    pub(crate) const fn client(&self) -> Client {
        self.client
    }

    /// Keeps the permit of its response until that is sent. Lists and streams reserve theirs as they collect results.
    pub(crate) fn keep_response_permit(&self, permit: MemoryPermit) {
        if !self.begun.load(Ordering::Relaxed) {
            *self.response_permit() = Some(permit);
        }
    }

    /// Keeps the permit for the results of a list.
    pub(crate) fn keep_list_permit(&self, permit: MemoryPermit) {
        *self.response_permit() = Some(permit);
    }

    /// Takes the permit of its response, if there is one.
    pub(crate) fn take_response_permit(&self) -> Option<MemoryPermit> {
        self.response_permit().take()
    }

    fn response_permit(&self) -> MutexGuard<'_, Option<MemoryPermit>> {
        self.response_permit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_queued(&self, time: Duration) {
        self.queued_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Adds the time of a run, and that of its `tokenize` steps.
    pub(crate) fn note_run(&self, run: Duration, tokenization: Duration) {
        for (nanos, time) in [(&self.run_nanos, run), (&self.tokenization_nanos, tokenization)] {
            nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// The time of its `tokenize` steps, and of all.
    pub(crate) fn run_times(&self) -> (Duration, Duration) {
        let time = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        (time(&self.tokenization_nanos), time(&self.run_nanos))
    }

    /// Counts the texts that the steps of a run read.
    pub(crate) fn note_texts(&self, texts: TextCounts) {
        self.truncated.fetch_add(texts.truncated, Ordering::Relaxed);
        self.tokens.fetch_add(texts.tokens, Ordering::Relaxed);
    }

    /// Tokens that were made of its texts.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// Texts of which a step left out a part.
    pub(crate) fn truncated(&self) -> u32 {
        self.truncated.load(Ordering::Relaxed)
    }

    /// Time in queues.
    pub(crate) fn queued(&self) -> Duration {
        Duration::from_nanos(self.queued_nanos.load(Ordering::Relaxed))
    }

    /// Spans of its steps, if it is traced.
    pub(crate) const fn step_spans(&self) -> Option<&StepSpans> {
        self.step_spans.as_ref()
    }
}

impl From<&LimitExceeded> for RejectionReason {
    fn from(exceeded: &LimitExceeded) -> Self {
        match exceeded {
            LimitExceeded::Rate(_) => Self::Rate,
            LimitExceeded::Concurrency(_) => Self::Concurrency,
            LimitExceeded::Memory => Self::KeyMemory,
        }
    }
}
