//! Selects the waiting requests that join the leader's batch.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use super::BatchOptions;
use super::batch_costs::BatchCosts;
use super::request::Request;

/// Padding may cost at most one part in this many of the overhead that joining a batch saves.
const PADDING_DIVISOR: usize = 2;

/// The time and costs that a batch is selected by.
pub(super) struct BatchTiming<'a> {
    pub(super) now: Instant,
    pub(super) costs: &'a BatchCosts,
    /// a run's overhead in bytes of input; `None` while unknown
    pub(super) start: Option<usize>,
}

impl BatchTiming<'_> {
    /// Whether a run of so many rows of this size probably ends by then.
    fn ends_by(&self, deadline: Option<Instant>, rows: usize, row_bytes: usize) -> bool {
        let Some(deadline) = deadline else { return true };
        let longest = self.costs.longest(rows, row_bytes);
        longest.is_none_or(|longest| longest <= deadline.saturating_duration_since(self.now))
    }

    /// Whether the request is probably answered in time if it runs now, alone.
    pub(super) fn can_answer(&self, request: &Request) -> bool {
        self.ends_by(request.deadline, request.rows, request.row_bytes)
    }
}

/// Selects the leader and compatible requests, by priority, up to the most rows and tokens, the number of rows that costs
/// the least, and the rows that all of them can wait for. Texts nearest in length come first, as long as padding costs
/// less than it saves. While a run's overhead is unknown, only lengths of the same bucket share a batch.
pub(super) fn select_batch(
    waiting: &[Arc<Request>],
    leader: &Arc<Request>,
    options: &BatchOptions,
    timing: &BatchTiming<'_>,
) -> Vec<Arc<Request>> {
    // Another leader has a session of its own.
    let compatible =
        |other: &&Arc<Request>| !Arc::ptr_eq(other, leader) && other.key == leader.key && other.is_waiting();
    let mut others: Vec<_> = waiting.iter().filter(compatible).collect();
    let length = |request: &Request| request.length.map_or(0, |length| options.shapes.length(length));
    // A stable order: for the rest it is that of the queue.
    others.sort_by_key(|other| (Reverse(other.priority), length(other).abs_diff(length(leader))));
    let (mut rows, mut longest) = (leader.rows, length(leader));
    let mut together = vec![leader.clone()];
    for other in others {
        let longer = longest.max(length(other));
        let more = rows + other.rows;
        if more > options.max_size || options.tokens(more, longer) > options.max_tokens {
            continue;
        }
        let padding = (longer - longest) * rows + (longer - length(other)) * other.rows;
        let pays = match timing.start {
            Some(start) => padding.saturating_mul(leader.bytes_per_token) <= start / PADDING_DIVISOR,
            None => bucket(length(other)) == bucket(length(leader)),
        };
        if pays {
            rows = more;
            longest = longer;
            together.push(other.clone());
        }
    }
    let row_bytes = leader.row_bytes + (longest - length(leader)) * leader.bytes_per_token;
    limit_rows(&mut together, row_bytes, options, timing);
    together
}

/// Leaves the requests, the leader first, that cost the least a row together and are all answered in time.
fn limit_rows(together: &mut Vec<Arc<Request>>, row_bytes: usize, options: &BatchOptions, timing: &BatchTiming<'_>) {
    let available = together.iter().map(|request| request.rows).sum();
    // Runs of given shapes are as large as allowed.
    let most = if options.shapes.is_empty() {
        timing.costs.choose_rows(row_bytes, available, options.max_size)
    } else {
        options.max_size
    };
    let (mut rows, mut deadline) = (0, None);
    together.retain(|request| {
        let more = rows + request.rows;
        let earliest = [deadline, request.deadline].into_iter().flatten().min();
        let is_leader = rows == 0;
        let fits = more <= most && timing.ends_by(earliest, options.shapes.size(more), row_bytes);
        if is_leader || fits {
            (rows, deadline) = (more, earliest);
        }
        is_leader || fits
    });
}

/// Whether no further request fits into this batch.
pub(super) fn is_full(batch: &[Arc<Request>], options: &BatchOptions) -> bool {
    let rows: usize = batch.iter().map(|request| request.rows).sum();
    let longest = batch.iter().filter_map(|request| request.length).max();
    rows >= options.max_size || longest.is_some_and(|longest| options.tokens(rows + 1, longest) > options.max_tokens)
}

