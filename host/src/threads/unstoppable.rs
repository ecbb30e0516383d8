//! Work that cannot be stopped.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::start;
use crate::guard::guard;

/// How long after its deadline such work may still end, before its caller is sent away without it.
const GRACE: std::time::Duration = std::time::Duration::from_millis(15);

/// What may be left behind, of all work of one kind, before no more of it is begun, in bytes that it is about.
const MOST: usize = 64 << 20;

/// What each counts at least, in bytes.
const LEAST: usize = MOST / 8;

/// Work of one kind that its callers leave behind at their deadlines. What was left goes on with the least of the
/// processor's time that a thread can have, and there are bounds to how much of it there is.
#[derive(Debug, Default)]
pub(crate) struct Unstoppable {
    /// bytes of what was left behind and goes on
    behind: Arc<AtomicUsize>,
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// it is left behind
    Late,
    /// it was not begun: too much that was left behind goes on
    Crowded,
    /// it panicked
    Broken(String),
}

impl Unstoppable {
    /// Whether something that was left behind goes on.
    #[cfg(test)]
    pub(crate) fn goes_on(&self) -> bool {
        self.behind.load(Ordering::Acquire) > 0
    }

    /// Does work on so many bytes on another thread.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        if self.behind.load(Ordering::Acquire) >= MOST {
            return Err(NotDone::Crowded);
        }
        let (stay, behind, weight) = (Arc::<Stay>::default(), self.behind.clone(), bytes.max(LEAST));
        let (answer, answered) = sync_channel(1);
        let stays = stay.clone();
        let job = move || {
            let done = stays.begin().then(|| guard(work));
            if stays.end() {
                // Whoever waits for it has not left.
                let _ = done.map(|done| answer.send(done));
                return ControlFlow::Continue(());
            }
            drop(done);
            behind.fetch_sub(weight, Ordering::AcqRel);
            ControlFlow::Break(())
        };
        if let Err(job) = start(Box::new(job)) {
            // Late is better than never.
            let _ = job();
        }
        let left = deadline.saturating_duration_since(Instant::now()) + GRACE;
        let done = answered.recv_timeout(left).ok().or_else(|| {
            self.behind.fetch_add(weight, Ordering::AcqRel);
            if stay.leave() {
                return None;
            }
            self.behind.fetch_sub(weight, Ordering::AcqRel);
            answered.recv().ok()
        });
        done.ok_or(NotDone::Late)?.map_err(NotDone::Broken)
    }
}

/// Whether somebody waits for work that another thread does.
#[derive(Default)]
struct Stay(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Waiting,
    Running(Thread),
    Ended,
    Left,
}

impl Stay {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread begins; `false` if nobody waits any more.
    fn begin(&self) -> bool {
        let mut state = self.state();
        if matches!(*state, State::Left) {
            return false;
        }
        *state = State::Running(Thread::own());
        true
    }

    /// Ends it; `false` if nobody waits any more. The thread is then good for nothing else.
    fn end(&self) -> bool {
        let mut state = self.state();
        if matches!(*state, State::Left) {
            return false;
        }
        *state = State::Ended;
        true
    }

    /// Nobody waits any more; `false` if it has ended.
    fn leave(&self) -> bool {
        let mut state = self.state();
        match &*state {
            State::Ended => return false,
            State::Running(thread) => thread.hold_back(),
            State::Waiting | State::Left => {}
        }
        *state = State::Left;
        true
    }
}

/// A thread of this process.
struct Thread {
    #[cfg(target_os = "linux")]
    id: rustix::thread::Pid,
}

impl Thread {
    fn own() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            id: rustix::thread::gettid(),
        }
    }

    /// Lets it run where nobody else wants to, as far as the system can do that for a thread: Linux can. There is no
    /// way back.
    fn hold_back(&self) {
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
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_mins(10)
    }

    /// Leaves work behind, which ends when it hears of it.
    fn leave(work: &Unstoppable, bytes: usize) -> Sender<()> {
        let (end, ended) = channel();
        assert_eq!(work.run(soon(), bytes, move || ended.recv()), Err(NotDone::Late));
        end
    }

    #[test]
    fn work_that_ends_in_time_has_a_result() {
        let work = Unstoppable::default();
        assert_eq!(work.run(later(), 0, || 7), Ok(7));
        let asked = work.run::<()>(later(), 0, || std::panic::panic_any("asked to"));
        assert_eq!(asked, Err(NotDone::Broken("asked to".to_owned())));
        assert!(!work.goes_on());
    }

    #[test]
    fn only_so_much_is_left_behind() {
        let work = Unstoppable::default();
        let mut ends: Vec<_> = (0..7).map(|_| leave(&work, 1)).collect();
        assert_eq!(work.run(later(), 1, || 7), Ok(7));
        ends.push(leave(&work, MOST));
        assert_eq!(work.run(later(), 1, || 7), Err(NotDone::Crowded));
        drop(ends);
        while work.goes_on() {
            std::thread::yield_now();
        }
        assert_eq!(work.run(later(), 1, || 7), Ok(7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_left_behind_gets_the_least() {
        use rustix::process::getpriority_process;

        let (work, (tell, told)) = (Unstoppable::default(), channel());
        let (end, ended) = channel::<()>();
        let own = || getpriority_process(Some(rustix::thread::gettid())).unwrap();
        let asked = move || {
            let _ = ended.recv();
            tell.send(own()).unwrap();
        };
        assert_eq!(work.run(soon(), 0, asked), Err(NotDone::Late));
        drop(end);
        assert_eq!(told.recv().unwrap(), 19);
        // The thread that was held back is not used again.
        for _ in 0..10 {
            assert_eq!(work.run(later(), 0, own), Ok(own()));
        }
    }
}
