//! The server's side of the shared memory.

use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::answers::Answers;
use super::{Area, ChannelMemory, Header, SLOTS, monotonic_nanos, state};
use crate::trace::Trace;
use crate::transfer::{self, BoundedRead, read_bytes_within, read_u8, read_u32, read_u64, write_u32, write_u64};
use gpux_core::{CallStatistics, CancelFlag, Outputs, Request, RunError, TextCounts, WaitObserver, json_decoded_size};
use gpux_shared_memory::{OutOfBounds, wait, wake};

/// How often a waiting call looks whether its client has gone.
const POLL: Duration = Duration::from_millis(20);

/// How long the thread of a task waits for an answer, as for a request that runs on it.
pub const BRIEFLY: Duration = Duration::from_micros(100);

/// How long a request waits for the threads of the worker that run others, before another is woken.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The most pauses of a request that are told to the scheduler: more is a worker that wants to keep it busy.
const MAX_PAUSES: u32 = 1000;

/// More of the time between two looks is not the worker's: this thread had no processor, and the worker may have had
/// none either.
const MOST_BETWEEN_LOOKS: Duration = Duration::from_millis(40);

/// Answers up to this size, and as much memory for what they become, are read without asking; more is asked for in
/// steps of at least this size.
const SMALL: usize = 64 << 10;

/// The most bytes of an error: as JSON it takes many times its size in memory.
pub(super) const MAX_ERROR: usize = 256 << 10;

/// The same of a trace, which only some clients may ask for.
pub(super) const MAX_TRACE: usize = 16 << 20;

/// The same of the calls that steps made of others, which every response has: about 40 steps with as many names as are
/// told apart.
pub(super) const MAX_CALLS: usize = 256 << 10;

/// The most steps that a response reports.
const MAX_STEPS: u32 = 1 << 16;

/// Calls a worker.
#[derive(Debug)]
pub(crate) struct ChannelClient {
    memory: Arc<ChannelMemory>,
    answers: Answers,
    free: Mutex<Vec<usize>>,
    ended: AtomicBool,
}

/// How a request is run.
#[derive(Default)]
pub struct CallOptions<'a> {
    /// when it must be done; `None` for no limit
    pub deadline: Option<Instant>,
    /// where requests wait for each other, a greater one goes first
    pub priority: i32,
    /// notified when the request waits for others
    pub waits: Option<&'a dyn WaitObserver>,
    /// set when the client has gone
    pub cancelled: Option<&'a dyn CancelFlag>,
    /// whether each step's values are described
    pub is_traced: bool,
    /// the most values of an answer: a worker that sends more lies
    pub max_outputs: usize,
    /// asked whether a large answer may take this many bytes of memory, again and again while it is read; without it,
    /// any may
    pub admits: Option<&'a dyn Fn(usize) -> bool>,
}

/// How long a request has kept a worker after its deadline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    /// while its steps ran
    pub(crate) running: Duration,
    /// before its first step, or while it waited for others in the worker
    pub(crate) waiting: Duration,
}

/// The time of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTime {
    /// from its inputs to its outputs
    pub time: Duration,
    /// whether the request ended here
    pub has_failed: bool,
    /// counts of the texts that it read
    pub texts: TextCounts,
    /// the calls that it made of other steps
    pub calls: CallStatistics,
}

/// What a worker answers.
#[derive(Debug)]
pub struct Reply {
    /// the outputs, or the error of the pipeline
    pub result: Result<Outputs, RunError>,
    /// the steps that ran
    pub steps: Vec<StepTime>,
    /// if the request is traced
    pub trace: Option<Trace>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ChannelError {
    /// the worker has ended, while this step ran (from 1; 0 before the first)
    Ended {
        /// the number of the step
        step: u32,
        /// whether the worker had taken the request
        has_begun: bool,
    },
    /// the request is too large for the shared memory
    TooLarge(String),
    /// every slot is in use
    Full,
    /// the answer is too large for now
    NotAdmitted,
    /// the worker's answer cannot be read
    Invalid(io::Error),
}

impl From<OutOfBounds> for ChannelError {
    fn from(error: OutOfBounds) -> Self {
        Self::Invalid(error.into())
    }
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        Self::Invalid(error)
    }
}

/// The slot of a request that was sent.
#[derive(Debug)]
pub(crate) struct SlotNumber(usize);

/// A slot in use, free again when it is dropped.
struct UsedSlot<'a>(&'a ChannelClient, usize);

impl Drop for UsedSlot<'_> {
    fn drop(&mut self) {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.1);
    }
}

