//! The reverse proxies whose headers about a request are believed.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Peers whose forwarding headers are believed (`--trusted-proxy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(pub Vec<TrustedProxy>);

/// A proxy, or a network of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedProxy {
    /// every address of this network
    Network(IpNet),
    /// every peer that connects to a Unix socket
    Unix,
}

impl FromStr for TrustedProxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unix" {
            return Ok(Self::Unix);
        }
        let address = text.parse().map(|address: IpAddr| IpNet::from(address.to_canonical()));
        address.or_else(|_| text.parse()).map(Self::Network).map_err(|_| {
            "write an address (`10.0.0.7`), a network (`10.0.0.0/8`, `fd00::/8`), or `unix` for those that connect to \
             a Unix socket"
                .to_owned()
        })
    }
}

impl TrustedProxies {
    /// Whether headers are believed of a peer at this address.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|proxy| matches!(proxy, TrustedProxy::Network(network) if network.contains(&address)))
    }

    /// Whether headers are believed of peers that connect to a Unix socket.
    pub(crate) fn has_unix(&self) -> bool {
        self.0.contains(&TrustedProxy::Unix)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn matches_addresses_and_networks() {
        let of = |texts: &[&str]| TrustedProxies(texts.iter().map(|text| text.parse().unwrap()).collect());
        let has = |proxies: &TrustedProxies, address: &str| proxies.has_address(address.parse().unwrap());
        let proxies = of(&["10.0.0.0/8", "192.168.1.7", "fd00::/8", "::1"]);
        for inside in ["10.255.0.1", "192.168.1.7", "::ffff:10.0.0.1", "fd12::1", "::1"] {
            assert!(has(&proxies, inside), "{inside}");
        }
        for outside in ["11.0.0.1", "192.168.1.8", "::ffff:11.0.0.1", "fe80::1", "127.0.0.1", "::2"] {
            assert!(!has(&proxies, outside), "{outside}");
        }
        assert!(!proxies.has_unix() && of(&["unix"]).has_unix());
        assert!(has(&of(&["::ffff:10.0.0.7"]), "10.0.0.7"));
        for wrong in ["", "localhost", "10.0.0.0/33", "10.0.0", "10.0.0.1:80", "unix:/run/x", "fe80::1%eth0"] {
            assert!(wrong.parse::<TrustedProxy>().unwrap_err().contains("10.0.0.0/8"), "{wrong}");
        }
    }
}
