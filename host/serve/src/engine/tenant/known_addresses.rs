//! The addresses from which an API key was used.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::scheduler::network;

/// A hash table of digests of networks (IPv4 address or IPv6 /64). On a collision, the later one replaces the earlier.
#[derive(Debug)]
pub(crate) struct KnownAddresses([AtomicU64; 64]);

impl Default for KnownAddresses {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; 64])
    }
}

impl KnownAddresses {
    /// Records that the key was used from this address.
    pub(crate) fn add(&self, from: IpAddr) {
        let (Some(slot), digest) = self.slot(from) else { return };
        // Written only on a change, so that cores that read it can share the cache line.
        if slot.load(Ordering::Relaxed) != digest {
            slot.store(digest, Ordering::Relaxed);
        }
    }

    /// Whether the key was used from this address.
    pub(crate) fn has(&self, from: IpAddr) -> bool {
        let (slot, digest) = self.slot(from);
        slot.is_some_and(|slot| slot.load(Ordering::Relaxed) == digest)
    }

    fn slot(&self, from: IpAddr) -> (Option<&AtomicU64>, u64) {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let digest = HASHER.hash_one(network(from)) | 1 << 63;
        (self.0.get(digest as usize % self.0.len()), digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(number).into()
    }

    #[test]
    fn remembers_addresses_of_a_key() {
        let known = KnownAddresses::default();
        assert!(!known.has(address(1)));
        known.add(address(1));
        assert!(known.has(address(1)) && !known.has(address(2)));
        known.add("::ffff:0.0.0.2".parse().unwrap_or(address(0)));
        assert!(known.has(address(2)));
    }
}
