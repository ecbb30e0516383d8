//! A part of a memory budget.

use tokio::sync::OwnedSemaphorePermit;

use super::tenant::TenantMemory;

/// One permit of a budget's semaphore stands for this many bytes.
pub(crate) const GRAIN: usize = 1 << 10;

/// Reserved bytes of a memory budget, released on drop.
#[derive(Debug)]
pub(crate) struct MemoryPermit {
    permit: OwnedSemaphorePermit,
    tenant: Option<TenantMemory>,
}

impl MemoryPermit {
    pub(crate) const fn new(permit: OwnedSemaphorePermit, tenant: Option<TenantMemory>) -> Self {
        Self { permit, tenant }
    }

    /// The reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits() * GRAIN
    }

    /// Releases all beyond this many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let over = self.permit.num_permits().saturating_sub(bytes.div_ceil(GRAIN));
        drop(self.permit.split(over));
        if let Some(hold) = &mut self.tenant {
            hold.shrink(over);
        }
    }

    /// Merges another permit of the same request.
    pub(crate) fn merge(&mut self, more: Self) {
        self.permit.merge(more.permit);
        if let (Some(hold), Some(more)) = (&mut self.tenant, more.tenant) {
            hold.merge(more);
        }
    }
}
