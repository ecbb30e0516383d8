//! Memory budget of request or response bodies: a limit for all, and a share of it for one key.

use super::memory_permit::{GRAIN, MemoryPermit};
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::engine::metrics::{Metrics, PipelineMetrics, RejectionReason};
use crate::engine::request_context::RequestContext;
use crate::engine::tenant::{LimitExceeded, Tenant, TenantMemory};
use crate::{Rejection, ServeError, Settings};

/// Limit of the memory that the bodies of all requests hold together, from the first byte that is read to the end of
/// the execution.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    all: Arc<Semaphore>,
    /// permits of the semaphore
    limit: usize,
    /// permits that requests of one key may hold
    per_key: usize,
    /// counts rejections of requests without a pipeline
    none: Arc<PipelineMetrics>,
}

impl MemoryBudget {
    pub(crate) fn new(settings: &Settings, metrics: &Metrics) -> Self {
        let all = (settings.body_memory / GRAIN).clamp(1, Semaphore::MAX_PERMITS);
        // Half of it leaves room for others, but one body must find room.
        let per_key = (all / 2).max(settings.max_body.div_ceil(GRAIN));
        let semaphore = Arc::new(Semaphore::new(all));
        Self(Arc::new(Limits { all: semaphore, limit: all, per_key, none: metrics.none().clone() }))
    }

    /// The budget of the request that the calling task executes.
    pub(crate) fn for_request(&self) -> RequestBudget {
        self.for_context(RequestContext::current())
    }

    /// The budget of the request of this context.
    pub(crate) fn for_context(&self, context: Option<Arc<RequestContext>>) -> RequestBudget {
        RequestBudget { limits: self.0.clone(), context, held: 0 }
    }
}

/// The budget as one request sees it.
#[derive(Clone)]
pub(crate) struct RequestBudget {
    limits: Arc<Limits>,
    context: Option<Arc<RequestContext>>,
    /// bytes that the request already holds
    held: usize,
}

