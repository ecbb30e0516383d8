//! Measured costs of runs by their number of rows: which batch ends in time, and which is the cheapest a row.
//!
//! Rows of more than one core's cache cost more in a large batch than in a small one, and on a device a large batch costs
//! as much as one row. So it is measured, for rows of about one size and for sessions of each width.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpux_core::MovingEstimate;

/// Added to each run, for waking the threads of its requests, in seconds.
const OVERHEAD: f64 = 40e-6;
/// A smaller batch is preferred to a larger one if a row costs this much less.
const GAIN: f64 = 0.98;
/// Runs of a size before it is compared.
const RUNS: u32 = 3;
/// Of so many runs, one has another size than the best, to see whether that is still so.
const EXPLORATION: u32 = 32;

/// The costs of a model's runs.
#[derive(Default)]
pub(super) struct BatchCosts {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    tables: BTreeMap<TableKey, Table>,
    /// whether the latest run was single-threaded
    is_single_threaded: bool,
}

/// Runs that are comparable: on sessions of one width, with rows between a power of two and the next in size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TableKey {
    is_single_threaded: bool,
    row_bytes: u32,
}

#[derive(Default)]
struct Table {
    /// seconds for a byte of input, in runs of up to 1, 2, 4, … rows
    sizes: Vec<MovingEstimate>,
    /// choices of a size while more requests waited
    choices: u32,
}

/// The index in [`Table::sizes`].
const fn size_class(rows: usize) -> usize {
    rows.next_power_of_two().trailing_zeros() as usize
}

impl BatchCosts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a run of these rows, of this many bytes in all. One that the deadline ended would have taken longer:
    /// it counts if it took longer than expected.
    pub(super) fn record(
        &self,
        is_single_threaded: bool,
        rows: usize,
        bytes: usize,
        time: Duration,
        is_complete: bool,
    ) {
        let mut inner = self.lock();
        inner.is_single_threaded = is_single_threaded;
        let sizes = &mut inner.table(bytes / rows.max(1)).sizes;
        let class = size_class(rows);
        if sizes.len() <= class {
            sizes.resize(class + 1, MovingEstimate::default());
        }
        let cost = (time.as_secs_f64() + OVERHEAD) / bytes.max(rows) as f64;
        if is_complete || sizes[class].mean().is_none_or(|mean| cost > mean) {
            sizes[class].record(cost);
        }
    }

    /// The time that few runs of so many rows of this size exceed; `None` while unknown. Sizes that were not measured are
    /// estimated by the next smaller one, else by the next larger one.
    pub(super) fn longest(&self, rows: usize, row_bytes: usize) -> Option<Duration> {
        let mut inner = self.lock();
        let sizes = &inner.table(row_bytes).sizes;
        let class = size_class(rows).min(sizes.len().saturating_sub(1));
        let smaller = sizes.get(..=class)?.iter().rev().find_map(MovingEstimate::upper);
        let cost = smaller.or_else(|| sizes[class..].iter().find_map(MovingEstimate::upper))?;
        Duration::try_from_secs_f64(cost * (rows * row_bytes.max(1)) as f64).ok()
    }

    /// The most rows of the next run, at most `max`, where `waiting` rows of this size could run together: as many as
    /// cost the least a row. Each size is tried first, and its neighbours now and then.
    pub(super) fn choose_rows(&self, row_bytes: usize, waiting: usize, max: usize) -> usize {
        let available = size_class(waiting.min(max));
        let mut inner = self.lock();
        let table = inner.table(row_bytes);
        let cost = |class: usize| table.sizes.get(class).filter(|size| size.count() >= RUNS)?.mean();
        let rows = |class: usize| max.min(1 << class);
        if let Some(untried) = (0..=available).rev().find(|class| cost(*class).is_none()) {
            return rows(untried);
        }
        let mut best = (size_class(max), f64::INFINITY);
        for class in (0..=size_class(max)).rev() {
            if let Some(cost) = cost(class)
                && cost < best.1 * GAIN
            {
                best = (class, cost);
            }
        }
        let best = best.0;
        if available < best {
            return rows(best);
        }
        table.choices = table.choices.wrapping_add(1);
        match table.choices % (2 * EXPLORATION) {
            0 if best > 0 => rows(best - 1),
            EXPLORATION if best < available => rows(best + 1),
            _ => rows(best),
        }
    }
}

