//! Tenants: the rights and limits of an API key.

pub(crate) mod known_addresses;
pub(crate) mod token_bucket;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gpux_core::MemoryBudget;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use self::known_addresses::KnownAddresses;
use self::token_bucket::TokenBucket;
use super::error::ServeError;
use super::request_options::Priority;

/// The holder of an API key, with its rights and limits.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: String,
    /// `None`: all
    pipelines: Option<BTreeSet<String>>,
    /// the highest priority of its requests
    priority: Priority,
    role: Role,
    usage: Usage,
    /// whether a reload has changed or removed its key
    revoked: AtomicBool,
}

/// What a tenant may do, beside the pipelines that it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// sends requests to its pipelines
    #[default]
    User,
    /// also loads and unloads pipelines, and reads the metrics of all
    Admin,
    /// reads the metrics of all pipelines, and nothing else
    Metrics,
}

/// The rights and limits of a tenant.
#[derive(Debug)]
pub(crate) struct TenantOptions {
    /// for logs
    pub(crate) name: String,
    /// `None`: all
    pub(crate) pipelines: Option<BTreeSet<String>>,
    /// the highest priority of its requests
    pub(crate) priority: Priority,
    pub(crate) role: Role,
    /// requests per second, and the size of a burst
    pub(crate) rate: Option<(f64, f64)>,
    /// concurrent requests
    pub(crate) concurrency: Option<usize>,
}

/// Usage of a tenant. Each part survives reloads that leave its limit unchanged.
#[derive(Clone, Debug, Default)]
struct Usage {
    bucket: Option<Arc<TokenBucket>>,
    at_once: Option<ConcurrencyLimit>,
    /// memory of the bodies of its requests
    memory: Arc<OnceLock<MemoryBudget>>,
    /// from where its key was used
    addresses: Arc<KnownAddresses>,
}

/// The limit that a request exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// more requests per second than its key allows; the time until the next token
    Rate(Duration),
    /// more concurrent requests than its key allows; the limit
    Concurrency(usize),
    /// more memory for bodies than one key may hold
    Memory,
}

/// A limit of concurrent requests, with its free slots.
#[derive(Clone, Debug)]
struct ConcurrencyLimit {
    most: usize,
    left: Arc<Semaphore>,
}

/// A tenant's slot for a request, held until the last task of the request ends.
#[derive(Debug)]
pub(crate) struct TenantPermit {
    tenant: Arc<Tenant>,
    _one: Option<OwnedSemaphorePermit>,
}

impl TenantPermit {
    /// The tenant of the request.
    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}

/// The slots in which the items of one request run: the slot of its permit, and the free slots of its tenant.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencySlots {
    own: Arc<Semaphore>,
    left: Arc<Semaphore>,
}

impl ConcurrencySlots {
    /// The request's own slot, if it is free. No other request waits for it.
    pub(crate) fn own(&self) -> Option<OwnedSemaphorePermit> {
        self.own.clone().try_acquire_owned().ok()
    }

    /// Waits for a slot, which is free again when the permit is dropped.
    pub(crate) async fn one(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        tokio::select! {
            biased;
            own = self.own.clone().acquire_owned() => own,
            other = self.left.clone().acquire_owned() => other,
        }
    }
}

impl Tenant {
    /// A tenant with these rights. It takes over the usage of `before` where the limit is the same.
    pub(crate) fn new(options: TenantOptions, before: Option<&Self>) -> Self {
        let TenantOptions { name, pipelines, priority, role, rate, concurrency } = options;
        let Usage { bucket, at_once, memory, addresses } =
            before.map(|before| before.usage.clone()).unwrap_or_default();
        let bucket = bucket.filter(|bucket| Some((bucket.rate, bucket.burst)) == rate);
        let at_once = at_once.filter(|at_once| Some(at_once.most) == concurrency);
        let usage = Usage {
            bucket: bucket.or_else(|| rate.map(|(rate, burst)| Arc::new(TokenBucket::new(rate, burst)))),
            at_once: at_once
                .or_else(|| concurrency.map(|most| ConcurrencyLimit { most, left: Arc::new(Semaphore::new(most)) })),
            memory,
            addresses,
        };
        Self { name, pipelines, priority, role, usage, revoked: AtomicBool::new(false) }
    }