impl ChannelClient {
    pub(crate) fn create() -> io::Result<Self> {
        Ok(Self {
            memory: Arc::new(ChannelMemory::create()?),
            answers: Answers::new()?,
            free: Mutex::new((0..SLOTS).rev().collect()),
            ended: AtomicBool::new(false),
        })
    }

    /// What the worker opens: the memory, and the event that it rings.
    pub(crate) fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.memory().as_fd(), self.answers.event().as_fd()]
    }

    /// The memory that the channel takes, in bytes.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.memory.memory().used_bytes().unwrap_or_default()
    }

    /// Ends every call: the worker has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        for slot in 0..SLOTS {
            if let Ok(word) = self.memory.header(slot).state() {
                word.store(state::ENDED, Ordering::SeqCst);
                wake(word, 1);
            }
        }
        self.answers.end();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Sends a request for whose answer a task waits, by [`answered`](Self::answered), before a thread does. The worker
    /// learns of it then.
    pub(crate) fn begin(&self, request: &Request, options: &CallOptions<'_>) -> Result<SlotNumber, ChannelError> {
        self.answers.listen(&self.memory)?;
        self.send(request, options, true)
    }

    /// Sends a request; the slot in which it lies is used until its answer is read.
    fn send(&self, request: &Request, options: &CallOptions<'_>, has_task: bool) -> Result<SlotNumber, ChannelError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let slot = UsedSlot(self, free.ok_or(ChannelError::Full)?);
        self.write(slot.1, request, options, has_task)?;
        let number = SlotNumber(slot.1);
        std::mem::forget(slot);
        Ok(number)
    }

    /// Waits for an answer of at most `most` bytes, without a thread, and returns its size; `None` if it is larger, or
    /// the worker has ended. If it `is_alone`, the thread of the task waits first, for [`BRIEFLY`] at most.
    pub(crate) async fn answered(
        &self,
        slot: &SlotNumber,
        most: usize,
        is_alone: bool,
    ) -> Result<Option<usize>, OutOfBounds> {
        let header = self.memory.header(slot.0);
        if is_alone {
            self.ring()?;
            wait_briefly(header)?;
        } else {
            // Tasks that are ready send theirs, and one ring is for all.
            tokio::task::yield_now().await;
            self.ring_softly(slot.0)?;
        }
        let mut is_first = true;
        loop {
            match header.state()?.load(Ordering::SeqCst) {
                state::QUEUED if is_first => {
                    // What the worker runs may take long.
                    if timeout(LOOK_AGAIN, self.answers.wait(slot.0)).await.is_err() && self.memory.is_queued(slot.0)? {
                        self.ring()?;
                    }
                    is_first = false;
                }
                state::QUEUED | state::RUNNING | state::PAUSED => self.answers.wait(slot.0).await,
                state::ANSWERED => {
                    let len = usize::try_from(header.len()?.load(Ordering::Acquire));
                    return Ok(len.ok().filter(|len| *len <= most));
                }
                _ => return Ok(None),
            }
        }
    }

    /// Reads an answer of this size, which [`answered`](Self::answered) has seen, without waiting, whatever the
    /// worker does to the slot meanwhile.
    pub(crate) fn read_answer(
        &self,
        slot: SlotNumber,
        len: usize,
        options: &CallOptions<'_>,
    ) -> Result<Reply, ChannelError> {
        let slot = UsedSlot(self, slot.0);
        self.read(slot.1, len as u64, options)
    }

    /// Waits for the end of a request. `overdue` is called, again and again, while the answer is missing after the
    /// deadline.
    pub(crate) fn finish(
        &self,
        slot: SlotNumber,
        options: &CallOptions<'_>,
        overdue: impl Fn(Lateness),
    ) -> Result<Reply, ChannelError> {
        let slot = UsedSlot(self, slot.0);
        let header = self.memory.header(slot.1);
        // Before the state is read, so that the worker wakes this thread.
        header.has_task()?.store(0, Ordering::SeqCst);
        if self.memory.is_queued(slot.1)? {
            self.ring()?;
        }
        let result = self.receive(slot.1, header, options, overdue);
        if self.has_ended() && result.is_err() {
            let has_begun = !self.memory.is_queued(slot.1)?;
            return Err(ChannelError::Ended { step: header.step()?.load(Ordering::Relaxed), has_begun });
        }
        result
    }

    /// Runs a request in the worker and waits for its end, as [`finish`](Self::finish) does.
    pub(crate) fn call(
        &self,
        request: &Request,
        options: &CallOptions<'_>,
        overdue: impl Fn(Lateness),
    ) -> Result<Reply, ChannelError> {
        let slot = self.send(request, options, false)?;
        self.ring()?;
        self.finish(slot, options, overdue)
    }

    fn write(
        &self,
        slot: usize,
        request: &Request,
        options: &CallOptions<'_>,
        has_task: bool,
    ) -> Result<(), ChannelError> {
        // The thread that may wait after the task wants to know of waits.
        let has_waits = has_task || options.waits.is_some();
        let header = self.memory.header(slot);
        let mut area = self.memory.request(slot);
        let deadline = options.deadline.map_or(u64::MAX, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now()).as_nanos();
            monotonic_nanos().saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
        });
        let written = write_u64(&mut area, deadline)
            .and_then(|()| write_u32(&mut area, options.priority.cast_unsigned()))
            .and_then(|()| area.write_all(&[options.is_traced.into(), has_waits.into()]))
            .and_then(|()| transfer::write_values(&mut area, request));
        if written.is_err() {
            area.release();
            let most = area.len >> 20;
            return Err(ChannelError::TooLarge(format!("a request to an isolated pipeline takes at most {most} MiB")));
        }
        header.len()?.store(area.done as u64, Ordering::Relaxed);
        header.cancelled()?.store(0, Ordering::Relaxed);
        header.step()?.store(0, Ordering::Relaxed);
        header.delegated_work()?.store(0, Ordering::Relaxed);
        header.has_task()?.store(has_task.into(), Ordering::Relaxed);
        header.state()?.store(state::QUEUED, Ordering::SeqCst);
        self.memory.queued(slot / 32)?.fetch_or(1 << (slot % 32), Ordering::SeqCst);
        Ok(())
    }

    /// Wakes a thread of the worker that waits for requests, unless one was woken that has not looked yet.
    fn ring(&self) -> Result<(), OutOfBounds> {
        let doorbell = self.memory.doorbell()?;
        doorbell.fetch_add(1, Ordering::SeqCst);
        if self.memory.idle_threads()?.load(Ordering::SeqCst) > 0
            && self.memory.is_ringing()?.swap(1, Ordering::SeqCst) == 0
        {
            wake(doorbell, 1);
        }
        Ok(())
    }

    /// Lets the worker look at its queue, unless a thread of it will soon: one that runs a request.
    fn ring_softly(&self, slot: usize) -> Result<(), OutOfBounds> {
        if self.memory.is_queued(slot)? && self.memory.running_threads()?.load(Ordering::SeqCst) == 0 {
            self.ring()?;
        }
        Ok(())
    }

    fn receive(
        &self,
        slot: usize,
        header: Header<'_>,
        options: &CallOptions<'_>,
        overdue: impl Fn(Lateness),
    ) -> Result<Reply, ChannelError> {
        let word = header.state()?;
        let (mut paused, mut pauses) = (None::<Instant>, 0);
        let (mut seen, mut lateness, mut looked) = (state::QUEUED, Lateness::default(), Instant::now());
        let mut is_waiting = true;

        while !self.has_ended() {
            wait(word, seen, Some(POLL));
            seen = word.load(Ordering::Acquire);

            let late = options.deadline.and_then(|deadline| Instant::now().checked_duration_since(deadline));
            let has_begun = seen == state::RUNNING && header.step()?.load(Ordering::Relaxed) > 0;
            let was_waiting = std::mem::replace(&mut is_waiting, !has_begun);

            // Others may use the place of a request that does not run when it should have ended.
            let is_paused = seen == state::PAUSED || is_waiting && late.is_some() && seen != state::ANSWERED;
            if let Some(waits) = options.waits
                && paused.is_some() != is_paused
                && seen != state::ENDED
            {
                if let Some(since) = paused.take() {
                    let delegated_work = Duration::from_nanos(header.delegated_work()?.swap(0, Ordering::Relaxed));
                    waits.end(delegated_work.min(since.elapsed()));
                } else if pauses < MAX_PAUSES {
                    pauses += 1;
                    paused = Some(Instant::now());
                    waits.begin();
                }
            }

            if seen == state::ANSWERED {
                break;
            }
            if options.cancelled.is_some_and(CancelFlag::is_cancelled) {
                header.cancelled()?.store(1, Ordering::Relaxed);
            }

            let since = std::mem::replace(&mut looked, Instant::now());
            if let Some(late) = late {
                let time = looked.duration_since(since).min(late).min(MOST_BETWEEN_LOOKS);
                *if was_waiting { &mut lateness.waiting } else { &mut lateness.running } += time;
                overdue(lateness);
            }
        }

        if paused.is_some()
            && let Some(waits) = options.waits
        {
            waits.end(Duration::ZERO);
        }
        if self.has_ended() {
            return Err(ChannelError::Ended { step: 0, has_begun: true });
        }

        self.read(slot, header.len()?.load(Ordering::Acquire), options)
    }

    /// Reads an answer of this size.
    fn read(&self, slot: usize, len: u64, options: &CallOptions<'_>) -> Result<Reply, ChannelError> {
        let area = self.memory.response(slot).limited(len);
        let is_admitted = area.len <= SMALL || options.admits.is_none_or(|admits| admits(area.len));
        let mut answer = Answer { free: area.len.saturating_add(SMALL), is_admitted, area, admits: options.admits };
        let reply = is_admitted.then(|| read_reply(&mut answer, options.is_traced, options.max_outputs));
        let Answer { mut area, is_admitted, .. } = answer;
        area.done = area.len;
        area.release();
        if is_admitted { Ok(reply.ok_or(ChannelError::NotAdmitted)??) } else { Err(ChannelError::NotAdmitted) }
    }
}

