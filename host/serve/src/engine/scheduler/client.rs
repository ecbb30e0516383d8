//! The clients that share the time of a pipeline.

use std::net::{IpAddr, Ipv6Addr};

/// The sender of requests, as far as it can be identified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// not identified
    #[default]
    Unknown,
    /// the holder of this key
    Key(usize),
    /// without keys: an IPv4 address, or a network (/64) of IPv6
    Address(IpAddr),
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        Self::Address(network(address))
    }
}

/// The network of a host: its IPv4 address, or its IPv6 /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_client() {
        let client = |address: &str| Client::from(address.parse::<IpAddr>().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:10.0.0.7"), client("10.0.0.7"));
        assert_ne!(client("10.0.0.8"), client("10.0.0.7"));
    }
}