/// Buckets of lengths that share a batch while costs are unknown: the longest of a bucket is at most a quarter
/// longer than the next bucket's end, so padding costs little.
fn bucket(length: usize) -> usize {
    let step = (length.next_power_of_two() / 8).max(8);
    length.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::request::testing::{text, until_deadline, urgent};
    use super::*;
    use crate::batch::ShapeLadder;

    /// The lengths that are batched with the first request.
    fn with_first(lengths: &[usize], most: usize, start: Option<usize>) -> Vec<usize> {
        let waiting: Vec<_> = lengths.iter().map(|length| text(*length)).collect();
        let options = BatchOptions { max_size: most, ..BatchOptions::default() };
        let costs = BatchCosts::default();
        let batch = select_batch(&waiting, &waiting[0], &options, &timing(&costs, start));
        batch.iter().filter_map(|request| request.length).collect()
    }

    fn timing(costs: &BatchCosts, start: Option<usize>) -> BatchTiming<'_> {
        BatchTiming { now: Instant::now(), costs, start }
    }

    #[test]
    fn batches_by_bucket_while_overhead_is_unknown() {
        assert_eq!(with_first(&[5, 8, 9, 6, 100], 8, None), [5, 6, 8]);
        assert_eq!(with_first(&[100, 97, 113, 128, 96], 8, None), [100, 97]);
    }

    #[test]
    fn limits_padding_by_run_overhead() {
        // A token of these texts is 16 bytes.
        let tokens = |tokens: usize| Some(tokens * 16 * PADDING_DIVISOR);
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 8, tokens(4)), [20, 20, 17, 24][..3], "24 would pad three");
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 8, tokens(0)), [20, 20]);
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 8, tokens(1000)), [20, 20, 17, 24, 60], "as on a GPU");
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 3, tokens(1000)), [20, 20, 17]);
        assert_eq!(with_first(&[20, 60], 8, Some(usize::MAX - 1)), [20, 60]);
    }

    #[test]
    fn limits_tokens_as_padded() {
        let lengths = |max_tokens, shapes| {
            let waiting: Vec<_> = [20, 21, 40, 20].into_iter().map(text).collect();
            let options = BatchOptions { max_size: 8, max_tokens, shapes, ..BatchOptions::default() };
            let costs = BatchCosts::default();
            let together = select_batch(&waiting, &waiting[0], &options, &timing(&costs, Some(usize::MAX)));
            together.iter().filter_map(|request| request.length).collect::<Vec<_>>()
        };
        assert_eq!(lengths(160, ShapeLadder::default()), [20, 20, 21, 40]);
        assert_eq!(lengths(159, ShapeLadder::default()), [20, 20, 21]);
        assert_eq!(lengths(95, ShapeLadder::new([32], [])), [20, 21], "each is 32 long");
        assert_eq!(lengths(83, ShapeLadder::new([], [1, 4])), [20, 20], "as four rows");
        assert_eq!(lengths(1, ShapeLadder::default()), [20], "alone it always runs");
    }

    #[test]
    fn every_request_of_a_batch_is_answered_in_time() {
        let now = Instant::now();
        let costs = BatchCosts::default();
        // 10 ms a row, with no spread.
        for rows in [1, 2, 4, 8] {
            let time = Duration::from_millis(10 * rows as u64);
            (0..50).for_each(|_| costs.record(false, rows, rows * text(10).row_bytes, time, true));
        }
        let timing = BatchTiming { now, costs: &costs, start: None };
        let options = BatchOptions { max_size: 8, ..BatchOptions::default() };
        let batch = |milliseconds: &[u64]| -> Vec<u64> {
            let until = |milliseconds| now + Duration::from_millis(milliseconds);
            let waiting: Vec<_> = milliseconds.iter().map(|time| until_deadline(10, until(*time))).collect();
            let batch = select_batch(&waiting, &waiting[0], &options, &timing);
            let left = |request: &Arc<Request>| request.deadline.map(|deadline| deadline - now);
            batch.iter().filter_map(left).map(|left| left.as_millis() as u64).collect()
        };
        assert_eq!(batch(&[100; 9]), [100; 8]);
        assert_eq!(batch(&[35, 200, 200, 200, 200]), [35, 200, 200], "the leader has 35 ms");
        assert_eq!(batch(&[200, 200, 25, 200, 35]), [200, 200, 200], "two of them run after this batch, or never");
        assert_eq!(batch(&[5, 200, 200]), [5], "nobody waits for one that is late");
        let late = until_deadline(10, now + Duration::from_millis(5));
        assert!(!timing.can_answer(&late) && timing.can_answer(&text(10)));
        assert!(timing.can_answer(&until_deadline(10, now + Duration::from_millis(11))));
    }

    #[test]
    fn prefers_priority_over_similar_length() {
        let waiting = [text(20), text(20), urgent(22)];
        let options = BatchOptions { max_size: 2, ..BatchOptions::default() };
        let together = select_batch(&waiting, &waiting[0], &options, &timing(&BatchCosts::default(), Some(10_000)));
        assert!(Arc::ptr_eq(&together[1], &waiting[2]));
    }
}