    /// Its name, for logs.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What it may do.
    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    /// Whether it may use the pipeline of this name.
    pub(crate) fn can_use(&self, pipeline: &str) -> bool {
        self.role != Role::Metrics && self.pipelines.as_ref().is_none_or(|pipelines| pipelines.contains(pipeline))
    }

    /// The granted priority when a request asks for `asked`.
    pub(crate) fn priority(&self, asked: Priority) -> Priority {
        asked.min(self.priority)
    }

    /// Starts a request: takes a slot and a token, or fails at once.
    pub(crate) fn begin_request(self: &Arc<Self>) -> Result<TenantPermit, LimitExceeded> {
        let one = |at_once: &ConcurrencyLimit| {
            at_once.left.clone().try_acquire_owned().map_err(|_| LimitExceeded::Concurrency(at_once.most))
        };
        let permit = TenantPermit { tenant: self.clone(), _one: self.usage.at_once.as_ref().map(one).transpose()? };
        self.take_token().map(|()| permit)
    }

    /// Records that its key was used from this address.
    pub(crate) fn note_use_from(&self, address: IpAddr) {
        self.usage.addresses.add(address);
    }

    /// Whether its key was used from this address and the address is still remembered.
    pub(crate) fn was_used_from(&self, address: IpAddr) -> bool {
        self.usage.addresses.has(address)
    }

    /// Whether a reload has changed or removed its key.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    /// Marks its key as changed or removed by a reload, or as valid again.
    pub(crate) fn set_revoked(&self, revoked: bool) {
        self.revoked.store(revoked, Ordering::Relaxed);
    }

    /// Whether both have the same name, rights and limits.
    pub(crate) fn allows_the_same_as(&self, other: &Self) -> bool {
        let limits = |tenant: &Self| {
            let Usage { bucket, at_once, .. } = &tenant.usage;
            (bucket.as_ref().map(Arc::as_ptr), at_once.as_ref().map(|at_once| Arc::as_ptr(&at_once.left)))
        };
        let who = |tenant: &Self| (tenant.name.clone(), tenant.pipelines.clone(), tenant.priority, tenant.role);
        who(self) == who(other) && limits(self) == limits(other)
    }

    /// Slots for the items of a request that has its permit; `None` if its concurrency is not limited.
    pub(crate) fn slots(&self) -> Option<ConcurrencySlots> {
        let at_once = self.usage.at_once.as_ref()?;
        Some(ConcurrencySlots { own: Arc::new(Semaphore::new(1)), left: at_once.left.clone() })
    }

    #[cfg(test)]
    pub(crate) fn take_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.usage.at_once.as_ref().and_then(|at_once| at_once.left.clone().try_acquire_owned().ok())
    }

    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> Option<usize> {
        self.usage.at_once.as_ref().map(|at_once| at_once.left.available_permits())
    }

    /// The budget of the bodies of its requests: `limit` bytes, whatever later calls say.
    pub(crate) fn memory(&self, limit: usize) -> &MemoryBudget {
        self.usage.memory.get_or_init(|| MemoryBudget::new(limit))
    }

    /// Takes a token for a further item of a list or stream: the rate counts items.
    pub(crate) fn take_token(&self) -> Result<(), LimitExceeded> {
        match &self.usage.bucket {
            Some(bucket) => bucket.take(Instant::now()).map_err(LimitExceeded::Rate),
            None => Ok(()),
        }
    }
}

impl From<LimitExceeded> for ServeError {
    fn from(exceeded: LimitExceeded) -> Self {
        match exceeded {
            LimitExceeded::Rate(retry_after) => Self::TooMany {
                message: "the key has had the requests that it may have in a second".to_owned(),
                retry_after,
            },
            LimitExceeded::Concurrency(most) => Self::TooMany {
                message: format!("the key has {most} requests under way, which is as many as it may"),
                retry_after: Duration::from_secs(1),
            },
            LimitExceeded::Memory => Self::TooMany {
                message: "the bodies of the key's requests hold as much as those of one key may".to_owned(),
                retry_after: Duration::from_secs(1),
            },
        }
    }
}