/// Waits for an answer on the thread of its task, for [`BRIEFLY`] at most.
fn wait_briefly(header: Header<'_>) -> Result<(), OutOfBounds> {
    header.has_task()?.store(0, Ordering::SeqCst);
    let (word, begun) = (header.state()?, Instant::now());
    loop {
        let state = word.load(Ordering::SeqCst);
        let left = BRIEFLY.saturating_sub(begun.elapsed());
        if !matches!(state, state::QUEUED | state::RUNNING) || left.is_zero() {
            break;
        }
        wait(word, state, Some(left));
    }
    // Before the state is read again, so that the worker wakes the task.
    header.has_task()?.store(1, Ordering::SeqCst);
    Ok(())
}

/// The bytes of an answer, and the memory that it may take.
struct Answer<'a> {
    area: Area<'a>,
    /// bytes that may still be taken
    free: usize,
    admits: Option<&'a dyn Fn(usize) -> bool>,
    /// whether all that was asked for was admitted
    is_admitted: bool,
}

impl Read for Answer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.area.read(into)
    }
}

impl BoundedRead for Answer<'_> {
    fn left(&self) -> usize {
        self.area.left()
    }

    fn charge(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > self.free {
            let more = (bytes - self.free).max(SMALL);
            self.is_admitted = self.admits.is_none_or(|admits| admits(more));
            if !self.is_admitted {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.free += more;
        }
        self.free -= bytes;
        Ok(())
    }
}

