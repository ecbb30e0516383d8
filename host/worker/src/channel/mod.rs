//! The shared memory between the server and a worker, in which requests and results lie.
//!
//! ```text
//! control │ slot headers │ request of slot 0 │ response of slot 0 │ request of slot 1 │ …
//! ```
//!
//! A slot is one request in flight. The server writes a request, marks the slot in the bitmap of queued slots, and rings
//! the doorbell, on which idle threads of the worker wait. Then a thread of the server waits on the slot's state, or a
//! task waits for the slot's bit in the bitmap of answered slots ([`answers`]). Both sides copy values in and out. The
//! server keeps which slots are in use in its own memory: a hostile worker can spoil its own results only.

mod answers;
mod client;
mod service;

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::transfer::BoundedRead;
use gpux_shared_memory::{OutOfBounds, SharedMemory};

pub use client::{BRIEFLY, CallOptions, Reply, StepTime};
pub(crate) use client::{ChannelClient, ChannelError, Lateness, SlotNumber};
pub(crate) use service::{IncomingRequest, RequestService};

/// The most requests in flight.
pub(crate) const SLOTS: usize = 512;

/// Requests and responses of at most this size keep their pages, so that the next of the slot needs no new ones.
const KEPT: usize = 1 << 20;

/// The size of a request, and of a response, at most. Only written pages take memory.
const AREA: usize = 1 << 30;

/// Areas are halved to this size where a process may not map that much.
const LEAST_AREA: usize = 64 << 20;

const DOORBELL: usize = 0;
const IDLE_THREADS: usize = 4;
const IS_LISTENING: usize = 8;
const IS_RINGING: usize = 12;
const RUNNING_THREADS: usize = 16;
/// a bit for each slot
const QUEUED: usize = 64;
/// the same
const ANSWERED: usize = 128;
const HEADERS: usize = 4096;
const HEADER: usize = 128;
const AREAS: usize = HEADERS + SLOTS * HEADER;

/// The state of a slot.
mod state {
    /// the request is in the queue, or the slot is not used
    pub(super) const QUEUED: u32 = 0;
    /// a thread of the worker runs the request
    pub(super) const RUNNING: u32 = 1;
    /// it waits for other requests, or for a model that runs several together
    pub(super) const PAUSED: u32 = 2;
    /// the response is there
    pub(super) const ANSWERED: u32 = 3;
    /// the worker has ended; the server writes this
    pub(super) const ENDED: u32 = 4;
}

/// The clock that both processes share, in nanoseconds.
fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.cast_unsigned())
}

/// The shared memory, with its parts.
#[derive(Debug)]
pub(crate) struct ChannelMemory {
    memory: SharedMemory,
    area: usize,
}

impl ChannelMemory {
    /// New memory, with areas as large as this process may map.
    pub(crate) fn create() -> io::Result<Self> {
        let mut area = AREA;
        loop {
            match SharedMemory::create(AREAS + 2 * SLOTS * area) {
                Ok(memory) => return Ok(Self { memory, area }),
                Err(error) if area <= LEAST_AREA => return Err(error),
                Err(_) => area /= 2,
            }
        }
    }

    /// The memory that the server created.
    pub(crate) fn open(file: std::os::fd::OwnedFd) -> io::Result<Self> {
        let memory = SharedMemory::open(file)?;
        let area = memory.len().saturating_sub(AREAS) / (2 * SLOTS);
        Ok(Self { memory, area })
    }

    /// The memory itself, to send it to the worker.
    pub(crate) const fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    fn doorbell(&self) -> Result<&AtomicU32, OutOfBounds> {
        self.memory.word(DOORBELL)
    }

    fn idle_threads(&self) -> Result<&AtomicU32, OutOfBounds> {
        self.memory.word(IDLE_THREADS)
    }

    /// Whether the doorbell was rung for a thread that has not looked at the queue since.
    fn is_ringing(&self) -> Result<&AtomicU32, OutOfBounds> {
        self.memory.word(IS_RINGING)
    }

    /// The threads that run a request, and look at the queue after it.
    fn running_threads(&self) -> Result<&AtomicU32, OutOfBounds> {
        self.memory.word(RUNNING_THREADS)
    }

    /// Whether the request of the slot waits in the queue.
    fn is_queued(&self, slot: usize) -> Result<bool, OutOfBounds> {
        Ok(self.queued(slot / 32)?.load(Ordering::SeqCst) & (1 << (slot % 32)) != 0)
    }

