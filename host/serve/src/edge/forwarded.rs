//! The headers in which reverse proxies tell from whom a request came, how, and under which path.
//!
//! A client can send them, too. They are read only if the peer of the connection is a trusted proxy, from the end, where
//! the last proxy has added the address that it saw.

use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::host_check::{Peer, Sender};
use super::root_path;
use crate::settings::TrustedProxies;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// The longest path under which proxies show the server, in bytes.
const LONGEST_PREFIX: usize = 1 << 10;

/// A request, as the proxies in front of the server received it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    /// the client, if a proxy names it
    client: Option<IpAddr>,
    /// whether the client's connection was encrypted, if a proxy says so
    pub(crate) is_https: Option<bool>,
    /// the path under which the client sees the server, without a slash at its end; proxies have removed it
    pub(crate) prefix: Option<String>,
}

impl Forwarded {
    /// Reads the headers of a request that came from this peer; none of them if it is not trusted.
    pub(crate) fn read(proxies: &TrustedProxies, peer: Peer, headers: &HeaderMap) -> Self {
        let is_trusted = match peer.sender {
            Sender::Socket(address) => proxies.has_address(address.ip()),
            Sender::Unix => proxies.has_unix(),
            Sender::Forwarded(_) => false,
        };
        if !is_trusted {
            return Self::default();
        }
        let listed = lines(headers, FOR).map(|text| Element { of: text, proto: None });
        let listed = last_untrusted(proxies, listed).map(|(address, _)| address);
        let standard = last_untrusted(proxies, lines(headers, header::FORWARDED).map(Element::parse));
        let (standard, standard_proto) = standard.unzip();
        // A proxy sets one of the two and may pass on what a client wrote in the other.
        let is_ambiguous = headers.contains_key(FOR) && headers.contains_key(header::FORWARDED) && listed != standard;
        let client = listed.or(standard).filter(|_| !is_ambiguous);
        let proto = text(headers, PROTO).and_then(|text| text.split(',').next());
        Self { client, is_https: proto.or(standard_proto.flatten()).and_then(is_https), prefix: prefix(headers) }
    }

    /// The sender of the request: the client that proxies name, else the peer.
    pub(crate) fn sender(&self, peer: Peer) -> Sender {
        self.client.map_or(peer.sender, Sender::Forwarded)
    }
}

/// An element of a list of hops.
struct Element<'a> {
    of: &'a str,
    proto: Option<&'a str>,
}

impl<'a> Element<'a> {
    /// An element of `Forwarded` (RFC 7239): `for=192.0.2.60;proto=https`.
    fn parse(text: &'a str) -> Self {
        let value = |wanted: &str| {
            text.split(';').find_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches('"'))
            })
        };
        Self { of: value("for").unwrap_or_default(), proto: value("proto") }
    }
}

/// The elements of a header from its end, over all of its lines. Quotes do not protect commas: else a quote that a
/// client leaves open would swallow what a proxy has added.
fn lines(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    // Each element on its own: a client's may be no text.
    let lines = headers.get_all(name).iter().rev();
    let elements = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    elements.map(|element| str::from_utf8(element).unwrap_or_default())
}

/// The last address that is no trusted proxy's, or the first if all are; with what its element says of the protocol.
/// What follows a text that is no address, from the end, is not read.
fn last_untrusted<'a>(
    proxies: &TrustedProxies,
    elements: impl Iterator<Item = Element<'a>>,
) -> Option<(IpAddr, Option<&'a str>)> {
    let mut last = None;
    for element in elements {
        let Some(address) = address(element.of) else { break };
        last = Some((address, element.proto));
        if !proxies.has_address(address) {
            break;
        }
    }
    last
}

/// An address: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`. The zone of a link-local
/// address (`%eth0`) is not compared.
fn address(text: &str) -> Option<IpAddr> {
    let v6 = |text: &str| text.split('%').next()?.parse::<Ipv6Addr>().ok().map(IpAddr::from);
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let text = text.trim();
    let address = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        v6(address).filter(|_| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
    } else {
        let without_port =
            || text.split_once(':').filter(|(_, port)| is_port(port)).map_or(text, |(address, _)| address);
        v6(text).or_else(|| without_port().parse().ok())
    };
    address.map(|address| address.to_canonical())
}

fn is_https(proto: &str) -> Option<bool> {
    match proto.trim() {
        proto if proto.eq_ignore_ascii_case("https") => Some(true),
        proto if proto.eq_ignore_ascii_case("http") => Some(false),
        _ => None,
    }
}

/// The prefixes that proxies have removed, the outermost first; `None` if they are no path.
fn prefix(headers: &HeaderMap) -> Option<String> {
    let mut whole = String::new();
    for line in headers.get_all(PREFIX) {
        for part in line.to_str().ok()?.split(',') {
            if whole.len() + part.len() > LONGEST_PREFIX {
                return None;
            }
            whole.push_str(root_path::parse(part.trim())?);
        }
    }
    (!whole.is_empty()).then_some(whole)
}

