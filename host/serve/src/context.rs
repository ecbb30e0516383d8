//! What is known of a request beside its content, wherever on its way it is.
//!
//! Every protocol's requests pass [`super::front`], which makes the context; whatever they call is
//! held against it at the one place that all protocols share (the repository, the turn), so that no
//! protocol can forget to ask.

use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::HeaderValue;

use super::call::Priority;
use super::error::ServeError;
use super::http::Share;
use super::metrics::{Metrics, PipelineMetrics, Refused};
use super::schedule::Client;
use super::served::Served;
use super::telemetry::StepSpans;
use super::tenants::{Exceeded, Permit, Slots, Tenant};

tokio::task_local! {
    static CURRENT: Arc<Context>;
}

/// What is known of a request beside its content.
#[derive(Debug)]
pub(super) struct Context {
    id: HeaderValue,
    /// who shares the pipelines' time with others
    client: Client,
    /// of whose key it carries; `None` where keys are not asked for. It is the run's that goes on without its
    /// client, too.
    permit: Option<Permit>,
    /// where its runs have their turns, if its key bounds how many it has at once
    slots: Option<Slots>,
    /// where its steps are told one by one, if somebody wants to see them
    step_spans: Option<StepSpans>,
    pipeline: OnceLock<Arc<PipelineMetrics>>,
    /// whether the first of its items has come
    begun: AtomicBool,
    queued_nanos: AtomicU64,
    /// the room that was taken for its answer before that was made
    answer: Mutex<Option<Share>>,
}

impl Context {
    pub(super) fn new(id: HeaderValue, permit: Option<Permit>, step_spans: Option<StepSpans>) -> Self {
        let slots = permit.as_ref().and_then(|permit| permit.tenant().slots());
        // Keys that are read again may be other tenants: what was charged to one is then forgotten.
        let client = permit.as_ref().map(|permit| Client::Key(std::ptr::from_ref(permit.tenant()).addr()));
        Self {
            id,
            client: client.unwrap_or_default(),
            permit,
            slots,
            step_spans,
            pipeline: OnceLock::new(),
            begun: AtomicBool::new(false),
            queued_nanos: AtomicU64::new(0),
            answer: Mutex::default(),
        }
    }

    /// The same of a request from this address, which counts where no key says whose it is.
    pub(super) fn sent_from(self, address: Option<IpAddr>) -> Self {
        let client = match self.client {
            Client::Unknown => address.map_or(Client::Unknown, Client::from),
            known => known,
        };
        Self { client, ..self }
    }

    /// That of the request that the calling task works for.
    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// `work` done for this request.
    pub(super) fn scope<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// The same for what does not wait.
    pub(super) fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// The request's name.
    pub(super) const fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Whose key it carries.
    pub(super) fn tenant(&self) -> Option<&Tenant> {
        self.permit.as_ref().map(Permit::tenant)
    }

    /// Whether the request that the calling task works for may use the pipeline. Where keys are asked
    /// for (`guarded`), nobody without one may.
    pub(super) fn permits(guarded: bool, pipeline: &str) -> bool {
        !guarded
            || Self::current().is_some_and(|context| context.tenant().is_some_and(|tenant| tenant.may_use(pipeline)))
    }

    /// The request that the calling task works for is about this pipeline.
    pub(super) fn note(served: &Served) {
        let _ = CURRENT.try_with(|context| context.about(served.metrics()));
    }

    /// An item of its list or its stream comes, whatever comes of it. Each after the first counts against its key,
    /// which must be what it was.
    pub(super) fn item(&self, metrics: &Metrics) -> Result<(), ServeError> {
        let again = self.begun.swap(true, Ordering::Relaxed);
        let Some(tenant) = self.tenant() else { return Ok(()) };
        if tenant.is_revoked() {
            return Err(ServeError::Unauthorized("the key is no longer what it was; send a new request".to_owned()));
        }
        let paid = if again { tenant.pay() } else { Ok(()) };
        paid.map_err(|exceeded| {
            self.pipeline().unwrap_or_else(|| metrics.none()).refused(Refused::from(&exceeded));
            exceeded.into()
        })
    }

    /// Where its runs have their turns, if its key bounds how many it has at once.
    pub(super) const fn slots(&self) -> Option<&Slots> {
        self.slots.as_ref()
    }

    /// The pipeline that it is about.
    pub(super) fn about(&self, pipeline: &Arc<PipelineMetrics>) {
        let _ = self.pipeline.set(pipeline.clone());
    }

    /// The pipeline that it is about, if it got that far.
    pub(super) fn pipeline(&self) -> Option<&Arc<PipelineMetrics>> {
        self.pipeline.get()
    }

    /// The priority that it gets when it asks for `asked`.
    pub(super) fn priority(&self, asked: Priority) -> Priority {
        self.tenant().map_or(asked, |tenant| tenant.priority(asked))
    }

    /// Who shares the pipelines' time with others.
    pub(super) const fn client(&self) -> Client {
        self.client
    }

    /// Keeps the room for its answer until that is sent. Lists and streams count theirs as they gather them.
    pub(super) fn keep_answer(&self, share: Share) {
        if !self.begun.load(Ordering::Relaxed) {
            *self.answer() = Some(share);
        }
    }

    /// The same of a list that is gathered.
    pub(super) fn keep_list(&self, share: Share) {
        *self.answer() = Some(share);
    }

    /// The room for its answer, if some was taken.
    pub(super) fn take_answer(&self) -> Option<Share> {
        self.answer().take()
    }

    fn answer(&self) -> MutexGuard<'_, Option<Share>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_queued(&self, time: Duration) {
        self.queued_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long it waited for its turns.
    pub(super) fn queued(&self) -> Duration {
        Duration::from_nanos(self.queued_nanos.load(Ordering::Relaxed))
    }

    /// Where its steps are told one by one, if somebody wants to see them.
    pub(super) const fn step_spans(&self) -> Option<&StepSpans> {
        self.step_spans.as_ref()
    }
}

impl From<&Exceeded> for Refused {
    fn from(exceeded: &Exceeded) -> Self {
        match exceeded {
            Exceeded::Rate(_) => Self::Rate,
            Exceeded::Concurrency(_) => Self::Concurrency,
            Exceeded::Memory => Self::KeyMemory,
        }
    }
}