    /// Whether the worker is to ring when it has answered: the server listens.
    fn is_listening(&self) -> Result<&AtomicU32, OutOfBounds> {
        self.memory.word(IS_LISTENING)
    }

    /// The word of the bitmap of queued slots that has the bits of these 32.
    fn queued(&self, index: usize) -> Result<&AtomicU32, OutOfBounds> {
        self.memory.word(QUEUED + 4 * index)
    }

    /// The word of the bitmap of answered slots, for whose answers tasks wait, that has the bits of these 32.
    fn answered(&self, index: usize) -> Result<&AtomicU32, OutOfBounds> {
        self.memory.word(ANSWERED + 4 * index)
    }

    const fn header(&self, slot: usize) -> Header<'_> {
        Header { memory: &self.memory, at: HEADERS + slot * HEADER }
    }

    const fn request(&self, slot: usize) -> Area<'_> {
        Area { memory: &self.memory, at: AREAS + 2 * slot * self.area, len: self.area, done: 0 }
    }

    const fn response(&self, slot: usize) -> Area<'_> {
        Area { memory: &self.memory, at: AREAS + (2 * slot + 1) * self.area, len: self.area, done: 0 }
    }
}

/// The header of a slot.
#[derive(Clone, Copy)]
struct Header<'a> {
    memory: &'a SharedMemory,
    at: usize,
}

impl<'a> Header<'a> {
    fn state(self) -> Result<&'a AtomicU32, OutOfBounds> {
        self.memory.word(self.at)
    }

    /// Whether the client has gone. The worker alone reads it as a flag.
    fn cancelled(self) -> Result<&'a AtomicU32, OutOfBounds> {
        self.memory.word(self.at + 4)
    }

    fn cancelled_flag(self) -> Result<&'a AtomicBool, OutOfBounds> {
        self.memory.flag(self.at + 4)
    }

    /// The number of the step that runs, from 1.
    fn step(self) -> Result<&'a AtomicU32, OutOfBounds> {
        self.memory.word(self.at + 8)
    }

    /// Whether a task of the server waits, else a thread.
    fn has_task(self) -> Result<&'a AtomicU32, OutOfBounds> {
        self.memory.word(self.at + 12)
    }

    /// The length of the request, then of the response.
    fn len(self) -> Result<&'a AtomicU64, OutOfBounds> {
        self.memory.long(self.at + 16)
    }

    /// Nanoseconds that others worked for the request while it waited.
    fn delegated_work(self) -> Result<&'a AtomicU64, OutOfBounds> {
        self.memory.long(self.at + 24)
    }
}

/// The bytes of a request or a response, read or written from the start.
struct Area<'a> {
    memory: &'a SharedMemory,
    at: usize,
    len: usize,
    done: usize,
}

impl Area<'_> {
    /// The same, of `len` bytes at most.
    fn limited(self, len: u64) -> Self {
        Self { len: usize::try_from(len).unwrap_or(usize::MAX).min(self.len), ..self }
    }

    /// Gives back the pages beyond [`KEPT`] of which any is in use.
    fn release(&self) {
        if self.done > KEPT {
            // A failure would only keep them until the worker ends.
            let _ = self.memory.release(self.at + KEPT, self.done - KEPT);
        }
    }
}

impl Write for Area<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.len - self.done {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.memory.write(self.at + self.done, bytes)?;
        self.done += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Area<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.len - self.done);
        self.memory.read(self.at + self.done, &mut into[..len])?;
        self.done += len;
        Ok(len)
    }
}

