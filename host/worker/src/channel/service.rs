//! The worker's side of the shared memory.

use std::io;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::client::{MAX_CALLS, MAX_ERROR, MAX_TRACE};
use super::{Area, ChannelMemory, SLOTS, monotonic_nanos, state};
use crate::trace::Trace;
use crate::transfer::{self, read_u8, read_u32, read_u64, write_bytes, write_u32, write_u64};
use gpux_core::{CancelFlag, Outputs, Request, RunError, WaitObserver};
use gpux_shared_memory::{wait, wake};

use super::StepTime;

/// Takes requests from the shared memory.
#[derive(Clone, Debug)]
pub(crate) struct RequestService(Arc<WorkerSide>);

#[derive(Debug)]
struct WorkerSide {
    memory: ChannelMemory,
    /// rung when a request is answered for which a task of the server waits
    event: OwnedFd,
    /// the slot that is looked at first
    next: AtomicUsize,
}

impl WorkerSide {
    /// Changes the state of a slot, and wakes the thread that waits for it. A task waits for answers alone.
    fn set(&self, slot: usize, to: u32) -> io::Result<()> {
        let header = self.memory.header(slot);
        let word = header.state()?;
        word.store(to, Ordering::SeqCst);
        if header.has_task()?.load(Ordering::SeqCst) == 0 {
            wake(word, 1);
        } else if to == state::ANSWERED {
            self.memory.answered(slot / 32)?.fetch_or(1 << (slot % 32), Ordering::SeqCst);
            if self.memory.is_listening()?.swap(0, Ordering::SeqCst) != 0 {
                rustix::io::write(&self.event, &1_u64.to_ne_bytes())?;
            }
        }
        Ok(())
    }
}

/// A request that a thread of the worker has taken.
pub(crate) struct IncomingRequest {
    side: Arc<WorkerSide>,
    slot: usize,
    pub(crate) values: Request,
    pub(crate) deadline: Option<Instant>,
    pub(crate) priority: i32,
    pub(crate) is_traced: bool,
    has_waits: bool,
}

impl RequestService {
    /// `event` is what the worker rings.
    pub(crate) fn new(memory: ChannelMemory, event: OwnedFd) -> Self {
        Self(Arc::new(WorkerSide { memory, event, next: AtomicUsize::new(0) }))
    }

