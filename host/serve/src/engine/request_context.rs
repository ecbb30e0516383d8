//! What is known of a request beside its content, wherever on its way it is.
//!
//! Every protocol's requests pass [`crate::edge::service`], which makes the context; whatever they call is
//! held against it at the one place that all protocols share (the repository, the turn), so that no
//! protocol can forget to ask.

use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::error::ServeError;
use super::memory_permit::Share;
use super::metrics::{Metrics, PipelineMetrics, Refused};
use super::request_options::Priority;
use super::scheduler::Client;
use super::step_spans::StepSpans;
use super::tenant::{Exceeded, Permit, Slots, Tenant};

tokio::task_local! {
    static CURRENT: Arc<Context>;
}

/// What is known of a request beside its content.
#[derive(Debug)]
pub(crate) struct Context {
    id: Box<str>,
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
    pub(crate) fn new(id: &str, permit: Option<Permit>, step_spans: Option<StepSpans>) -> Self {
        let slots = permit.as_ref().and_then(|permit| permit.tenant().slots());
        // Keys that are read again may be other tenants: what was charged to one is then forgotten.
        let client = permit.as_ref().map(|permit| Client::Key(std::ptr::from_ref(permit.tenant()).addr()));
        Self {
            id: id.into(),
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
    pub(crate) fn sent_from(self, address: Option<IpAddr>) -> Self {
        let client = match self.client {
            Client::Unknown => address.map_or(Client::Unknown, Client::from),
            known => known,
        };
        Self { client, ..self }
    }

    /// That of the request that the calling task works for.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// `work` done for this request.
    pub(crate) fn scope<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// The same for what does not wait.
    pub(crate) fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// The request's name.
    pub(crate) const fn id(&self) -> &str {
        &self.id
    }

    /// Whose key it carries.
    pub(crate) fn tenant(&self) -> Option<&Tenant> {
        self.permit.as_ref().map(Permit::tenant)
    }

    /// Whether the request that the calling task works for may use the pipeline. Where keys are asked
    /// for (`guarded`), nobody without one may.
    pub(crate) fn permits(guarded: bool, pipeline: &str) -> bool {
        !guarded
            || Self::current().is_some_and(|context| context.tenant().is_some_and(|tenant| tenant.may_use(pipeline)))
    }

    /// The request that the calling task works for is about this pipeline.
    pub(crate) fn note(pipeline: &Arc<PipelineMetrics>) {
        let _ = CURRENT.try_with(|context| context.about(pipeline));
    }

    /// An item of its list or its stream comes, whatever comes of it. Each after the first counts against its key,
    /// which must be what it was.
    pub(crate) fn item(&self, metrics: &Metrics) -> Result<(), ServeError> {
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
    pub(crate) const fn slots(&self) -> Option<&Slots> {
        self.slots.as_ref()
    }

    /// The pipeline that it is about.
    pub(crate) fn about(&self, pipeline: &Arc<PipelineMetrics>) {
        let _ = self.pipeline.set(pipeline.clone());
    }

    /// The pipeline that it is about, if it got that far.
    pub(crate) fn pipeline(&self) -> Option<&Arc<PipelineMetrics>> {
        self.pipeline.get()
    }

    /// The priority that it gets when it asks for `asked`.
    pub(crate) fn priority(&self, asked: Priority) -> Priority {
        self.tenant().map_or(asked, |tenant| tenant.priority(asked))
    }

    /// Who shares the pipelines' time with others.
    pub(crate) const fn client(&self) -> Client {
        self.client
    }

    /// Keeps the room for its answer until that is sent. Lists and streams count theirs as they gather them.
    pub(crate) fn keep_answer(&self, share: Share) {
        if !self.begun.load(Ordering::Relaxed) {
            *self.answer() = Some(share);
        }
    }

    /// The same of a list that is gathered.
    pub(crate) fn keep_list(&self, share: Share) {
        *self.answer() = Some(share);
    }

    /// The room for its answer, if some was taken.
    pub(crate) fn take_answer(&self) -> Option<Share> {
        self.answer().take()
    }

    fn answer(&self) -> MutexGuard<'_, Option<Share>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_queued(&self, time: Duration) {
        self.queued_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long it waited for its turns.
    pub(crate) fn queued(&self) -> Duration {
        Duration::from_nanos(self.queued_nanos.load(Ordering::Relaxed))
    }

    /// Where its steps are told one by one, if somebody wants to see them.
    pub(crate) const fn step_spans(&self) -> Option<&StepSpans> {
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