impl BoundedRead for Area<'_> {
    fn left(&self) -> usize {
        self.len - self.done
    }

    /// Nothing: the worker trusts the server, which has bounded its requests.
    fn charge(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::RefCell;
    use std::time::{Duration, Instant};

    use tokio::time::timeout;

    use super::*;
    use gpux_core::{CallStatistics, Request};

    fn memory_of_worker(client: &ChannelClient) -> ChannelMemory {
        let [memory, _] = client.files();
        ChannelMemory::open(memory.try_clone_to_owned().unwrap()).unwrap()
    }

    fn service_of(client: &ChannelClient) -> RequestService {
        let [_, event] = client.files();
        RequestService::new(memory_of_worker(client), event.try_clone_to_owned().unwrap())
    }

    #[test]
    fn takes_requests_in_turn() {
        let client = ChannelClient::create().unwrap();
        let (service, memory) = (service_of(&client), memory_of_worker(&client));
        let queue = |slot: usize| memory.queued(slot / 32).unwrap().fetch_or(1 << (slot % 32), Ordering::SeqCst);
        for slot in [0, 1, 40, 511] {
            queue(slot);
        }
        let taken = std::iter::from_fn(|| {
            let slot = service.take().unwrap();
            if slot == Some(0) {
                queue(0);
            }
            slot
        });
        assert_eq!(taken.take(6).collect::<Vec<_>>(), [0, 1, 40, 511, 0, 0]);
    }

    #[test]
    fn lateness_of_steps_counts_from_their_beginning() {
        const WHILE: Duration = Duration::from_millis(100);
        let client = ChannelClient::create().unwrap();
        let service = service_of(&client);
        let taken = RefCell::new(None::<IncomingRequest>);
        // The worker takes the request, begins its step and answers long after the deadline.
        let overdue = |late: Lateness| {
            let mut taken = taken.borrow_mut();
            match &*taken {
                None if late.waiting < WHILE => assert!(late.running.is_zero(), "{late:?}"),
                None => *taken = service.next(Duration::ZERO).unwrap(),
                Some(_) if late.waiting < 2 * WHILE => assert!(late.running.is_zero(), "{late:?}"),
                Some(request) if late.running.is_zero() => request.note_step(1),
                Some(request) if late.running >= WHILE => request.answer(&Ok(Vec::new()), &[], None).unwrap(),
                Some(_) => {}
            }
        };
        let options = CallOptions { deadline: Some(Instant::now()), ..CallOptions::default() };
        assert!(client.call(&Request::default(), &options, overdue).unwrap().result.is_ok());
    }

    #[tokio::test]
    async fn tasks_wait_for_small_answers() {
        let client = ChannelClient::create().unwrap();
        let (service, hostile) = (service_of(&client), memory_of_worker(&client));
        let options = CallOptions::default();
        let slot = client.begin(&Request::default(), &options).unwrap();
        // It waits also while the request waits for others.
        let answered = async { client.answered(&slot, 1000, false).await };
        let answer = async {
            let request = service.next(Duration::ZERO).unwrap().unwrap();
            request.waits().unwrap().begin();
            tokio::task::yield_now().await;
            request.answer(&Ok(Vec::new()), &[], None).unwrap();
        };
        let len = tokio::join!(answered, answer).0.unwrap().unwrap();
        assert_eq!(client.answered(&slot, 4, false).await, Ok(None));

        // What the worker writes then changes neither the length nor whether this waits.
        hostile.header(0).state().unwrap().store(state::RUNNING, Ordering::SeqCst);
        hostile.header(0).len().unwrap().store(u64::MAX, Ordering::SeqCst);
        assert!(client.read_answer(slot, len, &options).unwrap().result.is_ok());

        // A thread goes on where the task waited in vain.
        let slot = client.begin(&Request::default(), &options).unwrap();
        assert!(timeout(Duration::ZERO, client.answered(&slot, 1000, false)).await.is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let request = service.next(Duration::from_mins(1)).unwrap().unwrap();
                request.answer(&Ok(Vec::new()), &[], None).unwrap();
            });
            assert!(client.finish(slot, &options, |_| {}).unwrap().result.is_ok());
        });

        let slot = client.begin(&Request::default(), &options).unwrap();
        let end = async { client.end() };
        assert_eq!(tokio::join!(client.answered(&slot, 1000, false), end).0, Ok(None));
        assert!(matches!(client.finish(slot, &options, |_| {}), Err(ChannelError::Ended { has_begun: false, .. })));
    }

    #[tokio::test]
    async fn tasks_wait_beside_a_worker_that_rings_in_vain() {
        let client = ChannelClient::create().unwrap();
        let (service, hostile) = (service_of(&client), memory_of_worker(&client));
        let [_, event] = client.files().map(|file| file.try_clone_to_owned().unwrap());
        let options = CallOptions::default();
        for round in 0..100_u64 {
            let slot = client.begin(&Request::default(), &options).unwrap();
            let answer = async {
                for _ in 0..round {
                    hostile.answered((round % 16) as usize).unwrap().store(!1, Ordering::SeqCst);
                    hostile.is_listening().unwrap().store(0, Ordering::SeqCst);
                    rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap();
                    tokio::task::yield_now().await;
                }
                hostile.is_listening().unwrap().store(1, Ordering::SeqCst);
                service.next(Duration::ZERO).unwrap().unwrap().answer(&Ok(Vec::new()), &[], None).unwrap();
            };
            let both = async { tokio::join!(client.answered(&slot, 1000, false), answer).0 };
            let len = timeout(Duration::from_mins(1), both).await.unwrap().unwrap().unwrap();
            assert!(client.read_answer(slot, len, &options).unwrap().result.is_ok());
        }
    }

    #[test]
    fn passes_calls_of_steps_within_bounds() {
        let client = ChannelClient::create().unwrap();
        let service = service_of(&client);
        let reply = |calls: &CallStatistics| {
            let steps = [StepTime::default(), StepTime { calls: calls.clone(), ..StepTime::default() }];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let request = service.next(Duration::from_mins(1)).unwrap().unwrap();
                    request.answer(&Ok(Vec::new()), &steps, None).unwrap();
                });
                client.call(&Request::default(), &CallOptions::default(), |_| {}).unwrap().steps
            })
        };

        let mut calls = CallStatistics::default();
        calls.record("resize", Duration::from_millis(3), true);
        let steps = reply(&calls);
        assert_eq!(steps.len(), 2);
        assert!(steps[0].calls.is_empty() && steps[1].calls == calls, "{steps:?}");

        // What a hostile process says is cut, or left out.
        calls.record(&"x".repeat(100_000), Duration::MAX, true);
        let steps = reply(&calls);
        assert_eq!(steps[1].calls.iter().last().map(|call| call.name.len()), Some(200));
        for name in 0..60 {
            calls.record(&format!("{name}{}", "x".repeat(10_000)), Duration::MAX, true);
        }
        assert!(reply(&calls).iter().all(|step| step.calls.is_empty()));
    }

    /// What a call comes to whose worker answers with these bytes; of memory, the server admits `memory` bytes.
    fn answered(bytes: &[u8], max_outputs: usize, memory: usize) -> Result<Reply, ChannelError> {
        let client = ChannelClient::create().unwrap();
        let worker = memory_of_worker(&client);
        let left = std::cell::Cell::new(memory);
        let admits = |bytes: usize| {
            let rest = left.get().checked_sub(bytes);
            left.set(rest.unwrap_or_default());
            rest.is_some()
        };
        // The answer is there before the call waits for it.
        let answer = |_| {
            let mut area = worker.response(0);
            area.write_all(bytes).unwrap();
            worker.header(0).len().unwrap().store(bytes.len() as u64, Ordering::Release);
            worker.header(0).state().unwrap().store(state::ANSWERED, Ordering::Release);
        };
        let options = CallOptions {
            deadline: Some(Instant::now()),
            max_outputs,
            admits: Some(&admits),
            ..CallOptions::default()
        };
        client.call(&Request::default(), &options, answer)
    }

    #[test]
    fn charges_answers_by_what_they_become() {
        /// No error, no steps, no calls, no trace.
        const BEGIN: [u8; 21] = [0; 21];
        let value = |kind: u8, rest: &[u8]| [&[1, 0, 0, 0][..], &[0; 8], &[kind], rest].concat();
        // 100,000 empty strings of 8 bytes.
        let count = 100_000_u64.to_ne_bytes();
        let strings = [&[13, 1][..], &count, &[0; 5], &vec![0; 800_000]].concat();
        let strings = [&BEGIN[..], &value(0, &strings)].concat();
        assert!(answered(&strings, 1, 4 << 20).unwrap().result.is_ok());
        assert!(matches!(answered(&strings, 1, 1 << 20), Err(ChannelError::NotAdmitted)));
        // A list of as many lists.
        let text = format!("[{}[]]", "[],".repeat(100_000));
        let json = [&BEGIN[..], &value(3, &[&(text.len() as u64).to_ne_bytes(), text.as_bytes()].concat())].concat();
        assert!(answered(&json, 1, 32 << 20).unwrap().result.is_ok());
        assert!(matches!(answered(&json, 1, 1 << 20), Err(ChannelError::NotAdmitted)));
        // Empty texts, where one output is declared.
        let many = [&BEGIN[..], &900_u32.to_ne_bytes(), &[0; 17 * 900]].concat();
        assert!(matches!(answered(&many, 1, 1 << 30), Err(ChannelError::Invalid(_))));
    }
}
