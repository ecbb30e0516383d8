//! Bounds the memory of workers: the kernel would end whatever it likes, or swap.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gpux_confinement::memory_bytes;
use gpux_core::threads;

/// A process whose memory is watched. Dropped, it is not any more.
pub(crate) trait Watched: Send + Sync {
    /// Its id.
    fn id(&self) -> u32;

    /// Ends it for this reason.
    fn kill(&self, reason: String);
}

/// The memory that workers may have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// one of them
    pub each: u64,
    /// all of them together: beyond it, the largest is killed
    pub all: u64,
}

fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// How fast memory is taken at most, in bytes a second: how often it looks depends on it.
const FASTEST: u64 = 4 << 30;

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Kills workers that take more memory than they may.
#[derive(Debug)]
pub struct MemoryWatch {
    limits: MemoryLimits,
    processes: Mutex<Processes>,
}

#[derive(Debug, Default)]
struct Processes {
    watched: Vec<Weak<dyn Watched>>,
    /// whether the thread runs
    is_watching: bool,
}

impl std::fmt::Debug for dyn Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id())
    }
}

impl MemoryWatch {
    /// Starts to watch with the first process.
    pub fn new(limits: MemoryLimits) -> Self {
        Self { limits, processes: Mutex::default() }
    }

    /// The memory that processes may have.
    pub const fn limits(&self) -> MemoryLimits {
        self.limits
    }

    /// Watches a process from now on.
    pub(crate) fn add(self: &Arc<Self>, process: Weak<dyn Watched>) -> std::io::Result<()> {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.watched.push(process);
        if !processes.is_watching {
            let watch = Arc::downgrade(self);
            threads::spawn("gpux-memory", move || {
                while let Some(pause) = watch.upgrade().map(|watch| watch.look()) {
                    std::thread::sleep(pause);
                }
            })?;
            processes.is_watching = true;
        }
        Ok(())
    }

    /// Kills what has too much; returns how long the others cannot have.
    fn look(&self) -> Duration {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.watched.retain(|process| process.strong_count() > 0);
        let watched: Vec<_> = processes.watched.iter().filter_map(Weak::upgrade).collect();
        drop(processes);
        // One that has ended has none.
        let sizes = watched.iter().map(|process| (memory_bytes(process.id()).unwrap_or_default(), process));
        let sizes: Vec<_> = sizes.collect();
        let MemoryLimits { each, all } = self.limits;
        let together: u64 = sizes.iter().map(|(size, _)| size).sum();
        let Some((most, largest)) = sizes.iter().max_by_key(|(size, _)| size) else { return LONGEST_PAUSE };
        for (_, process) in sizes.iter().filter(|(size, _)| *size > each) {
            process.kill(format!("killed: it took more than {} of memory (`--worker-memory`)", megabytes(each)));
        }
        if *most <= each && together > all {
            largest.kill(format!(
                "killed: the processes of all pipelines took more than {} of memory, and this one the most of them",
                megabytes(all)
            ));
        }
        let headroom = each.saturating_sub(*most).min(all.saturating_sub(together));
        let millis = headroom.saturating_mul(1000) / FASTEST;
        Duration::from_millis(millis).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// This process, under several names.
    #[derive(Default)]
    struct Own(Mutex<Option<String>>);

    impl Watched for Own {
        fn id(&self) -> u32 {
            std::process::id()
        }

        fn kill(&self, reason: String) {
            self.0.lock().unwrap().get_or_insert(reason);
        }
    }

    /// What becomes of two processes that each have as much as this one.
    fn killed(each: u64, all: u64) -> Vec<Option<String>> {
        let watch = Arc::new(MemoryWatch::new(MemoryLimits { each, all }));
        let processes = [Arc::new(Own::default()), Arc::new(Own::default())];
        watch.processes.lock().unwrap().is_watching = true;
        for process in &processes {
            let process: Arc<dyn Watched> = process.clone();
            watch.add(Arc::downgrade(&process)).unwrap();
        }
        watch.look();
        processes.iter().map(|process| process.0.lock().unwrap().clone()).collect()
    }

    #[test]
    fn kills_those_with_too_much_else_the_largest() {
        let own = memory_bytes(std::process::id()).unwrap();
        assert_eq!(killed(own * 10, own * 10), [None, None]);
        let each = killed(1, own * 10);
        assert!(each.iter().all(|reason| reason.as_ref().unwrap().contains("--worker-memory")), "{each:?}");
        let all = killed(own * 10, own);
        assert_eq!(all.iter().flatten().count(), 1, "{all:?}");
    }
}
