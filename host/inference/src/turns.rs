//! Turns, where one thread of the process may be at a provider at a time.
//!
//! A wait for the turn ends at the request's deadline. Letting go of something never waits: while
//! another thread has the turn, that thread does it at the turn's end.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::background_work::Closing;

/// One for all that says that it must be alone.
static TURNS: Turns = Turns::new();

thread_local! {
    /// Whether this thread has the turn.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// The deadline came before the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late;

/// The turn of this thread, until this is dropped.
pub(super) struct Turn {
    turns: &'static Turns,
    /// the thread that took it gives it back
    here: PhantomData<*const ()>,
}

/// The turn of this thread, where it must be `alone`; nothing where it has it already.
pub(super) fn take(alone: bool, deadline: Option<Instant>) -> Result<Option<Turn>, Late> {
    if alone { TURNS.take(deadline) } else { Ok(None) }
}

struct Turns {
    state: Mutex<State>,
    free: Condvar,
}

struct State {
    taken: bool,
    /// what others have let go of meanwhile; whoever ends the process waits until it is gone
    left: Vec<(Box<dyn Any + Send>, Closing)>,
}

impl Turns {
    const fn new() -> Self {
        Self { state: Mutex::new(State { taken: false, left: Vec::new() }), free: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&'static self) -> Turn {
        HELD.set(true);
        Turn { turns: self, here: PhantomData }
    }

    fn take(&'static self, deadline: Option<Instant>) -> Result<Option<Turn>, Late> {
        if HELD.get() {
            return Ok(None);
        }
        let mut state = self.state();
        while state.taken {
            state = match deadline {
                None => self.free.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Late);
                    }
                    self.free.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.taken = true;
        drop(state);
        let turn = self.begin();
        // Whoever comes to it too late passes it on.
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) { Err(Late) } else { Ok(Some(turn)) }
    }

    fn let_go(&'static self, value: Box<dyn Any + Send>) {
        let mut state = self.state();
        if state.taken && !HELD.get() {
            state.left.push((value, Closing::begin()));
            return;
        }
        state.taken = true;
        drop(state);
        let _turn = (!HELD.get()).then(|| self.begin());
        drop(value);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        loop {
            let mut state = self.turns.state();
            if state.left.is_empty() {
                state.taken = false;
                break;
            }
            let left = std::mem::take(&mut state.left);
            drop(state);
            drop(left);
        }
        HELD.set(false);
        self.turns.free.notify_one();
    }
}

/// What must be used in turn, if it says that it must be `alone`, and is let go of in turn.
pub(super) struct InTurn<T: Send + 'static> {
    inner: Option<T>,
    alone: bool,
}

impl<T: Send + 'static> InTurn<T> {
    pub(super) fn new(inner: T, alone: bool) -> Self {
        Self { inner: Some(inner), alone }
    }

    /// What it holds, for whoever has the turn or needs none.
    pub(super) fn get(&self) -> Option<&T> {
        self.inner.as_ref()
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.inner.as_mut()
    }
}

impl<T: Send + 'static> Drop for InTurn<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take().filter(|_| self.alone) {
            TURNS.let_go(Box::new(inner));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    fn far() -> Option<Instant> {
        Instant::now().checked_add(Duration::from_mins(1))
    }

    #[test]
    fn a_wait_ends_with_the_turn_or_at_the_deadline() {
        static TURNS: Turns = Turns::new();
        let (taken, is_taken) = channel();
        let (end, ends) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _turn = TURNS.take(None).unwrap().unwrap();
                // Its own turn is no hindrance.
                assert!(TURNS.take(None).unwrap().is_none());
                taken.send(()).unwrap();
                let _ = ends.recv();
            });
            is_taken.recv().unwrap();
            let start = Instant::now();
            assert!(TURNS.take(start.checked_add(Duration::from_millis(20))).is_err());
            assert!((20..5000).contains(&start.elapsed().as_millis()));
            let waiting = scope.spawn(|| TURNS.take(far()).is_ok());
            drop(end);
            assert!(waiting.join().unwrap());
        });
        assert!(TURNS.take(Some(Instant::now())).is_err(), "late, though nobody has the turn");
        assert!(TURNS.take(far()).is_ok(), "who was late has passed it on");
    }

    #[test]
    fn many_take_turns() {
        static TURNS: Turns = Turns::new();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (inside, done) = (&inside, &done);
                scope.spawn(move || {
                    for _ in 0..500 {
                        // Some give up now and then, which stops nobody else.
                        let patience = Duration::from_micros(if thread == 0 { 1 } else { 60_000_000 });
                        let Ok(_turn) = TURNS.take(Instant::now().checked_add(patience)) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(usize::from(thread > 0), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 1500);
    }

    /// Tells where it is let go of.
    struct Told(std::sync::mpsc::Sender<std::thread::ThreadId>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
        }
    }

    #[test]
    fn the_end_of_the_process_waits_for_what_is_left() {
        static TURNS: Turns = Turns::new();
        let (told, tells) = channel();
        let turn = TURNS.take(None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| TURNS.let_go(Box::new(Told(told)))).join().unwrap();
            let waited = scope.spawn(move || {
                Closing::wait();
                tells.try_recv().is_ok()
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(turn);
            assert!(waited.join().unwrap());
        });
    }

    #[test]
    fn letting_go_waits_for_nobody() {
        static TURNS: Turns = Turns::new();
        let (told, tells) = channel();
        let here = std::thread::current().id();
        TURNS.let_go(Box::new(Told(told.clone())));
        assert_eq!(tells.try_recv(), Ok(here), "nobody has the turn");
        let turn = TURNS.take(None).unwrap();
        TURNS.let_go(Box::new(Told(told.clone())));
        assert_eq!(tells.try_recv(), Ok(here), "who has the turn need not wait for it");
        std::thread::scope(|scope| {
            scope.spawn(|| TURNS.let_go(Box::new(Told(told.clone())))).join().unwrap();
        });
        assert!(tells.try_recv().is_err(), "another has the turn");
        drop(turn);
        assert_eq!(tells.try_recv(), Ok(here), "who had the turn has let go of it");
    }
}
