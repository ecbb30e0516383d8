//! Budgets of memory that many requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit of the bytes that all of its permits hold together. A clone is the same budget.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Usage>);

#[derive(Debug)]
struct Usage {
    limit: usize,
    reserved: AtomicUsize,
}

/// The budget has too few bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget is exhausted")]
pub struct BudgetExhausted;

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Usage { limit, reserved: AtomicUsize::new(0) }))
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Fails if `bytes` more would not fit now. Reserves nothing, so concurrent checks do not reject each other.
    pub fn check(&self, bytes: usize) -> Result<(), BudgetExhausted> {
        self.fits(self.0.reserved.load(Ordering::Acquire), bytes).map(drop).ok_or(BudgetExhausted)
    }

    /// Reserves bytes, or fails without waiting.
    pub fn reserve(&self, bytes: usize) -> Result<MemoryPermit, BudgetExhausted> {
        let reserved = &self.0.reserved;
        reserved
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| self.fits(reserved, bytes))
            .map_err(|_| BudgetExhausted)?;
        Ok(MemoryPermit { budget: self.clone(), bytes, nested: None })
    }

    fn fits(&self, reserved: usize, bytes: usize) -> Option<usize> {
        reserved.checked_add(bytes).filter(|sum| *sum <= self.0.limit)
    }
}

/// Reserved bytes of a budget, released on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    budget: MemoryBudget,
    bytes: usize,
    /// as many bytes of a second budget
    nested: Option<Box<MemoryPermit>>,
}

impl MemoryPermit {
    /// The reserved bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same bytes, reserved in a second budget as well.
    #[must_use]
    pub fn with_nested(mut self, nested: Option<Self>) -> Self {
        debug_assert!(nested.as_ref().is_none_or(|nested| nested.bytes == self.bytes), "as many bytes of both");
        debug_assert!(self.nested.is_none(), "a permit is of two budgets at most");
        self.nested = nested.map(Box::new);
        self
    }

    /// Releases all beyond this many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        self.release(self.bytes.saturating_sub(bytes));
        if let Some(nested) = &mut self.nested {
            nested.shrink(bytes);
        }
    }

    /// Adds another permit of the same budgets.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget.0, &other.budget.0), "permits of one budget");
        self.bytes += std::mem::take(&mut other.bytes);
        match (&mut self.nested, other.nested.take()) {
            (Some(nested), Some(other)) => nested.merge(*other),
            (nested, other) => *nested = nested.take().or(other),
        }
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.budget.0.reserved.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn permits_never_exceed_the_limit() {
        let budget = MemoryBudget::new(10);
        let first = budget.reserve(6).unwrap();
        assert_eq!(budget.reserve(5).unwrap_err(), BudgetExhausted);
        assert_eq!((budget.check(5), budget.check(4)), (Err(BudgetExhausted), Ok(())));
        assert!(budget.reserve(usize::MAX).is_err());
        drop(first);
        assert_eq!(budget.reserve(10).unwrap().bytes(), 10);
        assert!(budget.check(10).is_ok());
    }

    #[test]
    fn shrinking_and_merging_keep_both_budgets_right() {
        let (all, share) = (MemoryBudget::new(100), MemoryBudget::new(50));
        let reserve = |bytes| all.reserve(bytes).unwrap().with_nested(Some(share.reserve(bytes).unwrap()));
        let mut permit = reserve(20);
        permit.merge(reserve(30));
        assert_eq!((permit.bytes(), share.check(1)), (50, Err(BudgetExhausted)));
        permit.shrink(60);
        assert_eq!(permit.bytes(), 50, "it does not grow");
        permit.shrink(10);
        assert_eq!((permit.bytes(), share.check(40), all.check(90)), (10, Ok(()), Ok(())));
        assert!(share.check(41).is_err() && all.check(91).is_err());
        drop(permit);
        assert!(share.check(50).is_ok() && all.check(100).is_ok());
    }

    #[test]
    fn concurrent_checks_do_not_reject_each_other() {
        let budget = MemoryBudget::new(2);
        let begin = std::sync::Barrier::new(2);
        let check = || {
            begin.wait();
            (0..200_000).filter(|_| budget.check(2).is_err()).count()
        };
        let rejected =
            std::thread::scope(|scope| [scope.spawn(check), scope.spawn(check)].map(|one| one.join().unwrap()));
        assert_eq!(rejected, [0, 0]);
    }
}