/// The text of a header that is there once.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(HeaderValue::to_str)?.ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn proxies() -> TrustedProxies {
        TrustedProxies(["127.0.0.1", "10.0.0.0/8", "fd00::/8", "unix"].map(|text| text.parse().unwrap()).into())
    }

    fn proxy() -> Peer {
        Peer::new("127.0.0.1:50000".parse().unwrap(), None)
    }

    fn read(peer: Peer, lines: &[(&'static str, &str)]) -> Forwarded {
        let headers = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap()));
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| _ = map.append(name, value));
        Forwarded::read(&proxies(), peer, &map)
    }

    fn client(lines: &[(&'static str, &str)]) -> String {
        read(proxy(), lines).client.map_or("peer".to_owned(), |address| address.to_string())
    }

    #[test]
    fn reads_the_last_address_that_is_not_trusted() {
        for (list, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            // A client may send a list of its own: the proxy adds the client's address at the end.
            ("1.2.3.4, 203.0.113.7", "203.0.113.7"),
            ("1.2.3.4, 203.0.113.7, 10.0.0.2, 10.0.0.1", "203.0.113.7"),
            ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("203.0.113.7:51234", "203.0.113.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]:443", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("fe80::7%eth0", "fe80::7"),
            ("[fe80::7%25eth0]:80", "fe80::7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            (" 203.0.113.7 ", "203.0.113.7"),
            // What is no address ends the list: what a client wrote before it is not read.
            ("1.2.3.4, unknown, 10.0.0.2", "10.0.0.2"),
            ("1.2.3.4, unknown", "peer"),
            ("1.2.3.4,", "peer"),
            ("", "peer"),
            ("localhost", "peer"),
            ("203.0.113.7:99999", "peer"),
            ("203.0.113.7:80:80", "peer"),
            ("[2001:db8::7", "peer"),
            ("[2001:db8::7]x", "peer"),
            ("0x7f.1", "peer"),
            ("\u{fc}", "peer"),
            ("\u{fc}, 203.0.113.7", "203.0.113.7"),
        ] {
            assert_eq!(client(&[("x-forwarded-for", list)]), expected, "{list}");
        }
        assert_eq!(client(&[("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "203.0.113.7")]), "203.0.113.7");
        let long = "10.0.0.1,".repeat(7_000) + "10.0.0.1";
        assert_eq!(client(&[("x-forwarded-for", &long)]), "10.0.0.1");
    }

    #[test]
    fn reads_the_standard_header() {
        for (list, expected) in [
            ("for=203.0.113.7", "203.0.113.7"),
            ("For=\"[2001:db8::7]:4711\";proto=https;by=10.0.0.1", "2001:db8::7"),
            ("for=1.2.3.4, proto=http;for=203.0.113.7, for=10.0.0.1", "203.0.113.7"),
            ("for=\"1.2.3.4, for=203.0.113.7", "203.0.113.7"),
            ("for=_hidden, for=unknown", "peer"),
            ("by=203.0.113.7", "peer"),
        ] {
            assert_eq!(client(&[("forwarded", list)]), expected, "{list}");
        }
        let both = |list| client(&[("x-forwarded-for", "203.0.113.7"), ("forwarded", list)]);
        assert_eq!(both("for=203.0.113.7"), "203.0.113.7");
        assert_eq!(both("for=1.2.3.4"), "peer", "one of them is a client's");
    }

    #[test]
    fn reads_protocol_and_prefix() {
        let https = |lines: &[(&'static str, &str)]| read(proxy(), lines).is_https;
        assert_eq!(https(&[("x-forwarded-proto", "https")]), Some(true));
        assert_eq!(https(&[("x-forwarded-proto", "HTTP, https")]), Some(false));
        assert_eq!(https(&[("forwarded", "for=1.2.3.4;proto=https")]), Some(true));
        assert_eq!(https(&[("x-forwarded-proto", "javascript")]), None);
        let prefix = |lines: &[(&'static str, &str)]| read(proxy(), lines).prefix;
        assert_eq!(prefix(&[("x-forwarded-prefix", "/models/")]).unwrap(), "/models");
        assert_eq!(prefix(&[("x-forwarded-prefix", "/a"), ("x-forwarded-prefix", "/b, /c")]).unwrap(), "/a/b/c");
        let long = format!("/{}", "x".repeat(LONGEST_PREFIX));
        for odd in
            ["", "/", "models", "//evil.example", "https://evil.example", "/a\"b", "/a b", "/a?b", "/a, b", &long]
        {
            assert_eq!(prefix(&[("x-forwarded-prefix", odd)]), None, "{odd}");
        }
    }

    #[test]
    fn ignores_headers_of_peers_that_are_not_trusted() {
        let lines =
            [("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "https"), ("x-forwarded-prefix", "/models")];
        let stranger = Peer::new("203.0.113.9:1".parse().unwrap(), None);
        assert_eq!(read(stranger, &lines), Forwarded::default());
        assert_eq!(read(Peer::unix(), &lines).client.unwrap().to_string(), "203.0.113.7");
        let none = Forwarded::read(&TrustedProxies::default(), Peer::unix(), &HeaderMap::new());
        assert_eq!(none, Forwarded::default());
    }

    proptest! {
        #[test]
        fn an_address_that_a_proxy_adds_wins(sent in proptest::collection::vec(0x20_u8.., 0..40), own in "[0-9a-f.:,;=\"\\[\\]% a-z]{0,40}") {
            for sent in [sent.as_slice(), own.as_bytes()] {
                for (name, added) in [("x-forwarded-for", ", 203.0.113.7"), ("forwarded", ", for=203.0.113.7")] {
                    let Ok(list) = HeaderValue::from_bytes(&[sent, added.as_bytes()].concat()) else { continue };
                    let headers = HeaderMap::from_iter([(HeaderName::from_static(name), list)]);
                    let client = Forwarded::read(&proxies(), proxy(), &headers).client.unwrap();
                    prop_assert_eq!(client.to_string(), "203.0.113.7");
                }
            }
        }
    }
}
