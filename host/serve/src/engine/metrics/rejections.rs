//! Requests that did not run, counted by why.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::scheduler::Refusal;

/// Requests that did not run, by why.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; 9]);

/// Why a request did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// too many wait
    Full,
    /// its turn would come too late
    Late,
    /// its timeout passed before its turn
    Expired,
    /// the server ends
    Closing,
    /// the bodies of all requests hold as much as they may
    Memory,
    /// its key has had its requests of this second
    Rate,
    /// its key has as many under way as it may
    Concurrency,
    /// the bodies of its key hold as much as they may
    KeyMemory,
    /// its address tried too many wrong keys
    Guesses,
}

impl Refused {
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

impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Full { .. } => Self::Full,
            Refusal::Late { .. } => Self::Late,
            Refusal::Expired => Self::Expired,
            Refusal::Closing => Self::Closing,
            Refusal::Memory => Self::Memory,
        }
    }
}

impl Refusals {
    /// Counts one.
    pub(crate) fn count(&self, refused: Refused) {
        if let Some(count) = self.0.get(refused as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All of them, by name; those that have not happened as well.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refused::ALL.into_iter().zip(&self.0).map(|((_, name), count)| (name, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place() {
        for (index, (refused, _)) in Refused::ALL.iter().enumerate() {
            assert_eq!(*refused as usize, index);
        }
    }
}
