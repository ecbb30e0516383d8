//! Threads for work that its caller may leave behind.

mod abandonable;

use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::platform::catch_panic::catch_panic;

pub use abandonable::{AbandonableTasks, TaskError};

/// The work of a thread, and whether more may follow.
pub(crate) type Job = Box<dyn FnOnce() -> ControlFlow<()> + Send>;

/// How long a thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// The size of the main thread's stack, for which recursive kernels are written. Only touched pages
/// take memory.
const STACK: usize = 8 << 20;

/// Threads that wait, the latest last.
static WAITING: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

struct Waiting {
    number: u64,
    jobs: Sender<Job>,
}

fn waiting() -> std::sync::MutexGuard<'static, Vec<Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `job` on a thread that waits for one, else on a new one; gives it back if there can be none.
pub fn start(mut job: Job) -> Result<(), Job> {
    loop {
        let thread = waiting().pop();
        let Some(thread) = thread else { break };
        match thread.jobs.send(job) {
            Ok(()) => return Ok(()),
            Err(returned) => job = returned.0,
        }
    }
    let (sender, jobs) = channel();
    let own = sender.clone();
    let builder = std::thread::Builder::new().name("gpux-aside".to_owned()).stack_size(STACK);
    match builder.spawn(move || work(&own, &jobs)) {
        Ok(_) => sender.send(job).map_err(|returned| returned.0),
        Err(_) => Err(job),
    }
}

/// The processor time of the calling thread, so that a bound means the same on a busy machine and on an idle one. On
/// systems other than Linux, the wall clock.
pub fn processor_time() -> Duration {
    #[cfg(target_os = "linux")]
    let time = Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime));
    #[cfg(not(target_os = "linux"))]
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.unwrap_or_default()
}

/// Starts a thread that ends by itself; the error says which one there cannot be.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    let refused = |error: io::Error| io::Error::new(error.kind(), format!("the thread `{name}` cannot start: {error}"));
    started.map(drop).map_err(refused)
}

/// Fails unless the system lets the process start this many more threads.
pub fn require(needed: usize) -> io::Result<()> {
    let startable = startable(needed);
    if startable == needed {
        return Ok(());
    }
    let message = format!(
        "{needed} threads are needed, and the system lets this process start {startable}; raise the limit of processes \
         (`ulimit -u`, or the container's `pids` limit)"
    );
    Err(io::Error::new(io::ErrorKind::WouldBlock, message))
}

/// Counts how many of this many more threads the system lets the process start. They are started, and have ended
/// when this returns.
pub fn startable(most: usize) -> usize {
    const SMALL: usize = 64 << 10;
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let closed = gate.lock();
        let start = |_| {
            let thread = std::thread::Builder::new().stack_size(SMALL);
            thread.spawn_scoped(scope, || drop(gate.lock())).ok()
        };
        let started: Vec<_> = (0..most).map_while(start).collect();
        drop(closed);
        // Joined, they are gone from the system, too.
        started.into_iter().filter_map(|thread| thread.join().ok()).count()
    })
}

fn work(sender: &Sender<Job>, jobs: &Receiver<Job>) {
    static NUMBERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut job = jobs.recv().ok();
    while let Some(work) = job {
        // Jobs tell their caller themselves that they failed.
        if catch_panic(work) == Ok(ControlFlow::Break(())) {
            return;
        }
        waiting().push(Waiting { number, jobs: sender.clone() });
        job = next(number, jobs);
    }
}

/// The next job; `None` when none came for long enough, and none can come any more.
fn next(number: u64, jobs: &Receiver<Job>) -> Option<Job> {
    let until = Instant::now() + IDLE;
    loop {
        if let Ok(job) = jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
            return Some(job);
        }
        let mut waiting = waiting();
        let Some(place) = waiting.iter().position(|thread| thread.number == number) else {
            // Taken off the list: its job is on the way.
            drop(waiting);
            return jobs.recv().ok();
        };
        if Instant::now() >= until {
            waiting.remove(place);
            return None;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_panicking_job_leaves_others_running() {
        let (done, ended) = channel();
        for number in 0..50 {
            let done = done.clone();
            let job = move || {
                done.send(number).unwrap();
                assert!(number % 7 != 0, "asked to");
                if number % 5 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            assert!(start(Box::new(job)).is_ok());
        }
        let mut numbers: Vec<_> = ended.iter().take(50).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..50));
    }
}
