//! The memory budgets of request and response bodies: a limit for all, and a share of it for one key.

use std::sync::Arc;

use gpux_core::{BudgetExhausted, ElementType, Kind, MemoryBudget, MemoryPermit, PlanSignature, json_decoded_size};

use crate::engine::memory_charge::Charge;
use crate::engine::metrics::{Metrics, PipelineMetrics, RejectionReason};
use crate::engine::request_context::RequestContext;
use crate::engine::tenant::{LimitExceeded, Tenant};
use crate::{Rejection, ServeError, Settings};

/// The budget of the bodies of all requests, or of all responses.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    all: MemoryBudget,
    /// bytes that requests of one key may hold
    per_key: usize,
    /// counts rejections of requests without a pipeline
    none: Arc<PipelineMetrics>,
    /// the error if this many bytes are `needed` beyond the limit
    never_fits: fn(needed: usize, limit: usize) -> ServeError,
}

impl BodyBudget {
    /// The budget of request bodies.
    pub(crate) fn requests(settings: &Settings, metrics: &Metrics) -> Self {
        Self::new(settings, metrics, |needed, limit| ServeError::NeverFits { needed, limit })
    }

    /// The budget of responses.
    pub(crate) fn responses(settings: &Settings, metrics: &Metrics) -> Self {
        Self::new(settings, metrics, |needed, limit| ServeError::ResponseNeverFits { needed, limit })
    }

    fn new(settings: &Settings, metrics: &Metrics, never_fits: fn(usize, usize) -> ServeError) -> Self {
        let all = settings.body_memory;
        // Half of it leaves room for others, but one body must fit.
        let per_key = (all / 2).max(settings.max_body);
        Self(Arc::new(Limits { all: MemoryBudget::new(all), per_key, none: metrics.none().clone(), never_fits }))
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
    /// The budget of a request that already holds this many bytes.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        Self { held: bytes, ..self }
    }

    fn tenant(&self) -> Option<&Tenant> {
        self.context.as_ref().and_then(|context| context.tenant())
    }

    /// The budget of the request's key.
    fn key_budget(&self) -> Option<&MemoryBudget> {
        self.tenant().map(|tenant| tenant.memory(self.limits.per_key))
    }

    /// The most bytes that one request may hold.
    pub(crate) fn limit(&self) -> usize {
        let all = self.limits.all.limit();
        if self.tenant().is_some() { self.limits.per_key.min(all) } else { all }
    }

    /// Fails if the request can never hold this many bytes more.
    fn check_limit(&self, bytes: usize) -> Result<(), ServeError> {
        let (limit, needed) = (self.limit(), self.held.saturating_add(bytes));
        if needed > limit { Err((self.limits.never_fits)(needed, limit)) } else { Ok(()) }
    }

    /// Fails if this many bytes are not free now. Reserves nothing, so that concurrent checks do not reject each other.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), ServeError> {
        self.check_limit(bytes)?;
        let key = self.key_budget().map_or(Ok(()), |key| key.check(bytes));
        key.map_err(|BudgetExhausted| self.key_exhausted())?;
        self.limits.all.check(bytes).map_err(|BudgetExhausted| self.exhausted())
    }

    /// Reserves bytes, or fails at once.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<MemoryPermit, ServeError> {
        self.check_limit(bytes)?;
        let key = self.key_budget().map(|key| key.reserve(bytes)).transpose();
        let key = key.map_err(|BudgetExhausted| self.key_exhausted())?;
        let permit = self.limits.all.reserve(bytes).map_err(|BudgetExhausted| self.exhausted())?;
        Ok(permit.with_nested(key))
    }

    /// Reserves memory for the tree that a JSON text is parsed into.
    pub(crate) fn reserve_tree(&self, json: &[u8]) -> Result<MemoryPermit, ServeError> {
        self.reserve(json_decoded_size::tree_bytes(json))
    }

    /// Reserves memory for tensors: of a text whose widest numbers take `widest` bytes, and of `raw` bytes, which are
    /// copied.
    pub(crate) fn reserve_tensors(&self, json: &[u8], widest: usize, raw: usize) -> Result<MemoryPermit, ServeError> {
        let text =
            if Charge::DecodedBody.applies_to(json.len()) { json_decoded_size::tensor_bytes(json, widest) } else { 0 };
        self.reserve(text.saturating_add(raw))
    }

    /// Reserves memory for requests of a pipeline: tensors where an input has one element type, trees for all others.
    pub(crate) fn reserve_requests(&self, json: &[u8], signature: &PlanSignature) -> Result<MemoryPermit, ServeError> {
        let element = |kind: &Kind| if let Kind::Tensor(kind) = kind { kind.element() } else { None };
        let elements = || signature.inputs().iter().map(|input| element(&input.port.kind));
        let widest = elements().flatten().filter_map(ElementType::size).max();
        let trees = if elements().any(|element| element.is_none()) { json_decoded_size::tree_bytes(json) } else { 0 };
        self.reserve(json_decoded_size::tensor_bytes(json, widest.unwrap_or(0)) + trees)
    }

    fn key_exhausted(&self) -> ServeError {
        let exceeded = LimitExceeded::Memory;
        self.count((&exceeded).into());
        exceeded.into()
    }

    fn exhausted(&self) -> ServeError {
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
    use crate::engine::tenant::{Role, TenantOptions};

    fn refused(reserve: Result<MemoryPermit, ServeError>) -> u16 {
        reserve.unwrap_err().status().as_u16()
    }

    /// The room that requests with a key of this name have.
    fn budgets(request_budget: &BodyBudget) -> impl Fn(&str) -> RequestBudget {
        let tenant = |name: &str| {
            let options = TenantOptions {
                name: name.to_owned(),
                pipelines: None,
                priority: Priority::Normal,
                role: Role::User,
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
    fn rejects_bodies_that_never_fit() {
        let settings = Settings { max_body: 1 << 20, body_memory: 2 << 20, ..Settings::default() };
        let request_budget = BodyBudget::requests(&settings, &Metrics::new());
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
        let request_budget = BodyBudget::requests(&settings, &Metrics::new());
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
        let request_budget = BodyBudget::requests(
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
        // Requests without a key have no limit of their own.
        assert_eq!(refused(request_budget.for_request().reserve(1)), 503);
        drop((other, again));
        request_budget.for_request().reserve(10 << 20).unwrap();
        // A key may always have one body.
        let small = BodyBudget::requests(
            &Settings { max_body: 1 << 20, body_memory: 1 << 20, ..Settings::default() },
            &Metrics::new(),
        );
        assert_eq!(small.0.per_key, 1 << 20);
    }
}
