//! Connections: from the socket to the router, and the end of the server.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use axum::Router;
use futures_util::future::join_all;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::http;
use super::repository::{RepositoryError, Source};
use super::server::Server;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// the address cannot be listened on
    #[error("cannot listen on {address}: {source}")]
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
}

/// What those who start a server hear of it.
pub enum Event {
    /// connections are taken at this address; pipelines are not ready yet
    Listening(SocketAddr),
    /// connections are taken at this second address, too
    Grpc(SocketAddr),
    /// every pipeline is warm
    Ready(SocketAddr),
    /// no new connections are taken; those under way end
    Draining,
}

/// Serves the pipelines of `sources` until somebody asks the process to end. `tell` hears how it goes.
pub fn serve(
    server: &Arc<Server>,
    sources: Vec<Source>,
    tell: impl Fn(Event) + Send + Sync + 'static,
) -> Result<(), ListenError> {
    let settings = server.settings();
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
        let (stop, stopped) = watch::channel(false);
        let listener = TcpListener::from_std(listener).map_err(ListenError::Start)?;
        let mut accepting = vec![tokio::spawn(accept(listener, server.clone(), stopped.clone()))];
        if let Some((listener, local)) = grpc {
            let listener = TcpListener::from_std(listener).map_err(ListenError::Start)?;
            accepting.push(tokio::spawn(accept(listener, server.clone(), stopped)));
            tell(Event::Grpc(local));
        }
        let loaded = {
            let server = server.clone();
            tokio::task::spawn_blocking(move || server.add(&sources))
        };
        let loading = async {
            loaded.await.map_err(|error| ListenError::Start(std::io::Error::other(error)))??;
            tell(Event::Ready(local));
            std::future::pending::<Result<(), ListenError>>().await
        };
        let ended = tokio::select! {
            failed = loading => failed,
            () = asked_to_end() => Ok(()),
        };
        server.close();
        if ended.is_ok() {
            tell(Event::Draining);
        }
        let _ = stop.send(true);
        // Requests under way may take their time, but not for ever.
        let _ = tokio::time::timeout(settings.drain, join_all(accepting)).await;
        ended
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

/// Takes connections until it is told to stop, then waits for those there are.
async fn accept(listener: TcpListener, server: Arc<Server>, mut stopped: watch::Receiver<bool>) {
    let router = http::router(server.clone());
    let connections = GracefulShutdown::new();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(server.settings().header_timeout);
    // Tensors are large: with HTTP/2's own windows of 64 KiB, each would take several ways there and back.
    builder.http2().timer(TokioTimer::new()).initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    builder.http2().max_frame_size(FRAME);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors, or the client is gone already: the next one may do better.
                Err(_) => {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            },
            _ = stopped.changed() => break,
        };
        // Small answers must not wait for the client's acknowledgement of the last.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(Router::clone(&router));
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // How a connection ends is the client's affair.
            let _ = connection.await;
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// How much a client may send over HTTP/2 before it waits to hear that it was read, in bytes.
const WINDOW: u32 = 2 << 20;

/// The largest frame of HTTP/2 that is taken, in bytes.
const FRAME: u32 = 256 << 10;

/// How long to wait before the next connection when one could not be taken.
const RETRY: std::time::Duration = std::time::Duration::from_millis(50);

/// Ends when the process is asked to: ctrl-C, or a polite kill.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without signals, it ends when it is killed.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
