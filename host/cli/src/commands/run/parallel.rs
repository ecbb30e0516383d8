//! Runs the items of a batch on several threads and returns their results in order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Results per thread that may wait for an earlier one.
const RESULTS_PER_THREAD: usize = 8;

/// Runs `work` on each item, on up to `threads` threads, and passes the results to `each`, on this thread
/// and in the items' order, until `each` breaks.
pub(super) fn run<I: Send, T: Send, E>(
    items: impl Iterator<Item = I> + Send,
    threads: usize,
    work: impl Fn(I) -> T + Sync,
    mut each: impl FnMut(T) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    let source = ItemSource { items: Mutex::new((0, items)), is_done: AtomicBool::new(false) };
    let window = Window { written: Mutex::new(0), moved: Condvar::new(), size: threads * RESULTS_PER_THREAD };
    let (sender, results) = sync_channel(threads);
    thread::scope(|scope| {
        let start = |_| {
            let (sender, source, window, work) = (sender.clone(), &source, &window, &work);
            thread::Builder::new().spawn_scoped(scope, move || worker(source, window, work, &sender)).ok()
        };
        let started = (0..threads).map_while(start).count();
        drop(sender);
        let ended = match started {
            0 => alone(&source, &work, &mut each),
            _ => in_order(&results, &window, &mut each),
        };
        // Workers that wait for room, or to be heard, go.
        source.is_done.store(true, Ordering::Relaxed);
        window.move_to(usize::MAX);
        drop(results);
        ended
    })
}

fn worker<I, T>(
    source: &ItemSource<impl Iterator<Item = I>>,
    window: &Window,
    work: impl Fn(I) -> T,
    sender: &SyncSender<(usize, T)>,
) {
    while let Some((number, item)) = source.next() {
        window.wait_for(number);
        if source.is_done.load(Ordering::Relaxed) || sender.send((number, work(item))).is_err() {
            return;
        }
    }
}

/// The same on this thread, where no other can be started.
fn alone<I, T, E>(
    source: &ItemSource<impl Iterator<Item = I>>,
    work: impl Fn(I) -> T,
    each: &mut impl FnMut(T) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    while let Some((_, item)) = source.next() {
        if each(work(item))?.is_break() {
            break;
        }
    }
    Ok(())
}

fn in_order<T, E>(
    results: &Receiver<(usize, T)>,
    window: &Window,
    each: &mut impl FnMut(T) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    let mut early = BTreeMap::new();
    let mut next = 0;
    for (number, result) in results {
        early.insert(number, result);
        while let Some(result) = early.remove(&next) {
            if each(result)?.is_break() {
                return Ok(());
            }
            next += 1;
            window.move_to(next);
        }
    }
    Ok(())
}

/// Items, each taken by one worker.
struct ItemSource<I> {
    items: Mutex<(usize, I)>,
    is_done: AtomicBool,
}

impl<I: Iterator> ItemSource<I> {
    fn next(&self) -> Option<(usize, I::Item)> {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_done.load(Ordering::Relaxed) {
            return None;
        }
        let item = items.1.next()?;
        items.0 += 1;
        Some((items.0 - 1, item))
    }
}

/// Bounds how far workers run ahead of the slowest item.
struct Window {
    written: Mutex<usize>,
    moved: Condvar,
    size: usize,
}

impl Window {
    fn wait_for(&self, number: usize) {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let far = |written: &mut usize| number >= written.saturating_add(self.size);
        drop(self.moved.wait_while(written, far));
    }

    fn move_to(&self, written: usize) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written;
        self.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_results_in_order() {
        let mut given = Vec::new();
        let work = |number: u64| {
            // The later, the sooner.
            thread::sleep(std::time::Duration::from_micros(300_u64.saturating_sub(number)));
            number * 2
        };
        let each = |result| {
            given.push(result);
            Ok::<_, ()>(ControlFlow::Continue(()))
        };
        assert_eq!(run(0..500, 4, work, each), Ok(()));
        assert!(given.into_iter().eq((0..500).map(|number| number * 2)));
    }

    #[test]
    fn stops_early_without_reading_every_item() {
        let mut given = Vec::new();
        let each = |number: u32| {
            given.push(number);
            if number == 3 { Err("enough") } else { Ok(ControlFlow::Continue(())) }
        };
        assert_eq!(run(0.., 4, |number| number, each), Err("enough"));
        assert_eq!(given, [0, 1, 2, 3]);
        let stop =
            |number: u32| Ok::<_, ()>(if number == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        assert_eq!(run(0.., 4, |number| number, stop), Ok(()));
    }
}