    /// Waits for the next request; `None` if none came within `patience` and another thread waits as well.
    pub(crate) fn next(&self, patience: Duration) -> io::Result<Option<IncomingRequest>> {
        let memory = &self.0.memory;
        loop {
            let doorbell = memory.doorbell()?;
            let seen = doorbell.load(Ordering::SeqCst);
            memory.is_ringing()?.store(0, Ordering::SeqCst);
            if let Some(slot) = self.take()? {
                self.resume();
                return IncomingRequest::read(&self.0, slot).map(Some);
            }
            let idle = memory.idle_threads()?;
            // Counted before the word is compared, so that a request in between rings.
            idle.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            wait(doorbell, seen, Some(patience));
            let others_wait = |idle: u32| (idle > 1).then(|| idle - 1);
            let is_late = begun.elapsed() >= patience && doorbell.load(Ordering::SeqCst) == seen;
            if is_late && idle.fetch_update(Ordering::SeqCst, Ordering::SeqCst, others_wait).is_ok() {
                return Ok(None);
            }
            idle.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The thread that took a request is done with it, or waits for others.
    pub(crate) fn leave(&self) {
        // The word is within the memory, so this does not fail.
        let _ = self.0.memory.running_threads().map(|threads| threads.fetch_sub(1, Ordering::SeqCst));
    }

    /// The thread goes on.
    pub(crate) fn resume(&self) {
        let _ = self.0.memory.running_threads().map(|threads| threads.fetch_add(1, Ordering::SeqCst));
    }

    /// Whether no thread waits for requests.
    pub(crate) fn is_busy(&self) -> io::Result<bool> {
        Ok(self.0.memory.idle_threads()?.load(Ordering::SeqCst) == 0)
    }

    /// The next slot with a request, in turn: the lowest would have those above it wait as long as it is used.
    pub(super) fn take(&self) -> io::Result<Option<usize>> {
        const WORDS: usize = SLOTS / 32;
        let from = self.0.next.load(Ordering::Relaxed) % SLOTS;
        let above = u32::MAX << (from % 32);
        // The first word's lower part comes last.
        for step in 0..=WORDS {
            let index = (from / 32 + step) % WORDS;
            let part = match step {
                0 => above,
                WORDS => !above,
                _ => u32::MAX,
            };
            let word = self.0.memory.queued(index)?;
            let mut bits = word.load(Ordering::SeqCst) & part;
            while bits != 0 {
                let bit = bits.trailing_zeros();
                if word.fetch_and(!(1 << bit), Ordering::SeqCst) & (1 << bit) != 0 {
                    let slot = index * 32 + bit as usize;
                    self.0.next.store(slot + 1, Ordering::Relaxed);
                    return Ok(Some(slot));
                }
                bits = word.load(Ordering::SeqCst) & part;
            }
        }
        Ok(None)
    }
}

impl IncomingRequest {
    fn read(side: &Arc<WorkerSide>, slot: usize) -> io::Result<Self> {
        let memory = &side.memory;
        let header = memory.header(slot);
        header.state()?.store(state::RUNNING, Ordering::Release);
        let mut area = memory.request(slot).limited(header.len()?.load(Ordering::Acquire));
        let deadline = read_u64(&mut area)?;
        let priority = read_u32(&mut area)?.cast_signed();
        let (is_traced, has_waits) = (read_u8(&mut area)? != 0, read_u8(&mut area)? != 0);
        let values = transfer::read_values(&mut area, usize::MAX)?;
        area.release();
        let left = Duration::from_nanos(deadline.saturating_sub(monotonic_nanos()));
        let deadline = if deadline == u64::MAX { None } else { Instant::now().checked_add(left) };
        Ok(Self { side: side.clone(), slot, values, deadline, priority, is_traced, has_waits })
    }

    /// Cancels the run when the client has gone.
    pub(crate) fn cancelled(&self) -> Arc<dyn CancelFlag> {
        Arc::new(RequestSlot { side: self.side.clone(), slot: self.slot })
    }

    /// Tells the server when the request waits for others, if the server wants to know.
    pub(crate) fn waits(&self) -> Option<Arc<dyn WaitObserver>> {
        self.has_waits.then(|| Arc::new(RequestSlot { side: self.side.clone(), slot: self.slot }) as _)
    }

    /// Notes the step that begins, from 1: if it ends the process, the server knows which it was.
    pub(crate) fn note_step(&self, number: u32) {
        if let Ok(word) = self.side.memory.header(self.slot).step() {
            word.store(number, Ordering::Relaxed);
        }
    }

    /// Writes the response and wakes the server.
    pub(crate) fn answer(
        &self,
        result: &Result<Outputs, RunError>,
        steps: &[StepTime],
        trace: Option<&Trace>,
    ) -> io::Result<()> {
        let mut area = self.side.memory.response(self.slot);
        if let Err(error) = write_response(&mut area, result, steps, trace) {
            area.release();
            area = self.side.memory.response(self.slot);
            let message = format!("the results of an isolated pipeline take at most {} MiB: {error}", area.len >> 20);
            write_response(&mut area, &Err(crate::step_failure(message)), steps, None)?;
        }
        self.side.memory.header(self.slot).len()?.store(area.done as u64, Ordering::Release);
        self.side.set(self.slot, state::ANSWERED)
    }
}

fn write_response(
    area: &mut Area<'_>,
    result: &Result<Outputs, RunError>,
    steps: &[StepTime],
    trace: Option<&Trace>,
) -> io::Result<()> {
    area.write_all(&[result.is_err().into()])?;
    write_u32(area, steps.len() as u32)?;
    for step in steps {
        let nanos = u64::try_from(step.time.as_nanos()).unwrap_or(u64::MAX) & (u64::MAX >> 1);
        write_u64(area, nanos | u64::from(step.has_failed) << 63)?;
        write_u32(area, step.texts.truncated)?;
        write_u64(area, step.texts.tokens)?;
    }
    write_bytes(area, &calls_to_json(steps)?)?;
    let trace = trace.map(serde_json::to_vec).transpose()?.filter(|trace| trace.len() <= MAX_TRACE);
    write_bytes(area, &trace.unwrap_or_default())?;
    match result {
        Ok(outputs) => transfer::write_values(area, outputs),
        Err(error) => {
            let mut json = serde_json::to_vec(error)?;
            if json.len() > MAX_ERROR {
                json = serde_json::to_vec(&crate::step_failure("its error is too long to be told".to_owned()))?;
            }
            write_bytes(area, &json)
        }
    }
}

/// The calls that each step made of others; nothing if no step made any.
fn calls_to_json(steps: &[StepTime]) -> io::Result<Vec<u8>> {
    if steps.iter().all(|step| step.calls.is_empty()) {
        return Ok(Vec::new());
    }
    let calls: Vec<_> = steps.iter().map(|step| &step.calls).collect();
    // Too many of them are left out, since the result matters more.
    Ok(Some(serde_json::to_vec(&calls)?).filter(|json| json.len() <= MAX_CALLS).unwrap_or_default())
}

/// The slot of a request: tells the server that the request waits, and the run whether it was cancelled.
struct RequestSlot {
    side: Arc<WorkerSide>,
    slot: usize,
}

impl CancelFlag for RequestSlot {
    fn is_cancelled(&self) -> bool {
        self.side.memory.header(self.slot).cancelled_flag().is_ok_and(CancelFlag::is_cancelled)
    }
}

impl WaitObserver for RequestSlot {
    fn begin(&self) {
        // The slot is within the memory, so this does not fail.
        let _ = self.side.set(self.slot, state::PAUSED);
    }

    fn end(&self, delegated_work: Duration) {
        let nanos = u64::try_from(delegated_work.as_nanos()).unwrap_or(u64::MAX);
        if let Ok(word) = self.side.memory.header(self.slot).delegated_work() {
            word.fetch_add(nanos, Ordering::Relaxed);
        }
        let _ = self.side.set(self.slot, state::RUNNING);
    }
}
