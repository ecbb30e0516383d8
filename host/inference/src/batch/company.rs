//! Who of those that wait runs with the leader.

use std::cmp::Reverse;
use std::sync::Arc;

use super::request::Request;

/// Padding may cost half of what a request saves that need not begin a run of its own.
const SAVED: usize = 2;

/// The leader, and of those like it the most urgent, up to `most` rows. Of texts, the nearest in
/// length come first, and only as long as padding costs less than it saves: `start` is the bytes of
/// input that cost as much as beginning a run, where that is known. Where it is not, only lengths of
/// the same bucket run together.
pub(super) fn company(
    waiting: &[Arc<Request>],
    leader: &Arc<Request>,
    most: usize,
    start: Option<usize>,
) -> Vec<Arc<Request>> {
    // Another leader has a session of its own.
    let alike = |other: &&Arc<Request>| !Arc::ptr_eq(other, leader) && other.key == leader.key && other.is_idle();
    let mut others: Vec<_> = waiting.iter().filter(alike).collect();
    let length = |request: &Request| request.length.unwrap_or(0);
    // A stable order: for the rest it is that of the queue.
    others.sort_by_key(|other| (Reverse(other.priority), length(other).abs_diff(length(leader))));
    let (mut rows, mut longest) = (leader.rows, length(leader));
    let mut together = vec![leader.clone()];
    for other in others {
        if rows + other.rows > most {
            continue;
        }
        let longer = longest.max(length(other));
        let padding = (longer - longest) * rows + (longer - length(other)) * other.rows;
        let pays = match start {
            Some(start) => padding.saturating_mul(leader.bytes_a_token) <= start / SAVED,
            None => bucket(length(other)) == bucket(length(leader)),
        };
        if pays {
            rows += other.rows;
            longest = longer;
            together.push(other.clone());
        }
    }
    together
}

/// Lengths that run together where nothing is known: the longest of a bucket is at most a quarter
/// longer than the next bucket's end, so padding costs little.
fn bucket(length: usize) -> usize {
    let step = (length.next_power_of_two() / 8).max(8);
    length.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::super::request::testing::{text, urgent};
    use super::*;

    /// The lengths that run with the first of those that wait.
    fn with_first(lengths: &[usize], most: usize, start: Option<usize>) -> Vec<usize> {
        let waiting: Vec<_> = lengths.iter().map(|length| text(*length)).collect();
        company(&waiting, &waiting[0], most, start).iter().filter_map(|request| request.length).collect()
    }

    #[test]
    fn texts_of_a_bucket_run_together_as_long_as_nothing_is_known() {
        assert_eq!(with_first(&[5, 8, 9, 6, 100], 8, None), [5, 6, 8]);
        assert_eq!(with_first(&[100, 97, 113, 128, 96], 8, None), [100, 97]);
    }

    #[test]
    fn padding_must_cost_less_than_it_saves() {
        // A token of these texts is 16 bytes.
        let tokens = |tokens: usize| Some(tokens * 16 * SAVED);
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 8, tokens(4)), [20, 20, 17, 24][..3], "24 would pad three");
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 8, tokens(0)), [20, 20]);
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 8, tokens(1000)), [20, 20, 17, 24, 60], "as on a GPU");
        assert_eq!(with_first(&[20, 60, 24, 17, 20], 3, tokens(1000)), [20, 20, 17]);
        assert_eq!(with_first(&[20, 60], 8, Some(usize::MAX - 1)), [20, 60]);
    }

    #[test]
    fn the_urgent_come_before_the_near() {
        let waiting = [text(20), text(20), urgent(22)];
        let together = company(&waiting, &waiting[0], 2, Some(10_000));
        assert!(Arc::ptr_eq(&together[1], &waiting[2]));
    }
}
