//! Bounds the memory and the threads of workers: the kernel would end whatever it likes, or swap.
//!
//! Counted is what the processes of a worker's group have, and what lies in its channel. A worker can make no memory
//! beyond that: its seccomp filter denies files in memory, shared mappings and pairs of sockets. Where a
//! [control group](crate::control_group) can be made, the kernel bounds all the same.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gpux_confinement::{ProcessGroups, process_usage};
use gpux_core::threads;

/// A process whose memory is watched. Dropped, it is not any more.
pub(crate) trait Watched: Send + Sync {
    /// Its id, which is that of its group.
    fn id(&self) -> u32;

    /// The bytes of memory that it shares with the server, whether it maps them or not.
    fn shared_memory(&self) -> u64;

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

/// The most threads of a worker and its children: those of requests, and of some pools.
fn max_threads() -> u64 {
    1024 + 64 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64
}

fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Why a worker is killed that takes more than this many bytes.
pub(crate) fn exceeds_memory(limit: u64) -> String {
    format!("killed: it took more than {} of memory (`--worker-memory`)", megabytes(limit))
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
    groups: Mutex<ProcessGroups>,
}

/// What the processes of a worker take together.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    memory: u64,
    threads: u64,
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
        Self { limits, processes: Mutex::default(), groups: Mutex::default() }
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
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.refresh();
        let usages: Vec<_> = watched.iter().map(|process| (usage(&**process, &groups), process)).collect();
        let MemoryLimits { each, all } = self.limits;
        for (usage, process) in usages.iter().filter(|(usage, _)| usage.memory > each / 4) {
            let members = groups.members(process.id());
            members.for_each(|member| set_oom_score(member, usage.memory, each));
        }
        drop(groups);
        let together: u64 = usages.iter().map(|(usage, _)| usage.memory).sum();
        let largest = usages.iter().max_by_key(|(usage, _)| usage.memory);
        let Some((Usage { memory: most, .. }, largest)) = largest else { return LONGEST_PAUSE };
        for (usage, process) in &usages {
            if usage.memory > each {
                process.kill(exceeds_memory(each));
            } else if usage.threads > max_threads() {
                process.kill(format!("killed: it had more than {} threads", max_threads()));
            }
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

/// Has the kernel, where it lacks memory, end the worker first that is the nearest to its limit: it does not count what
/// lies in channels. A worker begins with the least score.
fn set_oom_score(process: u32, memory: u64, limit: u64) {
    const RANGE: std::ops::RangeInclusive<u64> = 500..=900;
    let share = memory.saturating_mul(RANGE.end() - RANGE.start()) / limit.max(1);
    let score = (RANGE.start() + share).min(*RANGE.end());
    // A process may have ended, or belong to another user.
    let _ = std::fs::write(format!("/proc/{process}/oom_score_adj"), score.to_string());
}

/// What a worker takes with its children. One that has ended takes nothing.
fn usage(process: &dyn Watched, groups: &ProcessGroups) -> Usage {
    let (id, mut shared) = (process.id(), 0);
    let members = groups.members(id).filter(|member| *member != id).chain([id]);
    let mut all = Usage::default();
    for usage in members.filter_map(|member| process_usage(member).ok()) {
        all.memory = all.memory.saturating_add(usage.own_memory);
        all.threads = all.threads.saturating_add(usage.threads);
        shared = shared.max(usage.shared_memory);
    }
    // What it maps is a part of the channel, unless a driver shares memory.
    all.memory = all.memory.saturating_add(shared.max(process.shared_memory()));
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// This process, under several names.
    struct Own(Mutex<Option<String>>, u64);

    impl Watched for Own {
        fn id(&self) -> u32 {
            std::process::id()
        }

        fn shared_memory(&self) -> u64 {
            self.1
        }

        fn kill(&self, reason: String) {
            self.0.lock().unwrap().get_or_insert(reason);
        }
    }

    /// What becomes of two processes that each have as much as this one, and `shared` bytes of a channel.
    fn killed(each: u64, all: u64, shared: u64) -> Vec<Option<String>> {
        let watch = Arc::new(MemoryWatch::new(MemoryLimits { each, all }));
        let processes = [0, 1].map(|_| Arc::new(Own(Mutex::default(), shared)));
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
        // That of other processes of the group counts with it.
        let own = 64 << 30;
        assert_eq!(killed(own, 10 * own, 0), [None, None]);
        let each = killed(1, own * 10, 0);
        assert!(each.iter().all(|reason| reason.as_ref().unwrap().contains("--worker-memory")), "{each:?}");
        let all = killed(own * 10, own, own);
        assert_eq!(all.iter().flatten().count(), 1, "{all:?}");
        let shared = killed(own, own * 10, own);
        assert_eq!(shared.iter().flatten().count(), 2, "{shared:?}");
    }
}
