//! Terminates runs whose deadline has passed.
//!
//! One thread looks at every watched session each [`TICK`]. A run costs three atomic operations
//! for it: no lock, and no system call unless the thread has gone to sleep.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ort::session::RunOptions;

use gpux_core::DeadlineExceeded;

/// How late a run may be noticed.
const TICK: Duration = Duration::from_millis(5);
/// Ticks without a run under a deadline after which the thread sleeps until it is woken.
const IDLE_TICKS: u32 = 200;

/// Nothing runs under a deadline.
const IDLE: u8 = 0;
/// A run under a deadline is going on; the thread may stop it.
const RUNNING: u8 = 1;
/// The thread is about to stop the run, and has not done so yet.
const STOPPING: u8 = 2;
/// The thread is done with the run.
const STOPPED: u8 = 3;

/// The origin of stored deadlines.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
static WATCHED_RUNS: Mutex<WatchedRuns> = Mutex::new(WatchedRuns { runs: Vec::new(), thread: None });
static ASLEEP: AtomicBool = AtomicBool::new(false);

struct WatchedRuns {
    runs: Vec<Weak<WatchedRun>>,
    thread: Option<Thread>,
}

/// The state that a session shares with the watchdog thread.
struct WatchedRun {
    options: RunOptions,
    /// options of a run after which the arena is shrunk
    shrinking: RunOptions,
    /// nanoseconds since [`EPOCH`]; of no meaning while nothing runs
    deadline: AtomicU64,
    state: AtomicU8,
}

/// A session's registration with the watchdog thread.
pub(super) struct Watchdog {
    slot: Arc<WatchedRun>,
    thread: Thread,
}

impl Watchdog {
    /// Registers a session; the first registration starts the thread.
    pub(super) fn new() -> Result<Self, String> {
        let options = RunOptions::new().map_err(|error| error.to_string())?;
        let shrinking = shrinking()?;
        let slot = Arc::new(WatchedRun { options, shrinking, deadline: AtomicU64::new(0), state: AtomicU8::new(IDLE) });
        let mut watched = WATCHED_RUNS.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = if let Some(thread) = &watched.thread {
            thread.clone()
        } else {
            let builder = std::thread::Builder::new().name("gpux-deadlines".to_owned());
            let started = builder.spawn(watchdog).map_err(|error| format!("no thread can watch deadlines: {error}"))?;
            watched.thread.insert(started.thread().clone()).clone()
        };
        watched.runs.push(Arc::downgrade(&slot));
        Ok(Self { slot, thread })
    }

    /// The options of a run; with `shrink`, the arena is shrunk afterwards.
    pub(super) fn options(&self, shrink: bool) -> &RunOptions {
        if shrink { &self.slot.shrinking } else { &self.slot.options }
    }

    /// From here on the run may be stopped. [`Self::end`] must follow before the next run.
    pub(super) fn begin(&self, deadline: Instant) {
        self.slot.deadline.store(nanoseconds(deadline), Ordering::Relaxed);
        // This store and the load after it are in one order with the thread's own two, so either
        // it sees the run before it sleeps, or this sees that it sleeps.
        self.slot.state.store(RUNNING, Ordering::SeqCst);
        if ASLEEP.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }

    /// The run has ended, in time or not. Afterwards nothing can stop a later run in its stead.
    pub(super) fn end(&self) -> Result<(), DeadlineExceeded> {
        let state = &self.slot.state;
        loop {
            match state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(STOPPED) => break,
                Err(_) => std::thread::yield_now(),
            }
        }
        // It only clears a flag; were it to fail, the next run would say that it was stopped.
        let _ = self.slot.options.unterminate();
        let _ = self.slot.shrinking.unterminate();
        state.store(IDLE, Ordering::Release);
        Err(DeadlineExceeded)
    }
}

/// Run options that shrink the CPU's arena after the run: `onnxruntime`'s
/// `kOrtRunOptionsConfigEnableMemoryArenaShrinkage`.
pub(super) fn shrinking() -> Result<RunOptions, String> {
    let mut options = RunOptions::new().map_err(|error| error.to_string())?;
    options.set("memory.enable_memory_arena_shrinkage", "cpu:0").map_err(|error| error.to_string())?;
    Ok(options)
}

fn nanoseconds(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*EPOCH).as_nanos()).unwrap_or(u64::MAX)
}

/// The body of the watchdog thread.
fn watchdog() {
    let mut idle_ticks = 0;
    loop {
        if stop_overdue_runs() {
            idle_ticks = 0;
        } else {
            idle_ticks += 1;
        }
        if idle_ticks < IDLE_TICKS {
            std::thread::park_timeout(TICK);
            continue;
        }
        ASLEEP.store(true, Ordering::SeqCst);
        if !stop_overdue_runs() {
            std::thread::park();
        }
        ASLEEP.store(false, Ordering::SeqCst);
        idle_ticks = 0;
    }
}

/// Terminates overdue runs. Returns whether any run has a deadline.
fn stop_overdue_runs() -> bool {
    let now = nanoseconds(Instant::now());
    let mut any = false;
    let mut watched = WATCHED_RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    watched.runs.retain(|slot| {
        let Some(slot) = slot.upgrade() else { return false };
        if slot.state.load(Ordering::SeqCst) != IDLE {
            any = true;
            slot.stop_if_overdue(now);
        }
        true
    });
    any
}

impl WatchedRun {
    fn stop_if_overdue(&self, now: u64) {
        let is_overdue = || self.deadline.load(Ordering::Relaxed) <= now;
        if !is_overdue() || self.state.compare_exchange(RUNNING, STOPPING, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return;
        }
        // Now the run cannot end, so this is its deadline; the one before may have been that of
        // the run before.
        if is_overdue() {
            let _ = self.options.terminate();
            let _ = self.shrinking.terminate();
            self.state.store(STOPPED, Ordering::Release);
        } else {
            self.state.store(RUNNING, Ordering::Release);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::onnxruntime;

    /// The thread of the process looks too, so a stop may come from it as well.
    #[test]
    fn terminates_only_overdue_runs() {
        let Some(_library) = onnxruntime() else { return };
        let watchdog = Watchdog::new().unwrap();
        let far = || Instant::now() + Duration::from_hours(1);
        watchdog.begin(far());
        assert!(stop_overdue_runs());
        assert!(watchdog.end().is_ok());
        for _ in 0..100 {
            watchdog.begin(Instant::now());
            stop_overdue_runs();
            assert_eq!(watchdog.slot.state.load(Ordering::SeqCst), STOPPED);
            assert!(watchdog.end().is_err());
            watchdog.begin(far());
            stop_overdue_runs();
            assert!(watchdog.end().is_ok());
        }
        let slot = Arc::downgrade(&watchdog.slot);
        drop(watchdog);
        stop_overdue_runs();
        assert!(slot.upgrade().is_none());
    }
}
