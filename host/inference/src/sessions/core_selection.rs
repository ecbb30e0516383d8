//! Chooses the core on which a run begins.
//!
//! Linux wakes a thread on the core where it ran last. If another run is at work there, the two share
//! it, and the next core may be idle for tens of milliseconds before the system evens that out. So a
//! run that would begin beside another moves to a core that has none, if there is one. From then on it
//! is the system's again: no thread stays bound to a core.

/// A run that counts for the core on which it began, until this is dropped. Only on Linux.
pub(super) struct CoreReservation {
    #[cfg(target_os = "linux")]
    cores: &'static linux::Cores,
    #[cfg(target_os = "linux")]
    core: usize,
}

impl CoreReservation {
    /// A run that the calling thread begins.
    pub(super) fn acquire() -> Self {
        #[cfg(target_os = "linux")]
        return linux::CORES.begin();
        #[cfg(not(target_os = "linux"))]
        Self {}
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    use super::CoreReservation;

    /// Of all models.
    pub(super) static CORES: Cores = Cores::new();

    /// The runs that began on each core and go on.
    pub(super) struct Cores([AtomicUsize; CpuSet::MAX_CPU]);

    impl Cores {
        const fn new() -> Self {
            Self([const { AtomicUsize::new(0) }; CpuSet::MAX_CPU])
        }

        /// A run that starts on its thread's core, unless another run started there and there is a core
        /// without a run that the thread may use.
        pub(super) fn begin(&'static self) -> CoreReservation {
            let core = sched_getcpu();
            if self.runs(core) > 0
                && let Some(moved) = self.elsewhere()
            {
                return moved;
            }
            if let Some(runs) = self.0.get(core) {
                runs.fetch_add(1, Ordering::Relaxed);
            }
            CoreReservation { cores: self, core }
        }

        fn runs(&self, core: usize) -> usize {
            self.0.get(core).map_or(0, |runs| runs.load(Ordering::Relaxed))
        }

        /// Moves the calling thread to a core without runs.
        fn elsewhere(&'static self) -> Option<CoreReservation> {
            let allowed = sched_getaffinity(None).ok()?;
            let is_free =
                |runs: &AtomicUsize| runs.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            let (core, _) = self.0.iter().enumerate().find(|(core, runs)| allowed.is_set(*core) && is_free(runs))?;
            let begun = CoreReservation { cores: self, core };
            let mut only = CpuSet::new();
            only.set(core);
            sched_setaffinity(None, &only).ok()?;
            // Refused only if the cores that the process may use are others now, and then the system
            // has moved the thread.
            let _ = sched_setaffinity(None, &allowed);
            Some(begun)
        }
    }

    impl Drop for CoreReservation {
        fn drop(&mut self) {
            if let Some(runs) = self.cores.0.get(self.core) {
                runs.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    #[cfg(test)]
    #[allow(clippy::unwrap_used, reason = "tests")]
    mod tests {
        use super::*;

        #[test]
        fn spreads_runs_over_free_cores() {
            static TRIED: Cores = Cores::new();
            let allowed = sched_getaffinity(None).unwrap();
            let cores = allowed.count() as usize;
            let begun: Vec<_> = (0..cores).map(|_| TRIED.begin()).collect();
            let mut taken: Vec<_> = begun.iter().map(|begun| begun.core).collect();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), cores, "each has a core");
            assert!(taken.iter().all(|core| allowed.is_set(*core)));
            assert!(sched_getaffinity(None).unwrap() == allowed, "the thread may go anywhere");
            // One more shares a core, and ends before those do.
            drop(TRIED.begin());
            drop(begun);
            assert!(TRIED.0.iter().all(|runs| runs.load(Ordering::Relaxed) == 0));
        }
    }
}
