//! Checks the host that a request names: it must be well-formed, and one of this server's names.
//!
//! Without keys, every client that reaches the server may use it. A web page can reach a server on its reader's machine
//! through a domain of its own that resolves there (DNS rebinding): the browser then sees a single origin. Such
//! requests come from this machine but name the page's host.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Version};

use crate::engine::error::ServeError;
use crate::protocol::route::truncated;
use crate::settings::Settings;

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// the remote end of a TCP connection
    Socket(SocketAddr),
    /// a client of a trusted proxy, which names its address
    Forwarded(IpAddr),
    /// a process that has connected to a Unix socket
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no Unix sockets"))]
    Unix,
}

impl Sender {
    /// The address by which clients are told apart. All that connect to Unix sockets have that of this machine.
    pub(crate) const fn ip(self) -> IpAddr {
        match self {
            Self::Socket(address) => address.ip(),
            Self::Forwarded(address) => address,
            Self::Unix => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(out),
            Self::Forwarded(address) => address.fmt(out),
            Self::Unix => out.write_str("unix"),
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) sender: Sender,
    /// whether the connection comes from this machine
    is_local: bool,
}

impl Peer {
    /// The remote end of a connection; `local` is the address of its local end.
    pub(crate) fn new(address: SocketAddr, local: Option<SocketAddr>) -> Self {
        let ip = address.ip().to_canonical();
        // A name may resolve to any address of the machine, not only to 127.0.0.1.
        let is_local = ip.is_loopback() || local.is_some_and(|local| local.ip().to_canonical() == ip);
        Self { sender: Sender::Socket(address), is_local }
    }

    /// A process that has connected to a Unix socket: no browser does that, so it may name any host.
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no Unix sockets"))]
    pub(crate) const fn unix() -> Self {
        Self { sender: Sender::Unix, is_local: false }
    }
}

/// The host names that requests from this machine may use.
#[derive(Debug)]
pub(crate) struct HostCheck {
    names: Vec<String>,
    /// whether every name is allowed
    any: bool,
}

impl HostCheck {
    /// Allows any name if keys are required, since a page has no key. Else allows `localhost`, the machine's name and
    /// the names that the operator configured.
    pub(crate) fn new(settings: &Settings) -> Self {
        let said = settings.allow_hosts.iter().chain([&settings.host]).cloned();
        let names = said.chain(["localhost".to_owned()]).chain(machine_name().into_iter().flat_map(own_names));
        let any = settings.keys.is_some() || settings.allow_hosts.iter().any(|name| name == "*");
        Self { names: names.map(|name| plain(&name).to_owned()).collect(), any }
    }

    /// Fails with 400 if the head names no host, several hosts or a malformed one, and with 421 if the request comes
    /// from this machine and names an unknown host.
    pub(crate) fn check(&self, head: &Parts, peer: Peer) -> Result<(), ServeError> {
        for authority in authorities(head)?.into_iter().flatten() {
            let host = host_of(authority).ok_or_else(|| {
                ServeError::invalid(format!(
                    "`{}` is no host: write a name or an address, and maybe a port",
                    truncated(authority)
                ))
            })?;
            if let Host::Name(name) = host
                && peer.is_local
                && !self.is_known(name)
            {
                let name = truncated(name);
                return Err(ServeError::Misdirected(format!(
                    "`{name}` is no name of this server: from its own machine it is asked by an address or as \
                     `localhost`; behind a proxy, its operator permits the name by `--allow-host {name}`"
                )));
            }
        }
        Ok(())
    }

