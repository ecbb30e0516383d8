//! Tasks that cannot be cancelled: their callers abandon them at the deadline.

use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::start;
use crate::platform::catch_panic::catch_panic;

/// How long after its deadline such work may still end, before its caller is sent away without it.
const GRACE: Duration = Duration::from_millis(15);

/// How often work of one kind may be left behind before no more of it is begun.
const MAX_ABANDONED: usize = 8;

/// Work on so few bytes finds room beside any other, and may be left behind more often.
const SMALL: usize = 64 << 10;

/// How often.
const MAX_SMALL_ABANDONED: usize = 32;

/// Work of one kind that its callers abandon at their deadlines. Abandoned work goes on at the lowest
/// scheduling priority, and its amount is bounded.
#[derive(Debug)]
pub struct AbandonableTasks {
    budget: Arc<TaskBudget>,
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub enum TaskError {
    /// it is left behind, or had no room in time
    DeadlineExceeded,
    /// it was not begun: too much that was left behind goes on
    Overloaded,
    /// it panicked
    Panicked(String),
}

impl AbandonableTasks {
    /// Work on at most this many bytes in total, in any number of threads.
    pub fn new(max_bytes: usize) -> Self {
        Self { budget: Arc::new(TaskBudget { bytes: max_bytes, usage: Mutex::default(), freed: Condvar::new() }) }
    }

    /// Whether something that was left behind goes on.
    #[cfg(any(test, feature = "testing"))]
    pub fn has_abandoned(&self) -> bool {
        self.budget.usage().abandoned > 0
    }