fn read_reply(area: &mut Answer<'_>, is_traced: bool, max_outputs: usize) -> io::Result<Reply> {
    let is_error = read_u8(area)? != 0;
    let count = read_u32(area)?;
    if count > MAX_STEPS || count as usize * 12 > area.left() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many steps"));
    }
    area.charge(count as usize * size_of::<StepTime>())?;
    let mut steps = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let nanos = read_u64(area)?;
        // The highest bit says that the request ended here.
        let time = Duration::from_nanos(nanos & (u64::MAX >> 1));
        let texts = TextCounts { truncated: read_u32(area)?, tokens: read_u64(area)? };
        steps.push(StepTime { time, has_failed: nanos >> 63 == 1, texts, ..StepTime::default() });
    }
    let calls = read_json(area, MAX_CALLS, "a list of calls")?;
    if !calls.is_empty() {
        let calls: Vec<CallStatistics> = serde_json::from_slice(&calls)?;
        for (step, calls) in steps.iter_mut().zip(calls) {
            step.calls = calls.bounded();
        }
    }
    let trace = read_json(area, if is_traced { MAX_TRACE } else { 0 }, "a trace")?;
    let trace = if trace.is_empty() { None } else { Some(serde_json::from_slice(&trace)?) };
    let result = if is_error {
        Err(serde_json::from_slice(&read_json(area, MAX_ERROR, "an error")?)?)
    } else {
        Ok(transfer::read_values(area, max_outputs)?)
    };
    Ok(Reply { result, steps, trace })
}

/// Bytes of JSON, at most so many, and charged as what is made of them.
fn read_json(area: &mut Answer<'_>, most: usize, what: &str) -> io::Result<Vec<u8>> {
    let bytes = read_bytes_within(area, most, what)?;
    area.charge(json_decoded_size::parsed_bytes(&bytes))?;
    Ok(bytes)
}
