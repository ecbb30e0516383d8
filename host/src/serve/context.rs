//! What is known of a request beside its content, wherever on its way it is.
//!
//! Every protocol's requests pass [`super::front`], which makes the context; whatever they call is
//! held against it at the one place that all protocols share (the repository, the turn), so that no
//! protocol can forget to ask.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::HeaderValue;

use super::call::Priority;
use super::error::ServeError;
use super::metrics::{PipelineMetrics, Refused, StepTime};
use super::served::Served;
use super::tenants::{Exceeded, Slots, Tenant};

tokio::task_local! {
    static CURRENT: Arc<Context>;
}

/// What is known of a request beside its content.
#[derive(Debug)]
pub(super) struct Context {
    id: HeaderValue,
    /// whose key it carries; `None` where keys are not asked for
    tenant: Option<Arc<Tenant>>,
    /// where its runs have their turns, if its key bounds how many it has at once
    slots: Option<Slots>,
    /// whether somebody wants to see its steps one by one
    traced: bool,
    pipeline: OnceLock<Arc<PipelineMetrics>>,
    /// whether what its key allows has been counted for its first run
    begun: AtomicBool,
    queued_nanos: AtomicU64,
    steps: Mutex<Vec<StepTime>>,
}

impl Context {
    pub(super) fn new(id: HeaderValue, tenant: Option<Arc<Tenant>>, traced: bool) -> Self {
        let slots = tenant.as_deref().and_then(Tenant::slots);
        Self {
            id,
            tenant,
            slots,
            traced,
            pipeline: OnceLock::new(),
            begun: AtomicBool::new(false),
            queued_nanos: AtomicU64::new(0),
            steps: Mutex::default(),
        }
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
        self.tenant.as_deref()
    }

    /// Whether the request that the calling task works for may use the pipeline. Where keys are asked
    /// for (`guarded`), nobody without one may.
    pub(super) fn permits(guarded: bool, pipeline: &str) -> bool {
        !guarded
            || Self::current()
                .is_some_and(|context| context.tenant.as_ref().is_some_and(|tenant| tenant.may_use(pipeline)))
    }

    /// The request that the calling task works for is about this pipeline.
    pub(super) fn note(served: &Served) {
        let _ = CURRENT.try_with(|context| context.about(served.metrics()));
    }

    /// A run of the pipeline begins. Each after the first of a request counts against its key.
    pub(super) fn enter(&self, served: &Served) -> Result<(), ServeError> {
        self.about(served.metrics());
        let again = self.begun.swap(true, Ordering::Relaxed);
        match &self.tenant {
            Some(tenant) if again => tenant.pay().map_err(|exceeded| {
                served.metrics().refused(Refused::from(&exceeded));
                exceeded.into()
            }),
            _ => Ok(()),
        }
    }

    /// Where its runs have their turns, if its key bounds how many it has at once.
    pub(super) const fn slots(&self) -> Option<&Slots> {
        self.slots.as_ref()
    }

    /// The run that began has only found a list, whose items are runs of their own.
    pub(super) fn found_a_list(&self) {
        self.begun.store(false, Ordering::Relaxed);
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
        self.tenant.as_ref().map_or(asked, |tenant| tenant.priority(asked))
    }

    pub(super) fn note_queued(&self, time: Duration) {
        self.queued_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long it waited for its turns.
    pub(super) fn queued(&self) -> Duration {
        Duration::from_nanos(self.queued_nanos.load(Ordering::Relaxed))
    }

    pub(super) const fn is_traced(&self) -> bool {
        self.traced
    }

    pub(super) fn trace_steps(&self, steps: Vec<StepTime>) {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).extend(steps);
    }

    /// The steps that ran for it.
    pub(super) fn take_steps(&self) -> Vec<StepTime> {
        std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner))
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
