//! Rejected requests by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::scheduler::Rejection;

/// Rejected requests by reason.
#[derive(Debug, Default)]
pub(crate) struct RejectionCounts([AtomicU64; 9]);

/// The reason that a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionReason {
    /// the queue is full
    Full,
    /// it would start too late
    Late,
    /// its timeout passed while it was queued
    Expired,
    /// the server shuts down
    Closing,
    /// the memory budget of all bodies is used up
    Memory,
    /// its key exceeds its rate
    Rate,
    /// its key exceeds its concurrency
    Concurrency,
    /// its key exceeds its share of the memory budget
    KeyMemory,
    /// its address tried too many wrong keys
    Guesses,
}

impl RejectionReason {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Full, "queue_full"),
        (Self::Late, "too_late"),
        (Self::Expired, "expired"),
        (Self::Closing, "closing"),
        (Self::Memory, "memory"),
        (Self::Rate, "key_rate"),
        (Self::Concurrency, "key_concurrency"),
        (Self::KeyMemory, "key_memory"),
        (Self::Guesses, "key_guesses"),
    ];
}

impl From<&Rejection> for RejectionReason {
    fn from(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::Full { .. } => Self::Full,
            Rejection::Late { .. } => Self::Late,
            Rejection::Expired => Self::Expired,
            Rejection::Closing => Self::Closing,
            Rejection::Memory => Self::Memory,
        }
    }
}

impl RejectionCounts {
    /// Counts a rejection.
    pub(crate) fn count(&self, refused: RejectionReason) {
        if let Some(count) = self.0.get(refused as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All counts by name, zeros included.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RejectionReason::ALL.into_iter().zip(&self.0).map(|((_, name), count)| (name, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_counter() {
        for (index, (refused, _)) in RejectionReason::ALL.iter().enumerate() {
            assert_eq!(*refused as usize, index);
        }
    }
}
