//! Accepts connections of TCP and of Unix sockets.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

use crate::edge::listeners::ListenSocket;

/// A listening socket, within tokio.
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

/// A connection.
pub(super) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Listener {
    pub(crate) fn new(socket: ListenSocket) -> io::Result<Self> {
        Ok(match socket {
            ListenSocket::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            #[cfg(unix)]
            ListenSocket::Unix(listener) => Self::Unix(UnixListener::from_std(listener)?),
        })
    }

    /// Waits for a connection.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| Accepted::Tcp(stream, peer)),
            #[cfg(unix)]
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
        }
    }

    pub(super) fn into_socket(self) -> io::Result<ListenSocket> {
        match self {
            Self::Tcp(listener) => listener.into_std().map(ListenSocket::Tcp),
            #[cfg(unix)]
            Self::Unix(listener) => listener.into_std().map(ListenSocket::Unix),
        }
    }
}

/// Accepts a connection from the kernel's queue; fails if none waits there.
pub(super) fn accept_queued(socket: &ListenSocket) -> io::Result<Accepted> {
    match socket {
        ListenSocket::Tcp(listener) => {
            let (stream, peer) = listener.accept()?;
            stream.set_nonblocking(true)?;
            Ok(Accepted::Tcp(TcpStream::from_std(stream)?, peer))
        }
        #[cfg(unix)]
        ListenSocket::Unix(listener) => {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(true)?;
            Ok(Accepted::Unix(UnixStream::from_std(stream)?))
        }
    }
}