    fn is_known(&self, name: &str) -> bool {
        self.any || self.names.iter().any(|known| known.eq_ignore_ascii_case(plain(name)))
    }
}

/// The name without the final dot of an absolute domain name.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The machine's full name, its short name and its mDNS name: a web page can have none of them.
fn own_names(name: String) -> [String; 3] {
    let short = name.split('.').next().unwrap_or_default().to_owned();
    [format!("{short}.local"), short, name]
}

/// The machine's host name.
fn machine_name() -> Option<String> {
    let file = |path: &str| std::fs::read_to_string(path).ok();
    let variable = |name: &str| std::env::var(name).ok();
    let name = file("/proc/sys/kernel/hostname")
        .or_else(|| file("/etc/hostname"))
        .or_else(|| variable("HOSTNAME"))
        .or_else(|| variable("COMPUTERNAME"))?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The authorities of the request's target and of its `Host`. HTTP/1.1 requires exactly one `Host`; HTTP/2 may use
/// `:authority` instead.
pub(crate) fn authorities(head: &Parts) -> Result<[Option<&str>; 2], ServeError> {
    let mut lines = head.headers.get_all(HOST).iter();
    let (line, second) = (lines.next(), lines.next());
    if second.is_some() {
        return Err(ServeError::invalid("the request has more than one `Host`"));
    }
    let target = head.uri.authority().map(http::uri::Authority::as_str);
    let is_missing = match head.version {
        Version::HTTP_09 | Version::HTTP_10 => false,
        Version::HTTP_11 => line.is_none(),
        _ => line.is_none() && target.is_none(),
    };
    if is_missing {
        return Err(ServeError::invalid("the request does not say which host it is for"));
    }
    let not_text = |_| ServeError::invalid("`Host` is not text");
    let line = line.map(HeaderValue::to_str).transpose().map_err(not_text)?;
    match (target, line) {
        (Some(target), Some(line)) if head.version > Version::HTTP_11 && !target.eq_ignore_ascii_case(line) => {
            Err(ServeError::invalid("`Host` says something else than `:authority`"))
        }
        both => Ok([both.0, both.1]),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

/// The host of `HOST` or `HOST:PORT`; `None` if malformed.
fn host_of(authority: &str) -> Option<Host<'_>> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        (Host::Address(address.parse::<Ipv6Addr>().ok()?.into()), rest)
    } else {
        let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return None;
        }
        (name.parse::<Ipv4Addr>().map_or(Host::Name(name), |address| Host::Address(address.into())), port)
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| {
            digits.is_empty() || digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok()
        });
    is_port.then_some(host)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn from(peer: &str, local: &str) -> Peer {
        Peer::new(peer.parse().unwrap(), Some(local.parse().unwrap()))
    }

    fn here() -> Peer {
        from("127.0.0.1:40000", "127.0.0.1:8080")
    }

    /// A request head; over HTTP/2, the authority of `uri` becomes `:authority`.
    fn head(version: Version, uri: &str, hosts: &[&str]) -> Parts {
        let request = Request::builder().version(version).uri(uri);
        let request = hosts.iter().fold(request, |request, host| request.header(HOST, *host));
        request.body(()).unwrap().into_parts().0
    }

    fn status(check: &HostCheck, head: &Parts, peer: Peer) -> u16 {
        check.check(head, peer).err().map_or(200, |error| error.status().as_u16())
    }

    #[test]
    fn rejects_heads_without_just_one_host() {
        let check = HostCheck::new(&Settings { allow_hosts: vec!["*".to_owned()], ..Settings::default() });
        for (version, uri, hosts, expected) in [
            (Version::HTTP_11, "/", &[][..], 400),
            (Version::HTTP_11, "/", &["a", "a"], 400),
            (Version::HTTP_11, "http://a/", &[], 400),
            (Version::HTTP_11, "http://a/", &["a"], 200),
            (Version::HTTP_10, "/", &[], 200),
            (Version::HTTP_10, "/", &["a", "b"], 400),
            (Version::HTTP_2, "/", &[], 400),
            (Version::HTTP_2, "/", &["a:1"], 200),
            (Version::HTTP_2, "http://a:1/", &[], 200),
            (Version::HTTP_2, "http://a:1/", &["A:1"], 200),
            (Version::HTTP_2, "http://a:1/", &["b:1"], 400),
            (Version::HTTP_2, "http://u@a:1/", &[], 400),
        ] {
            assert_eq!(status(&check, &head(version, uri, hosts), here()), expected, "{version:?} {uri} {hosts:?}");
        }
        for odd in
            ["", " ", ":80", "a b", "a/b", "u@a", "a:b", "a:99999", "a:1:2", "::1", "[::1", "[a]", "[::1]x", "\u{fc}"]
        {
            assert_eq!(status(&check, &head(Version::HTTP_11, "/", &[odd]), here()), 400, "{odd}");
        }
    }

    #[test]
    fn local_requests_need_a_local_host() {
        let settings = |names: &[&str], keys: bool| Settings {
            host: "box.lan".to_owned(),
            allow_hosts: names.iter().map(|name| (*name).to_owned()).collect(),
            keys: keys.then(|| "keys.yml".into()),
            ..Settings::default()
        };
        let check = HostCheck::new(&settings(&["api.example.com"], false));
        let options = |host: &str, peer| status(&check, &head(Version::HTTP_11, "/", &[host]), peer);
        for own in [
            "localhost",
            "LocalHost.:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "192.168.1.7",
            "box.lan:1",
            "API.example.com",
        ] {
            assert_eq!(options(own, here()), 200, "{own}");
        }
        for other in ["evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "xlocalhost", "com", "1"]
        {
            assert_eq!(options(other, here()), 421, "{other}");
            assert_eq!(options(other, from("[::1]:1", "[::1]:8080")), 421, "{other}");
            assert_eq!(options(other, from("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:8080")), 421, "{other}");
            assert_eq!(
                options(other, from("192.168.1.7:1", "192.168.1.7:8080")),
                421,
                "{other} leads to its own address"
            );
            assert_eq!(options(other, from("192.168.1.8:1", "192.168.1.7:8080")), 200, "{other} of another machine");
            let target = format!("http://{other}/");
            assert_eq!(status(&check, &head(Version::HTTP_2, &target, &[]), here()), 421, "{other}");
            assert_eq!(status(&check, &head(Version::HTTP_11, &target, &["localhost"]), here()), 421, "{other}");
            for open in [settings(&["*"], false), settings(&[], true)] {
                assert_eq!(
                    status(&HostCheck::new(&open), &head(Version::HTTP_11, "/", &[other]), here()),
                    200,
                    "{other}"
                );
            }
        }
        let hint = check.check(&head(Version::HTTP_11, "/", &["evil.example:1"]), here()).unwrap_err().to_string();
        assert!(hint.contains("--allow-host evil.example"), "{hint}");
        for own in machine_name().into_iter().flat_map(own_names) {
            assert_eq!(options(&own, here()), 200, "{own}");
        }
        assert_eq!(own_names("box.example.com".to_owned()), ["box.local", "box", "box.example.com"]);
    }

    proptest! {
        #[test]
        fn parses_hosts_like_urls(authority in "[a-z0-9:@/?\\[\\].%-]{0,12}") {
            // A host must not parse as one of ours here and as another name in a URL parser.
            if let (Some(host), Ok(url)) = (host_of(&authority), format!("http://{authority}/").parse::<http::Uri>()) {
                let read = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                match host {
                    Host::Name(name) => prop_assert_eq!(name, read),
                    Host::Address(address) => prop_assert_eq!(address, read.parse::<IpAddr>().unwrap()),
                }
            }
        }
    }
}
