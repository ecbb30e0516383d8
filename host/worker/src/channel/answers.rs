//! Tasks of the server that wait for answers of a worker.
//!
//! One task for each worker listens to the event that the worker rings, and wakes those that wait for the slots that are
//! answered. The event is the worker's as well: it can spoil what it counts, and whether it blocks. So the server never
//! reads it, but learns from the system alone that it was rung.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use std::sync::atomic::Ordering;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{ChannelMemory, SLOTS};
use gpux_shared_memory::OutOfBounds;

/// The pause after rings without an answer, which an honest worker makes seldom.
const PAUSE: Duration = Duration::from_millis(1);

/// So many in a row are answered at once.
const IN_VAIN: u32 = 8;

/// Wakes tasks whose slots are answered.
#[derive(Debug)]
pub(super) struct Answers {
    event: OwnedFd,
    slots: Arc<[Notify]>,
    listener: Mutex<Option<AbortHandle>>,
}

impl Answers {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, slots: (0..SLOTS).map(|_| Notify::new()).collect(), listener: Mutex::default() })
    }

    /// What the worker rings.
    pub(super) const fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Wakes the tasks from now on. Fails outside a runtime of tokio.
    pub(super) fn listen(&self, memory: &Arc<ChannelMemory>) -> io::Result<()> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_some() {
            return Ok(());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let event = Receiver::from_owned_fd_unchecked(self.event.try_clone()?)?;
        *listener = Some(runtime.spawn(listen(event, memory.clone(), self.slots.clone())).abort_handle());
        Ok(())
    }

    /// Waits until the slot is answered, or the worker has ended. May return early.
    pub(super) async fn wait(&self, slot: usize) {
        if let Some(slot) = self.slots.get(slot) {
            slot.notified().await;
        }
    }

    /// Wakes every task: the worker has ended.
    pub(super) fn end(&self) {
        for slot in &*self.slots {
            slot.notify_one();
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let listener = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = listener {
            listener.abort();
        }
    }
}

/// `event` is no pipe, but the system tells of it as of one.
async fn listen(event: Receiver, memory: Arc<ChannelMemory>, slots: Arc<[Notify]>) {
    let mut in_vain = 0;
    loop {
        // Those that were woken run first; meanwhile, the worker need not ring.
        while wake_answered(&memory, &slots) == Ok(true) {
            in_vain = 0;
            tokio::task::yield_now().await;
        }
        let Ok(is_listening) = memory.is_listening() else { return };
        is_listening.store(1, Ordering::SeqCst);
        if wake_answered(&memory, &slots) == Ok(true) {
            in_vain = 0;
            continue;
        }
        in_vain += 1;
        if in_vain > IN_VAIN {
            tokio::time::sleep(PAUSE).await;
        }
        if event.readable().await.is_err() {
            return;
        }
        // What was rung until now is seen.
        let _ = event.try_io(|| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

/// Wakes the tasks of answered slots; returns whether there were any.
fn wake_answered(memory: &ChannelMemory, slots: &[Notify]) -> Result<bool, OutOfBounds> {
    let mut any = false;
    for (index, slots) in slots.chunks(32).enumerate() {
        let word = memory.answered(index)?;
        if word.load(Ordering::SeqCst) == 0 {
            continue;
        }
        let bits = word.swap(0, Ordering::SeqCst);
        for (bit, slot) in slots.iter().enumerate() {
            if bits >> bit & 1 == 1 {
                slot.notify_one();
                any = true;
            }
        }
    }
    Ok(any)
}