impl RequestBudget {
    /// The same for a request that already holds this many bytes.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        Self { held: bytes, ..self }
    }

    fn tenant(&self) -> Option<&Tenant> {
        self.context.as_ref().and_then(|context| context.tenant())
    }

    /// The most bytes that one request may hold.
    pub(crate) fn limit(&self) -> usize {
        let limit =
            if self.tenant().is_some() { self.limits.per_key.min(self.limits.limit) } else { self.limits.limit };
        limit * GRAIN
    }

    /// Permits for this many bytes. Fails if the request can never hold them.
    fn permits(&self, bytes: usize) -> Result<usize, ServeError> {
        let (limit, permits) = (self.limit(), bytes.div_ceil(GRAIN));
        let all = permits.saturating_add(self.held.div_ceil(GRAIN));
        if all > limit / GRAIN {
            let needed = self.held.saturating_add(bytes);
            return Err(ServeError::NeverFits { needed, limit });
        }
        Ok(permits)
    }

    /// Fails if this many bytes are not free now. Reserves nothing, so that concurrent checks do not reject each other.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), ServeError> {
        let permits = self.permits(bytes)?;
        let fits = self.tenant().map(|tenant| tenant.fits(permits, self.limits.per_key)).transpose();
        fits.map_err(|key_limit_error| self.key_limit_error(&key_limit_error))?;
        if permits > self.limits.all.available_permits() { Err(self.full_error()) } else { Ok(()) }
    }

    /// Reserves bytes, or fails at once.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<MemoryPermit, ServeError> {
        let permits = self.permits(bytes)?;
        let per_key = self.reserve_for_tenant(permits)?;
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let permit = self.limits.all.clone().try_acquire_many_owned(permits).map_err(|_| self.full_error())?;
        Ok(MemoryPermit::new(permit, per_key))
    }

    fn reserve_for_tenant(&self, permits: usize) -> Result<Option<TenantMemory>, ServeError> {
        let hold = self.tenant().map(|tenant| tenant.reserve_memory(permits, self.limits.per_key)).transpose();
        hold.map_err(|key_limit_error| self.key_limit_error(&key_limit_error))
    }

    fn key_limit_error(&self, key_limit_error: &LimitExceeded) -> ServeError {
        self.count(key_limit_error.into());
        key_limit_error.clone().into()
    }

    fn full_error(&self) -> ServeError {
        let rejection = Rejection::Memory;
        self.count((&rejection).into());
        rejection.into()
    }

    fn count(&self, reason: RejectionReason) {
        if let Some(context) = &self.context {
            context.pipeline().unwrap_or(&self.limits.none).note_rejection(reason);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::Priority;
    use crate::engine::tenant::TenantOptions;

    fn refused(reserve: Result<MemoryPermit, ServeError>) -> u16 {
        reserve.unwrap_err().status().as_u16()
    }

    /// The room that requests with a key of this name have.
    fn budgets(request_budget: &MemoryBudget) -> impl Fn(&str) -> RequestBudget {
        let tenant = |name: &str| {
            let options = TenantOptions {
                name: name.to_owned(),
                pipelines: None,
                priority: Priority::Normal,
                admin: false,
                rate: None,
                concurrency: None,
            };
            Arc::new(Tenant::new(options, None))
        };
        let tenants = [tenant("alice"), tenant("bob")];
        move |name: &str| {
            let tenant = tenants.iter().find(|tenant| tenant.name() == name).unwrap();
            Arc::new(RequestContext::new("7", Some(tenant.begin_request().unwrap()), None))
                .within(|| request_budget.for_request())
        }
    }

    #[test]
    fn concurrent_checks_do_not_reject_each_other() {
        let request_budget = MemoryBudget::new(
            &Settings { max_body: 1 << 20, body_memory: 2 << 20, ..Settings::default() },
            &Metrics::new(),
        );
        let budget = budgets(&request_budget)("alice");
        let begin = std::sync::Barrier::new(2);
        let ask = || {
            begin.wait();
            (0..200_000).filter(|_| budget.check(1 << 20).is_err()).count()
        };
        let others = std::thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(|one| one.join().unwrap()));
        assert_eq!(others, [0, 0]);
        assert_eq!(refused(budget.reserve((1 << 20) + 1)), 413);
    }

    #[test]
    fn rejects_bodies_that_never_fit() {
        let settings = Settings { max_body: 1 << 20, body_memory: 2 << 20, ..Settings::default() };
        let request_budget = MemoryBudget::new(&settings, &Metrics::new());
        let held = request_budget.for_request().reserve(1 << 20).unwrap();
        assert_eq!(refused(request_budget.for_request().reserve(2 << 20)), 503, "it would fit alone");
        assert_eq!(refused(request_budget.for_request().reserve((2 << 20) + 1)), 413);
        assert_eq!(
            refused(request_budget.for_request().holding(1 << 20).reserve((1 << 20) + 1)),
            413,
            "with what it holds"
        );
        assert_eq!(request_budget.for_request().check((2 << 20) + 1).unwrap_err().status(), 413);
        let budget = budgets(&request_budget)("alice");
        assert_eq!(refused(budget.reserve((1 << 20) + 1)), 413, "a key has half");
        drop(held);
        request_budget.for_request().reserve(2 << 20).unwrap();
    }

    #[test]
    fn shrinking_a_permit_releases_memory() {
        let settings = Settings { max_body: 1 << 20, body_memory: 4 << 20, ..Settings::default() };
        let request_budget = MemoryBudget::new(&settings, &Metrics::new());
        let budget = budgets(&request_budget)("alice");
        let mut reserve = budget.reserve(2 << 20).unwrap();
        assert_eq!(refused(budget.reserve(1)), 429);
        reserve.shrink(1 << 20);
        assert_eq!(reserve.bytes(), 1 << 20);
        reserve.shrink(2 << 20);
        assert_eq!(reserve.bytes(), 1 << 20, "it does not grow");
        let other = budget.reserve(1 << 20).unwrap();
        drop((reserve, other));
        request_budget.for_request().reserve(4 << 20).unwrap();
        budget.reserve(2 << 20).unwrap();
    }

    #[test]
    fn one_key_leaves_memory_for_others() {
        let request_budget = MemoryBudget::new(
            &Settings { max_body: 1 << 20, body_memory: 10 << 20, ..Settings::default() },
            &Metrics::new(),
        );
        let budget = budgets(&request_budget);
        let mut first = budget("alice").reserve(3 << 20).unwrap();
        first.merge(budget("alice").reserve(1 << 20).unwrap());
        let second = budget("alice").reserve(1 << 20).unwrap();
        assert_eq!(refused(budget("alice").reserve(1)), 429);
        budget("alice").check(1).unwrap_err();
        let other = budget("bob").reserve(5 << 20).unwrap();
        drop((first, second));
        let again = budget("alice").reserve(5 << 20).unwrap();
        // Requests without a key are bound by the common limit alone.
        assert_eq!(refused(request_budget.for_request().reserve(1)), 503);
        drop((other, again));
        request_budget.for_request().reserve(10 << 20).unwrap();
        // A key may always have one body.
        let small = MemoryBudget::new(
            &Settings { max_body: 1 << 20, body_memory: 1 << 20, ..Settings::default() },
            &Metrics::new(),
        );
        assert_eq!(small.0.per_key, 1 << 10);
    }
}
