//! Limits the wrong keys that an address may try.
//!
//! A valid key is never delayed, so every key must be checked; this module bounds how many. An address may try a few
//! wrong keys at once ([`FREE_ATTEMPTS`]). Each further one costs [`DELAY_PER_ATTEMPT`], and its response is delayed by the debt. Beyond a
//! debt of [`MAX_DELAY`], the address may only use keys that it has used before.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::scheduler::network;

/// Wrong keys that an address may try at once.
const FREE_ATTEMPTS: u32 = 20;

/// The delay that each further wrong key adds.
const DELAY_PER_ATTEMPT: Duration = Duration::from_millis(100);

/// The longest delay of a response. At a larger debt, new keys from the address are rejected. A client that waits for
/// each response never accumulates that debt, so it cannot make the server reject new keys.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The most addresses that are remembered.
const MAX_ADDRESSES: usize = 4096;

/// Wrong keys by address.
#[derive(Debug)]
pub(crate) struct FailedAttempts {
    start: Instant,
    /// by address, the time at which its debt is paid
    used: Mutex<HashMap<IpAddr, Instant>>,
    /// milliseconds after `start`, until which some address may exceed [`MAX_DELAY`]
    owed: AtomicU64,
}

impl FailedAttempts {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), used: Mutex::default(), owed: AtomicU64::new(0) }
    }

    /// Records a wrong key from this address; returns the delay of its response.
    pub(crate) fn add(&self, from: IpAddr, now: Instant) -> Duration {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let from = network(from);
        if used.len() >= MAX_ADDRESSES && !used.contains_key(&from) {
            used.retain(|_, until| *until > now);
            // The address with the smallest debt is forgotten.
            let least = used.iter().min_by_key(|(_, until)| **until).map(|(address, _)| *address);
            if let Some(least) = least.filter(|_| used.len() >= MAX_ADDRESSES) {
                used.remove(&least);
            }
        }
        let until = used.entry(from).or_insert(now);
        *until = (*until).max(now) + DELAY_PER_ATTEMPT;
        let debt = until.saturating_duration_since(now).saturating_sub(FREE_ATTEMPTS * DELAY_PER_ATTEMPT);
        if debt >= MAX_DELAY {
            let owed = self.milliseconds(*until);
            self.owed.fetch_max(owed, Ordering::Relaxed);
        }
        debt.min(MAX_DELAY)
    }

    /// How long new keys from this address are rejected; `None` if they are not.
    pub(crate) fn retry_after(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        // Usually no address has such a debt, and the lock is not taken.
        if self.owed.load(Ordering::Relaxed) <= self.milliseconds(now) {
            return None;
        }
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let debt =
            used.get(&network(from))?.saturating_duration_since(now).saturating_sub(FREE_ATTEMPTS * DELAY_PER_ATTEMPT);
        debt.checked_sub(MAX_DELAY)
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(number).into()
    }

    #[test]
    fn delays_responses_to_wrong_keys() {
        let (attempts, start) = (FailedAttempts::new(), Instant::now());
        let waits: Vec<_> = (0..FREE_ATTEMPTS + 3).map(|_| attempts.add(address(1), start).as_millis()).collect();
        assert!(waits[..FREE_ATTEMPTS as usize].iter().all(|wait| *wait == 0), "{waits:?}");
        assert_eq!(waits[FREE_ATTEMPTS as usize..], [100, 200, 300]);
        assert_eq!(attempts.add(address(2), start), Duration::ZERO, "another address");
        assert_eq!(attempts.add(address(1), start + Duration::from_mins(1)), Duration::ZERO, "later");
        assert_eq!(attempts.retry_after(address(1), start), None);
    }

    #[test]
    fn rejects_addresses_with_too_many_attempts() {
        let (attempts, start) = (FailedAttempts::new(), Instant::now());
        let mut heard = 0_u32;
        // A thousand attempts a second for ten seconds.
        for tried in 0..10_000 {
            let now = start + Duration::from_millis(tried);
            if attempts.retry_after(address(1), now).is_none() {
                assert!(attempts.add(address(1), now) <= MAX_DELAY);
                heard += 1;
            }
        }
        let most = FREE_ATTEMPTS + (MAX_DELAY.as_millis() + 10_000).div_ceil(DELAY_PER_ATTEMPT.as_millis()) as u32 + 1;
        assert!(heard <= most && heard >= most - 3, "{heard} of {most}");
        assert_eq!(attempts.retry_after(address(2), start + Duration::from_secs(10)), None, "another address");
        assert_eq!(attempts.retry_after(address(1), start + Duration::from_mins(1)), None, "later");
    }

    #[test]
    fn bounds_remembered_addresses() {
        let (attempts, start) = (FailedAttempts::new(), Instant::now());
        for _ in 0..=FREE_ATTEMPTS {
            attempts.add(address(7), start);
        }
        for number in 0..MAX_ADDRESSES as u32 + 300 {
            attempts.add(address(1000 + number), start);
        }
        assert!(attempts.used.lock().unwrap_or_else(PoisonError::into_inner).len() <= MAX_ADDRESSES);
        assert!(attempts.add(address(7), start) > Duration::ZERO, "who owes most is remembered");
    }

    #[test]
    fn ipv6_network_is_one_client() {
        let attempts = FailedAttempts::new();
        let now = Instant::now();
        let wait = |last: u16| attempts.add(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, last).into(), now);
        let waits: Vec<_> = (0..=FREE_ATTEMPTS as u16).map(wait).collect();
        assert_eq!(waits.last(), Some(&DELAY_PER_ATTEMPT));
    }
}