    /// Runs work on this many bytes on another thread.
    pub fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TaskError> {
        let permit = self.budget.take(bytes, deadline)?;
        let bytes = permit.bytes;
        let state = Arc::<TaskState>::default();
        let (answer, answered) = sync_channel(1);
        let worker_state = state.clone();
        let job = move || {
            let done = worker_state.start().then(|| catch_panic(work));
            if worker_state.finish() {
                drop(permit);
                // A caller that waits has not abandoned it.
                let _ = done.map(|done| answer.send(done));
                return ControlFlow::Continue(());
            }
            drop(done);
            permit.budget.count_abandoned(bytes, false);
            ControlFlow::Break(())
        };
        if let Err(job) = start(Box::new(job)) {
            // DeadlineExceeded is better than never.
            let _ = job();
        }
        let left = deadline.saturating_duration_since(Instant::now()) + GRACE;
        let done = answered.recv_timeout(left).ok().or_else(|| {
            // Before it can end, which takes it back.
            self.budget.count_abandoned(bytes, true);
            if state.abandon() {
                return None;
            }
            self.budget.count_abandoned(bytes, false);
            answered.recv().ok()
        });
        done.ok_or(TaskError::DeadlineExceeded)?.map_err(TaskError::Panicked)
    }
}

/// The bytes that may be worked on at once.
#[derive(Debug)]
struct TaskBudget {
    bytes: usize,
    usage: Mutex<BudgetUse>,
    /// there may be room
    freed: Condvar,
}

#[derive(Debug, Default)]
struct BudgetUse {
    /// bytes that are worked on
    bytes: usize,
    /// of those, abandoned bytes
    abandoned_bytes: usize,
    /// how often something was, and goes on
    abandoned: usize,
}

impl TaskBudget {
    fn usage(&self) -> MutexGuard<'_, BudgetUse> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves this many bytes, or all free ones, once some are free.
    fn take(self: &Arc<Self>, bytes: usize, deadline: Instant) -> Result<TaskPermit, TaskError> {
        let bytes = bytes.min(self.bytes);
        let mut usage = self.usage();
        loop {
            let small = bytes <= SMALL;
            let most = if small { MAX_SMALL_ABANDONED } else { MAX_ABANDONED };
            if usage.abandoned >= most || !small && usage.abandoned_bytes + bytes > self.bytes {
                return Err(TaskError::Overloaded);
            }
            if small || usage.bytes + bytes <= self.bytes {
                usage.bytes += bytes;
                return Ok(TaskPermit { budget: self.clone(), bytes });
            }
            let time = deadline.saturating_duration_since(Instant::now());
            if time.is_zero() {
                return Err(TaskError::DeadlineExceeded);
            }
            usage = self.freed.wait_timeout(usage, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counts abandoned work.
    fn count_abandoned(&self, bytes: usize, is_abandoned: bool) {
        let mut usage = self.usage();
        if is_abandoned {
            usage.abandoned += 1;
            usage.abandoned_bytes += bytes;
            // Waiting callers may now have to give up.
            self.freed.notify_all();
        } else {
            usage.abandoned -= 1;
            usage.abandoned_bytes -= bytes;
        }
    }
}

/// A share of the budget, returned on drop.
#[derive(Debug)]
struct TaskPermit {
    budget: Arc<TaskBudget>,
    bytes: usize,
}

impl Drop for TaskPermit {
    fn drop(&mut self) {
        self.budget.usage().bytes -= self.bytes;
        self.budget.freed.notify_all();
    }
}

/// Progress of a task, shared by its caller and its thread.
#[derive(Default)]
struct TaskState(Mutex<Progress>);

#[derive(Default)]
enum Progress {
    #[default]
    Waiting,
    Running(Thread),
    Finished,
    Abandoned,
}

impl TaskState {
    fn state(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread begins; `false` if the caller has left.
    fn start(&self) -> bool {
        let mut state = self.state();
        if matches!(*state, Progress::Abandoned) {
            return false;
        }
        *state = Progress::Running(Thread::current());
        true
    }

    /// Ends it; `false` if the caller has left. The thread then keeps its low priority and must end.
    fn finish(&self) -> bool {
        let mut state = self.state();
        if matches!(*state, Progress::Abandoned) {
            return false;
        }
        *state = Progress::Finished;
        true
    }

    /// The caller leaves; `false` if the work has ended.
    fn abandon(&self) -> bool {
        let mut state = self.state();
        match &*state {
            Progress::Finished => return false,
            Progress::Running(thread) => thread.lower_priority(),
            Progress::Waiting | Progress::Abandoned => {}
        }
        *state = Progress::Abandoned;
        true
    }
}

/// A thread of this process.
struct Thread {
    #[cfg(target_os = "linux")]
    id: rustix::thread::Pid,
}

impl Thread {
    fn current() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            id: rustix::thread::gettid(),
        }
    }

    /// Lowers the thread to idle priority, where the system can do that (Linux). There is no
    /// way back.
    fn lower_priority(&self) {
        /// see setpriority(2): the least
        #[cfg(target_os = "linux")]
        const NICEST: i32 = 19;
        // A system that forbids it is one on which it goes on as before.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(Some(self.id), NICEST);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_mins(10)
    }

    /// Leaves work behind, which ends when it hears of it.
    fn abandon_task(work: &AbandonableTasks, bytes: usize) -> Sender<()> {
        // On a busy machine, the deadline may pass before it begins.
        loop {
            let ((end, ended), (begins, begun)) = (channel(), channel());
            let wait = move || begins.send(()).map(|()| ended.recv());
            let result = work.run(soon(), bytes, wait);
            if begun.try_recv().is_ok() {
                assert_eq!(result, Err(TaskError::DeadlineExceeded));
                return end;
            }
            std::thread::yield_now();
        }
    }

    fn wait_for_abandoned(work: &AbandonableTasks) {
        while work.has_abandoned() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn returns_results_within_the_deadline() {
        let work = AbandonableTasks::new(1);
        assert_eq!(work.run(later(), 1000, || 7), Ok(7));
        let asked = work.run::<()>(later(), 1000, || std::panic::panic_any("asked to"));
        assert_eq!(asked, Err(TaskError::Panicked("asked to".to_owned())));
        assert!(!work.has_abandoned());
        assert_eq!(work.run(later(), 1, || 7), Ok(7));
    }

    #[test]
    fn limits_abandoned_tasks() {
        let work = AbandonableTasks::new(100 * SMALL);
        let ends: Vec<_> = (0..MAX_ABANDONED).map(|_| abandon_task(&work, SMALL + 1)).collect();
        assert_eq!(work.run(later(), SMALL + 1, || 7), Err(TaskError::Overloaded));
        assert_eq!(work.run(later(), SMALL, || 7), Ok(7));
        let more: Vec<_> = (MAX_ABANDONED..MAX_SMALL_ABANDONED).map(|_| abandon_task(&work, 1)).collect();
        assert_eq!(work.run(later(), 1, || 7), Err(TaskError::Overloaded));
        drop((ends, more));
        wait_for_abandoned(&work);
        let end = abandon_task(&work, 51 * SMALL);
        assert_eq!(work.run(later(), 49 * SMALL, || 7), Ok(7));
        assert_eq!(work.run(later(), 50 * SMALL, || 7), Err(TaskError::Overloaded));
        drop(end);
        wait_for_abandoned(&work);
        assert_eq!(work.run(later(), 500 * SMALL, || 7), Ok(7));
    }

    #[test]
    fn limits_bytes_in_flight() {
        let (work, (begin, begun)) = (AbandonableTasks::new(10 * SMALL), channel());
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let asked = move || {
                    begin.send(()).unwrap();
                    ended.recv()
                };
                work.run(later(), 9 * SMALL, asked)
            });
            begun.recv().unwrap();
            assert_eq!(work.run(later(), SMALL, || 7), Ok(7));
            assert_eq!(work.run(soon(), SMALL + 1, || 7), Err(TaskError::DeadlineExceeded));
            let second = scope.spawn(|| work.run(later(), SMALL + 1, || 7));
            drop(end);
            assert!(first.join().unwrap().unwrap().is_err());
            assert_eq!(second.join().unwrap(), Ok(7));
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lowers_the_priority_of_abandoned_threads() {
        use rustix::process::getpriority_process;

        let (work, (tell, told)) = (AbandonableTasks::new(1), channel());
        let own = || getpriority_process(Some(rustix::thread::gettid())).unwrap();
        // Work that has not begun when it is abandoned never begins.
        let mut began = false;
        while !began {
            let ((begin, begun), (end, ended), tell) = (channel(), channel::<()>(), tell.clone());
            let asked = move || {
                let _ = begin.send(());
                let _ = ended.recv();
                let _ = tell.send(own());
            };
            assert_eq!(work.run(soon(), 0, asked), Err(TaskError::DeadlineExceeded));
            began = begun.recv().is_ok();
            drop(end);
        }
        assert_eq!(told.recv().unwrap(), 19);
        // The thread that was held back is not used again.
        for _ in 0..10 {
            assert_eq!(work.run(later(), 0, own), Ok(own()));
        }
    }
}
