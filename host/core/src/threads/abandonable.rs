//! Work that cannot be stopped.

use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::start;
use crate::catch_panic::catch_panic;

/// How long after its deadline such work may still end, before its caller is sent away without it.
const GRACE: Duration = Duration::from_millis(15);

/// How often work of one kind may be left behind before no more of it is begun.
const MOST: usize = 8;

/// Work on so few bytes finds room beside any other, and may be left behind more often.
const SMALL: usize = 64 << 10;

/// How often.
const MOST_SMALL: usize = 32;

/// Work of one kind that its callers leave behind at their deadlines. What was left goes on with the least of the
/// processor's time that a thread can have, and there are bounds to how much of it there is.
#[derive(Debug)]
pub struct AbandonableTasks {
    room: Arc<Room>,
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
    /// Work that may be on so many bytes at once, however many do it.
    pub fn new(room: usize) -> Self {
        Self { room: Arc::new(Room { bytes: room, held: Mutex::default(), freed: Condvar::new() }) }
    }

    /// Whether something that was left behind goes on.
    #[cfg(any(test, feature = "testing"))]
    pub fn has_abandoned(&self) -> bool {
        self.room.held().left > 0
    }

    /// Does work on so many bytes on another thread.
    pub fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TaskError> {
        let place = self.room.take(bytes, deadline)?;
        let bytes = place.bytes;
        let stay = Arc::<Stay>::default();
        let (answer, answered) = sync_channel(1);
        let stays = stay.clone();
        let job = move || {
            let done = stays.begin().then(|| catch_panic(work));
            if stays.end() {
                drop(place);
                // Whoever waits for it has not left.
                let _ = done.map(|done| answer.send(done));
                return ControlFlow::Continue(());
            }
            drop(done);
            place.room.leave(bytes, false);
            ControlFlow::Break(())
        };
        if let Err(job) = start(Box::new(job)) {
            // DeadlineExceeded is better than never.
            let _ = job();
        }
        let left = deadline.saturating_duration_since(Instant::now()) + GRACE;
        let done = answered.recv_timeout(left).ok().or_else(|| {
            // Before it can end, which takes it back.
            self.room.leave(bytes, true);
            if stay.leave() {
                return None;
            }
            self.room.leave(bytes, false);
            answered.recv().ok()
        });
        done.ok_or(TaskError::DeadlineExceeded)?.map_err(TaskError::Panicked)
    }
}

/// The bytes that may be worked on at once.
#[derive(Debug)]
struct Room {
    bytes: usize,
    held: Mutex<Held>,
    /// there may be room
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    /// bytes that are worked on
    bytes: usize,
    /// of those, what was left behind
    left_bytes: usize,
    /// how often something was, and goes on
    left: usize,
}

impl Room {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for so many bytes, or all that there is, once there is some.
    fn take(self: &Arc<Self>, bytes: usize, deadline: Instant) -> Result<Place, TaskError> {
        let bytes = bytes.min(self.bytes);
        let mut held = self.held();
        loop {
            let small = bytes <= SMALL;
            let most = if small { MOST_SMALL } else { MOST };
            if held.left >= most || !small && held.left_bytes + bytes > self.bytes {
                return Err(TaskError::Overloaded);
            }
            if small || held.bytes + bytes <= self.bytes {
                held.bytes += bytes;
                return Ok(Place { room: self.clone(), bytes });
            }
            let time = deadline.saturating_duration_since(Instant::now());
            if time.is_zero() {
                return Err(TaskError::DeadlineExceeded);
            }
            held = self.freed.wait_timeout(held, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counts what is left behind, or no longer.
    fn leave(&self, bytes: usize, left: bool) {
        let mut held = self.held();
        if left {
            held.left += 1;
            held.left_bytes += bytes;
            // Those that wait may now do so in vain.
            self.freed.notify_all();
        } else {
            held.left -= 1;
            held.left_bytes -= bytes;
        }
    }
}

/// Room that is free again when this is dropped.
#[derive(Debug)]
struct Place {
    room: Arc<Room>,
    bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.held().bytes -= self.bytes;
        self.room.freed.notify_all();
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
    fn state(&self) -> MutexGuard<'_, State> {
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

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_mins(10)
    }

    /// Leaves work behind, which ends when it hears of it.
    fn leave(work: &AbandonableTasks, bytes: usize) -> Sender<()> {
        let (end, ended) = channel();
        assert_eq!(work.run(soon(), bytes, move || ended.recv()), Err(TaskError::DeadlineExceeded));
        end
    }

    fn until_nothing_goes_on(work: &AbandonableTasks) {
        while work.has_abandoned() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn work_that_ends_in_time_has_a_result() {
        let work = AbandonableTasks::new(1);
        assert_eq!(work.run(later(), 1000, || 7), Ok(7));
        let asked = work.run::<()>(later(), 1000, || std::panic::panic_any("asked to"));
        assert_eq!(asked, Err(TaskError::Panicked("asked to".to_owned())));
        assert!(!work.has_abandoned());
        assert_eq!(work.run(later(), 1, || 7), Ok(7));
    }

    #[test]
    fn only_so_much_is_left_behind() {
        let work = AbandonableTasks::new(100 * SMALL);
        let ends: Vec<_> = (0..MOST).map(|_| leave(&work, SMALL + 1)).collect();
        assert_eq!(work.run(later(), SMALL + 1, || 7), Err(TaskError::Overloaded));
        assert_eq!(work.run(later(), SMALL, || 7), Ok(7));
        let more: Vec<_> = (MOST..MOST_SMALL).map(|_| leave(&work, 1)).collect();
        assert_eq!(work.run(later(), 1, || 7), Err(TaskError::Overloaded));
        drop((ends, more));
        until_nothing_goes_on(&work);
        let end = leave(&work, 51 * SMALL);
        assert_eq!(work.run(later(), 49 * SMALL, || 7), Ok(7));
        assert_eq!(work.run(later(), 50 * SMALL, || 7), Err(TaskError::Overloaded));
        drop(end);
        until_nothing_goes_on(&work);
        assert_eq!(work.run(later(), 500 * SMALL, || 7), Ok(7));
    }

    #[test]
    fn only_so_much_is_worked_on_at_once() {
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
    fn what_is_left_behind_gets_the_least() {
        use rustix::process::getpriority_process;

        let (work, (tell, told)) = (AbandonableTasks::new(1), channel());
        let own = || getpriority_process(Some(rustix::thread::gettid())).unwrap();
        // One that has not begun when it is left never does.
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
