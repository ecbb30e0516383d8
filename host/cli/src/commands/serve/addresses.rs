//! Where a server listens: addresses and ports, or Unix sockets.

use std::path::PathBuf;
#[cfg(feature = "grpc")]
use std::str::FromStr;

use super::Arguments;

/// The path of `unix:PATH`.
pub(super) fn socket_path(address: &str) -> Option<PathBuf> {
    address.strip_prefix("unix:").map(PathBuf::from)
}

/// Where a second listener is for gRPC.
#[cfg(feature = "grpc")]
#[derive(Clone, Debug)]
pub(super) enum GrpcAddress {
    Port(u16),
    Socket(PathBuf),
}

#[cfg(feature = "grpc")]
impl FromStr for GrpcAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = || text.parse().map(Self::Port).map_err(|_| "write a port, or `unix:PATH`");
        socket_path(text).map_or_else(port, |path| Ok(Self::Socket(path)))
    }
}

/// Fails if the addresses contradict each other.
pub(super) fn check_addresses(arguments: &Arguments) -> Result<(), String> {
    let main = arguments.host.as_deref().and_then(socket_path);
    #[cfg(feature = "grpc")]
    let (grpc, grpc_port) = match &arguments.grpc_port {
        Some(GrpcAddress::Socket(path)) => (Some(path), None),
        Some(GrpcAddress::Port(port)) => (None, Some(*port)),
        None => (None, None),
    };
    #[cfg(not(feature = "grpc"))]
    let (grpc, grpc_port) = (None::<&PathBuf>, None::<u16>);
    if [main.as_ref(), grpc].into_iter().flatten().any(|path| path.as_os_str().is_empty()) {
        return Err("`unix:` needs a path, for example `unix:/run/gpux.sock`".to_owned());
    }
    if main.is_none() {
        return Ok(());
    }
    if main.as_ref() == grpc {
        return Err("`--host` and `--grpc-port` name the same socket, which takes gRPC as well".to_owned());
    }
    let contradiction = match (arguments.port, grpc_port) {
        (Some(_), _) => "`--host unix:PATH` has no port: leave out `--port`",
        (None, Some(_)) => "with `--host unix:PATH`, a second listener is `--grpc-port unix:PATH`, too",
        (None, None) if arguments.server.has_tls() => {
            "a Unix socket has no TLS: leave out `--tls-cert` and `--tls-key`"
        }
        (None, None) => return Ok(()),
    };
    Err(contradiction.to_owned())
}
