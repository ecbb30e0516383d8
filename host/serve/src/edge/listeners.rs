//! The sockets that a server listens on.

use std::net::{SocketAddr, TcpListener};

use socket2::SockRef;

use super::listen_error::ListenError;
use crate::settings::Settings;

/// Listening sockets. Connections queue there from the start, until a server accepts them.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) main: TcpListener,
    /// the second one, for gRPC clients that expect a separate port
    pub(crate) grpc: Option<TcpListener>,
}

impl Listeners {
    /// Binds the addresses of the settings.
    pub fn bind(settings: &Settings) -> Result<Self, ListenError> {
        let main = bind(&settings.host, settings.port, "--port")?;
        let grpc = settings.grpc_port.map(|port| bind(&settings.host, port, "--grpc-port")).transpose()?;
        Ok(Self { main, grpc })
    }

    /// Listeners that another process has bound, in the order of [`sockets`](Self::sockets).
    pub const fn inherited(main: TcpListener, grpc: Option<TcpListener>) -> Self {
        Self { main, grpc }
    }

    /// The sockets, that of `--port` first.
    pub fn sockets(&self) -> impl Iterator<Item = &TcpListener> {
        std::iter::once(&self.main).chain(&self.grpc)
    }

    /// An address that other machines reach.
    pub(crate) fn open_address(&self) -> Option<SocketAddr> {
        let mut addresses = self.sockets().filter_map(|socket| socket.local_addr().ok());
        addresses.find(|local| !local.ip().to_canonical().is_loopback())
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
