//! The sockets that a server listens on.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(unix)]
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::SockRef;

use super::listen_error::ListenError;
#[cfg(unix)]
use super::unix_socket;
use crate::settings::Settings;

/// Listening sockets. Connections queue there from the start, until a server accepts them.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) main: ListenSocket,
    /// the second one, for gRPC clients that expect a separate address
    pub(crate) grpc: Option<ListenSocket>,
}

/// A listening socket.
#[derive(Debug)]
pub enum ListenSocket {
    /// of an address and port
    Tcp(TcpListener),
    /// of a path
    #[cfg(unix)]
    Unix(UnixListener),
}

/// Where a socket listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// an address and port
    Tcp(SocketAddr),
    /// the path of a Unix socket
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

impl ListenSocket {
    /// Where it listens.
    pub(crate) fn local_address(&self) -> std::io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(ListenAddress::Tcp),
            #[cfg(unix)]
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                Ok(ListenAddress::Unix(address.as_pathname().map(Path::to_owned).unwrap_or_default()))
            }
        }
    }
}

#[cfg(unix)]
impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

#[cfg(unix)]
impl TryFrom<OwnedFd> for ListenSocket {
    type Error = std::io::Error;

    fn try_from(file: OwnedFd) -> std::io::Result<Self> {
        let is_unix = SockRef::from(&file).local_addr()?.is_unix();
        Ok(if is_unix { Self::Unix(file.into()) } else { Self::Tcp(file.into()) })
    }
}

impl Listeners {
    /// Binds the addresses of the settings.
    pub fn bind(settings: &Settings) -> Result<Self, ListenError> {
        let socket = |path: &Path| bind_socket(path, settings.socket_mode);
        let port = |port, flag| bind(&settings.host, port, flag).map(ListenSocket::Tcp);
        let main = match &settings.socket {
            Some(path) => socket(path)?,
            None => port(settings.port, "--port")?,
        };
        let grpc = match (&settings.grpc_socket, settings.grpc_port) {
            (Some(path), _) => Some(socket(path)),
            (None, number) => number.map(|number| port(number, "--grpc-port")),
        };
        Ok(Self { main, grpc: grpc.transpose()? })
    }

    /// Listeners that another process has bound, in the order of [`sockets`](Self::sockets).
    pub const fn inherited(main: ListenSocket, grpc: Option<ListenSocket>) -> Self {
        Self { main, grpc }
    }

    /// The sockets, the main one first.
    pub fn sockets(&self) -> impl Iterator<Item = &ListenSocket> {
        std::iter::once(&self.main).chain(&self.grpc)
    }

    /// Removes the Unix sockets that nobody listens on any more: those of a server that has ended. One that another
    /// server has bound meanwhile stays.
    pub fn remove_sockets(settings: &Settings) {
        #[cfg(unix)]
        for path in settings.socket.iter().chain(&settings.grpc_socket) {
            // The next server replaces one that cannot be removed.
            let _ = unix_socket::remove_stale(path);
        }
        #[cfg(not(unix))]
        let _ = settings;
    }

    /// An address that other machines reach.
    pub(crate) fn open_address(&self) -> Option<SocketAddr> {
        self.sockets().find_map(|socket| match socket.local_address().ok()? {
            ListenAddress::Tcp(local) => (!local.ip().to_canonical().is_loopback()).then_some(local),
            ListenAddress::Unix(_) => None,
        })
    }
}

fn bind(host: &str, port: u16, flag: &'static str) -> Result<TcpListener, ListenError> {
    let fault = |source| ListenError::Bind { address: format!("{host}:{port}"), flag, source };
    let listener = TcpListener::bind((host, port)).map_err(fault)?;
    // The standard library sets a backlog of 128 connections; the kernel lowers this value to `somaxconn`.
    SockRef::from(&listener).listen(i32::MAX).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    Ok(listener)
}

#[cfg(unix)]
fn bind_socket(path: &Path, mode: u32) -> Result<ListenSocket, ListenError> {
    let fault = |reason| ListenError::Socket { path: path.to_owned(), reason };
    unix_socket::bind(path, mode).map(ListenSocket::Unix).map_err(fault)
}

#[cfg(not(unix))]
fn bind_socket(path: &Path, _: u32) -> Result<ListenSocket, ListenError> {
    let reason = "this system has no Unix sockets: give an address".to_owned();
    Err(ListenError::Socket { path: path.to_owned(), reason })
}
