//! Tenants: the rights and limits of an API key.

pub(crate) mod known_addresses;
pub(crate) mod token_bucket;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use self::known_addresses::KnownAddresses;
use self::token_bucket::TokenBucket;
use super::error::ServeError;
use super::request_options::Priority;

/// Who has a key, and what it allows.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: String,
    /// `None`: all
    pipelines: Option<BTreeSet<String>>,
    /// the most urgent that its requests may be
    priority: Priority,
    /// whether it may load and unload pipelines, and see the metrics of all
    admin: bool,
    use_: Use,
    /// whether the file says something else of its key by now
    revoked: AtomicBool,
}

/// The rights and limits of a tenant.
#[derive(Debug)]
pub(crate) struct TenantOptions {
    /// for logs
    pub(crate) name: String,
    /// `None`: all
    pub(crate) pipelines: Option<BTreeSet<String>>,
    /// the most urgent that its requests may be
    pub(crate) priority: Priority,
    /// whether it may load and unload pipelines, and see the metrics of all
    pub(crate) admin: bool,
    /// requests per second, and the size of a burst
    pub(crate) rate: Option<(f64, f64)>,
    /// requests under way at once
    pub(crate) concurrency: Option<usize>,
}

/// What a tenant has had, through all reloads of the file that leave the limit as it is.
#[derive(Clone, Debug, Default)]
struct Use {
    bucket: Option<Arc<TokenBucket>>,
    at_once: Option<AtOnce>,
    /// of the room for bodies
    holds: Arc<AtomicUsize>,
    /// from where its key was used
    addresses: Arc<KnownAddresses>,
}

/// Why a request of a tenant does not run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// more requests a second than its key allows
    Rate(Duration),
    /// more at once than its key allows
    Concurrency(usize),
    /// more room for bodies than one key may have
    Memory,
}

/// How many requests of a tenant may be under way, and what is left of that.
#[derive(Clone, Debug)]
struct AtOnce {
    most: usize,
    left: Arc<Semaphore>,
}

/// A request of a tenant that is under way, for as long as anything works for it.
#[derive(Debug)]
pub(crate) struct Permit {
    tenant: Arc<Tenant>,
    _one: Option<OwnedSemaphorePermit>,
}

impl Permit {
    /// Whose request it is.
    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}

/// Where the items of one request have their turns: one that its permit gives, and those that are left of its
/// tenant's.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    own: Arc<Semaphore>,
    left: Arc<Semaphore>,
}

impl Slots {
    /// The request's own, if it is free: nobody else waits for that.
    pub(crate) fn own(&self) -> Option<OwnedSemaphorePermit> {
        self.own.clone().try_acquire_owned().ok()
    }

    /// Waits for one, which is free again when what this gives is dropped.
    pub(crate) async fn one(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        tokio::select! {
            biased;
            own = self.own.clone().acquire_owned() => own,
            other = self.left.clone().acquire_owned() => other,
        }
    }
}

/// A part of the room for bodies that a tenant's requests hold.
#[derive(Debug)]
pub(crate) struct Hold(Arc<AtomicUsize>, usize);

impl Hold {
    /// Adds another one of the same tenant.
    pub(crate) fn merge(&mut self, mut more: Self) {
        self.1 += std::mem::take(&mut more.1);
    }

    /// Gives back so much of it.
    pub(crate) fn shrink(&mut self, less: usize) {
        let less = less.min(self.1);
        self.1 -= less;
        self.0.fetch_sub(less, Ordering::AcqRel);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::AcqRel);
    }
}

impl Tenant {
    /// A tenant with these rights. What it has used so far is that of `before`, where the limit is the same.
    pub(crate) fn new(options: TenantOptions, before: Option<&Self>) -> Self {
        let TenantOptions { name, pipelines, priority, admin, rate, concurrency } = options;
        let Use { bucket, at_once, holds, addresses } = before.map(|before| before.use_.clone()).unwrap_or_default();
        let bucket = bucket.filter(|bucket| Some((bucket.rate, bucket.burst)) == rate);
        let at_once = at_once.filter(|at_once| Some(at_once.most) == concurrency);
        let use_ = Use {
            bucket: bucket.or_else(|| rate.map(|(rate, burst)| Arc::new(TokenBucket::new(rate, burst)))),
            at_once: at_once.or_else(|| concurrency.map(|most| AtOnce { most, left: Arc::new(Semaphore::new(most)) })),
            holds,
            addresses,
        };
        Self { name, pipelines, priority, admin, use_, revoked: AtomicBool::new(false) }
    }

