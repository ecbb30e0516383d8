//! The server's life: it listens, loads, serves, is told things, and ends.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use futures_util::future::join_all;
use http::Request;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::connections;
use super::front::Front;
use super::reload::Reloader;
use super::repository::{RepositoryError, Source};
use super::server::Server;
use super::signals::{Signal, Signals};
use super::telemetry::Telemetry;
use super::tls::{Tls, TlsError};
use crate::config::LoadError;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// the address cannot be listened on
    #[error("cannot listen on {address}: {source}{}", bind_hint(source))]
    Bind {
        /// the address
        address: String,
        /// why
        source: std::io::Error,
    },
    /// threads cannot be made
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// a pipeline cannot be served
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// the file of keys cannot be used
    #[error(transparent)]
    Keys(#[from] LoadError),
    /// certificate or key cannot be used
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// traces cannot be sent
    #[error("{0}")]
    Telemetry(String),
}

fn bind_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "; another program listens there: stop it, or choose another `--port`",
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 are for the system: choose another `--port`",
        std::io::ErrorKind::AddrNotAvailable => "; `--host` is none of this machine's addresses",
        _ => "",
    }
}

/// What those who start a server hear of it.
#[derive(Clone, Debug)]
pub enum Event {
    /// connections are taken at this address; pipelines are not ready yet
    Listening(SocketAddr),
    /// connections are taken at this second address, too
    Grpc(SocketAddr),
    /// every pipeline is warm
    Ready(SocketAddr),
    /// the pipeline of this name was loaded again, and answers
    Reloaded(String),
    /// it could not be; the one before answers
    NotReloaded {
        /// the pipeline
        name: String,
        /// why
        reason: String,
    },
    /// something is not as asked, though the server goes on
    Warning(String),
    /// readiness ends, then no new connections are taken; requests under way end
    Draining,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// everything that was accepted was answered
    Drained,
    /// some of it took longer than the server waits for
    TimedOut,
    /// somebody asked a second time
    Cut,
}

/// What answers requests, without connections. For benchmarks.
#[doc(hidden)]
pub struct Unconnected(Front);

impl Unconnected {
    /// What the server answers with.
    pub fn new(server: &Arc<Server>) -> Result<Self, LoadError> {
        server.access().load()?;
        Ok(Self(Front::new(server)))
    }

    /// Answers a request; `front` is whether everything stands before it that does in [`serve`].
    pub async fn answer(&self, request: Request<Body>, front: bool) -> Response {
        if front { self.0.answer(request, None).await } else { self.0.routes().answer(request).await }
    }
}

/// Serves the pipelines of `sources` until somebody asks the process to end. `tell` hears how it goes.
pub fn serve(
    server: &Arc<Server>,
    sources: Vec<Source>,
    tell: impl Fn(Event) + Send + Sync + 'static,
) -> Result<Ended, ListenError> {
    let settings = server.settings();
    let tell: Arc<dyn Fn(Event) + Send + Sync> = Arc::new(tell);
    let warn = |warnings: Vec<String>| warnings.into_iter().map(Event::Warning).for_each(|event| tell(event));
    warn(server.access().load()?);
    let tls = settings.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
    let (listener, local) = bind(&settings.host, settings.port)?;
    let grpc = settings.grpc_port.map(|port| bind(&settings.host, port)).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.workers)
        .thread_name("gpux-io")
        .enable_all()
        .build()
        .map_err(ListenError::Start)?;
    tell(Event::Listening(local));
    let result = runtime.block_on(async {
        let mut signals = Signals::new();
        if let Some(endpoint) = &settings.otlp {
            server.trace_to(Telemetry::new(endpoint).map_err(ListenError::Telemetry)?);
        }
        let front = Arc::new(Front::new(server));
        let listener = TcpListener::from_std(listener).map_err(ListenError::Start)?;
        let room = Arc::new(Semaphore::new(settings.max_connections));
        let mut accepting = Vec::new();
        let mut accept = |listener| {
            let accepting_one = connections::accept(
                listener,
                server.clone(),
                front.clone(),
                tls.clone(),
                room.clone(),
                server.stopping(),
            );
            accepting.push(tokio::spawn(accepting_one));
        };
        accept(listener);
        if let Some((listener, local)) = grpc {
            accept(TcpListener::from_std(listener).map_err(ListenError::Start)?);
            tell(Event::Grpc(local));
        }
        let mut loading = {
            let server = server.clone();
            tokio::task::spawn_blocking(move || server.add(&sources))
        };
        let mut reloader = None;
        loop {
            let signal = tokio::select! {
                loaded = &mut loading, if reloader.is_none() => {
                    loaded.map_err(|error| ListenError::Start(std::io::Error::other(error)))??;
                    reloader = Some(Reloader::start(server, tell.clone()).map_err(ListenError::Start)?);
                    tell(Event::Ready(local));
                    continue;
                }
                signal = signals.next() => signal,
            };
            match signal {
                Signal::End => break,
                Signal::Reload => {
                    match server.access().load() {
                        Ok(warnings) => warn(warnings),
                        Err(error) => warn(vec![format!("the keys are those of before: {error}")]),
                    }
                    if let Some(Err(error)) = tls.as_ref().map(|tls| tls.reload()) {
                        warn(vec![format!("the certificate is that of before: {error}")]);
                    }
                    if let Some(reloader) = &reloader {
                        reloader.all();
                    }
                }
            }
        }
        server.close();
        tell(Event::Draining);
        let draining = async {
            tokio::time::sleep(settings.drain_delay).await;
            server.stop();
            // Requests under way may take their time, but not for ever.
            let ended = tokio::time::timeout(settings.drain, join_all(accepting)).await;
            if ended.is_ok() { Ended::Drained } else { Ended::TimedOut }
        };
        let second = async { while signals.next().await != Signal::End {} };
        let ended = tokio::select! {
            ended = draining => ended,
            () = second => return Ok(Ended::Cut),
        };
        let server = server.clone();
        let flush = move || server.telemetry().map(Telemetry::flush);
        let _ = tokio::task::spawn_blocking(flush).await;
        Ok(ended)
    });
    // A step that is still at work does not keep the process.
    runtime.shutdown_background();
    result
}

fn bind(host: &str, port: u16) -> Result<(StdListener, SocketAddr), ListenError> {
    let fault = |source| ListenError::Bind { address: format!("{host}:{port}"), source };
    let listener = StdListener::bind((host, port)).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    let local = listener.local_addr().map_err(fault)?;
    Ok((listener, local))
}