impl Inner {
    /// The table of rows of this size, on sessions as the latest run had.
    fn table(&mut self, row_bytes: usize) -> &mut Table {
        let key = TableKey { is_single_threaded: self.is_single_threaded, row_bytes: row_bytes.max(1).ilog2() };
        self.tables.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW_BYTES: usize = 1000;
    const MAX: usize = 16;

    /// Runs as chosen, with `waiting` rows, by these milliseconds for a number of rows; returns the sizes.
    fn run(costs: &BatchCosts, runs: usize, waiting: usize, time: impl Fn(usize) -> f64) -> Vec<usize> {
        let run = |_| {
            let rows = costs.choose_rows(ROW_BYTES, waiting, MAX).min(waiting);
            costs.record(false, rows, rows * ROW_BYTES, Duration::from_secs_f64(time(rows) / 1e3), true);
            rows
        };
        (0..runs).map(run).collect()
    }

    fn share(sizes: &[usize], rows: usize) -> f64 {
        sizes.iter().filter(|size| **size == rows).count() as f64 / sizes.len() as f64
    }

    #[test]
    fn chooses_the_cheapest_size() {
        // Overhead, as on a device: all at once.
        let costs = BatchCosts::default();
        run(&costs, 30, 40, |rows| 10.0 + 0.1 * rows as f64);
        assert!(share(&run(&costs, 200, 40, |rows| 10.0 + 0.1 * rows as f64), 16) > 0.97);
        // No gain by batches: as large as they can be, too.
        let costs = BatchCosts::default();
        run(&costs, 30, 40, |rows| 10.0 * rows as f64);
        assert!(share(&run(&costs, 200, 40, |rows| 10.0 * rows as f64), 16) > 0.97);
        // More than the cache: two by two.
        let per_row = |rows: usize| [0.0, 12.0, 10.0][rows.min(2)] + if rows > 2 { 1.0 } else { 0.0 };
        let costs = BatchCosts::default();
        run(&costs, 30, 40, |rows| per_row(rows) * rows as f64);
        assert!(share(&run(&costs, 200, 40, |rows| per_row(rows) * rows as f64), 2) > 0.9);
        // Another load on the machine.
        run(&costs, 4000, 40, |rows| 10.0 + rows as f64);
        assert!(share(&run(&costs, 200, 40, |rows| 10.0 + rows as f64), 16) > 0.9);
    }

    #[test]
    fn takes_what_waits_if_it_is_less() {
        let costs = BatchCosts::default();
        let sizes = run(&costs, 30, 5, |rows| 10.0 * rows as f64);
        assert!(share(&sizes[15..], 5) > 0.9, "{sizes:?}");
    }

    #[test]
    fn estimates_sizes_that_were_not_measured() {
        let costs = BatchCosts::default();
        let longest = |rows| costs.longest(rows, ROW_BYTES).map(|time| time.as_millis());
        assert_eq!(longest(1), None);
        let record = |rows: usize, milliseconds, is_complete| {
            (0..20).for_each(|_| {
                costs.record(false, rows, rows * ROW_BYTES, Duration::from_millis(milliseconds), is_complete);
            });
        };
        record(4, 40, true);
        assert_eq!((longest(1), longest(4), longest(3), longest(16)), (Some(10), Some(40), Some(30), Some(160)));
        record(16, 80, true);
        assert_eq!((longest(4), longest(16), longest(8)), (Some(40), Some(80), Some(80)));
        // Ended by the deadline: no faster than before, and slower.
        record(16, 20, false);
        assert_eq!(longest(16), Some(80));
        record(16, 240, false);
        assert!(longest(16).is_some_and(|time| time > 180), "{:?}", longest(16));
        // Sessions of another width have costs of their own.
        costs.record(true, 4, 4 * ROW_BYTES, Duration::from_millis(400), true);
        assert!(longest(1).is_some_and(|time| time >= 100), "{:?}", longest(1));
        assert_eq!(costs.longest(1, 8 * ROW_BYTES), None, "rows of another size");
    }
}