    /// Its name, for logs.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it may load and unload pipelines, and see the metrics of all.
    pub(crate) const fn is_admin(&self) -> bool {
        self.admin
    }

    /// Whether it may use the pipeline of this name.
    pub(crate) fn may_use(&self, pipeline: &str) -> bool {
        self.pipelines.as_ref().is_none_or(|pipelines| pipelines.contains(pipeline))
    }

    /// The priority that it gets when it asks for `asked`.
    pub(crate) fn priority(&self, asked: Priority) -> Priority {
        asked.min(self.priority)
    }

    /// One more request of its, if there is room for it now.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Permit, Exceeded> {
        let one = |at_once: &AtOnce| {
            at_once.left.clone().try_acquire_owned().map_err(|_| Exceeded::Concurrency(at_once.most))
        };
        let permit = Permit { tenant: self.clone(), _one: self.use_.at_once.as_ref().map(one).transpose()? };
        self.pay().map(|()| permit)
    }

    /// Its key was used from there.
    pub(crate) fn note_use_from(&self, address: IpAddr) {
        self.use_.addresses.add(address);
    }

    /// Whether its key was used from there, as far as that is remembered.
    pub(crate) fn was_used_from(&self, address: IpAddr) -> bool {
        self.use_.addresses.has(address)
    }

    /// Whether its line in the file has been changed or taken out since.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    /// Whether its line in the file has been changed or taken out by now.
    pub(crate) fn set_revoked(&self, revoked: bool) {
        self.revoked.store(revoked, Ordering::Relaxed);
    }

    /// Whether both have the same name, rights and limits.
    pub(crate) fn allows_the_same_as(&self, other: &Self) -> bool {
        let limits = |tenant: &Self| {
            let Use { bucket, at_once, .. } = &tenant.use_;
            (bucket.as_ref().map(Arc::as_ptr), at_once.as_ref().map(|at_once| Arc::as_ptr(&at_once.left)))
        };
        let who = |tenant: &Self| (tenant.name.clone(), tenant.pipelines.clone(), tenant.priority, tenant.admin);
        who(self) == who(other) && limits(self) == limits(other)
    }

    /// Where the items of a request that has its permit have their turns; `None` where their number is not bounded.
    pub(crate) fn slots(&self) -> Option<Slots> {
        let at_once = self.use_.at_once.as_ref()?;
        Some(Slots { own: Arc::new(Semaphore::new(1)), left: at_once.left.clone() })
    }

    #[cfg(test)]
    pub(crate) fn take_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.use_.at_once.as_ref().and_then(|at_once| at_once.left.clone().try_acquire_owned().ok())
    }

    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> Option<usize> {
        self.use_.at_once.as_ref().map(|at_once| at_once.left.available_permits())
    }

    /// So much more of the room for bodies, of which it may have `most`.
    pub(crate) fn hold(&self, more: usize, most: usize) -> Result<Hold, Exceeded> {
        let held = |held: usize| held.checked_add(more).filter(|held| *held <= most);
        match self.use_.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, held) {
            Ok(_) => Ok(Hold(self.use_.holds.clone(), more)),
            Err(_) => Err(Exceeded::Memory),
        }
    }

    /// Whether so much more of the room for bodies would be within `most`, now.
    pub(crate) fn fits(&self, more: usize, most: usize) -> Result<(), Exceeded> {
        let held = self.use_.holds.load(Ordering::Acquire).checked_add(more);
        held.filter(|held| *held <= most).map(drop).ok_or(Exceeded::Memory)
    }

    /// One more item of a request that holds several: its rate counts items.
    pub(crate) fn pay(&self) -> Result<(), Exceeded> {
        match &self.use_.bucket {
            Some(bucket) => bucket.take(Instant::now()).map_err(Exceeded::Rate),
            None => Ok(()),
        }
    }
}

impl From<Exceeded> for ServeError {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Rate(retry_after) => Self::TooMany {
                message: "the key has had the requests that it may have in a second".to_owned(),
                retry_after,
            },
            Exceeded::Concurrency(most) => Self::TooMany {
                message: format!("the key has {most} requests under way, which is as many as it may"),
                retry_after: Duration::from_secs(1),
            },
            Exceeded::Memory => Self::TooMany {
                message: "the bodies of the key's requests hold as much as those of one key may".to_owned(),
                retry_after: Duration::from_secs(1),
            },
        }
    }
}
