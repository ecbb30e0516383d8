//! Accepts connections, serves them over TLS or plain TCP, closes idle and slow connections.

mod accepted;
mod connection_memory;
mod framing;
mod limit;
mod slow_client;
mod trailers;

use crate::settings::LAST_CALL;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, Version};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::host_check::Peer;
use super::response_budget::is_head_too_large;
use super::service::{AmbiguousLength, EdgeService};
use super::tls::{Tls, plain_http};
use crate::edge::listeners::ListenSocket;
use crate::engine::metrics::{Connection, EvictionReason};
use crate::engine::server::Server;
use crate::settings::Settings;
pub(crate) use accepted::Listener;
use accepted::{Accepted, accept_queued};
pub(crate) use limit::ConnectionLimit;
use limit::{ConnectionSlot, EVICTION_INTERVAL};
use slow_client::Activity;
use slow_client::http2_body::Http2Body;
use slow_client::observed::Observed;
use slow_client::streamed_body::StreamedBody;
use trailers::CheckedTrailers;

/// The delay after `accept` failed: if file descriptors ran out, some connection must close first.
const RETRY: Duration = Duration::from_millis(50);

/// The interval of idle checks during shutdown. A connection that is idle in two checks in a row is closed: its client
/// has missed the GOAWAY or does not respond.
const LAST_LOOK: Duration = Duration::from_millis(500);

/// Flow-control limits of an HTTP/2 connection: memory that unread data may take.
#[derive(Clone, Copy)]
struct Windows {
    /// how much a client may send before the server acknowledges it, in bytes
    window: u32,
    /// the largest accepted frame, in bytes
    frame: u32,
    /// the most concurrent streams
    streams: u32,
    /// how much of one response may wait for its client outside the budget, in bytes
    unsent: usize,
}

/// Tensors are large: with HTTP/2's default windows of 64 KiB, each would take several round trips. A share of the
/// memory bounds the number of connections with these windows.
const LARGE: Windows = Windows { window: 2 << 20, frame: 256 << 10, streams: u32::MAX, unsent: 16 << 10 };

/// The windows of all other connections: the minimum that HTTP/2 permits.
const SMALL: Windows = Windows { window: (64 << 10) - 1, frame: 16 << 10, streams: 16, unsent: 8 << 10 };

/// The largest head of an HTTP/1 request and the size of one read, in bytes. Each open connection may hold this much
/// without a permit.
const BUFFER: usize = 64 << 10;

/// The largest head of an HTTP/2 request that is read, in bytes: the service refuses those above its own limit in the
/// form of their protocol, h2 those above this one.
const HTTP2_HEAD: u32 = 64 << 10;

/// State that all connections share.
struct Shared {
    server: Arc<Server>,
    front: Arc<EdgeService>,
    /// HTTP settings of connections with large windows, and of all others
    large: auto::Builder<TokioExecutor>,
    small: auto::Builder<TokioExecutor>,
    limit: Arc<ConnectionLimit>,
    tls: Option<Arc<Tls>>,
    /// whether idle connections are to close
    over: watch::Sender<bool>,
}

impl Shared {
    /// Counts a connection that is closed for others.
    fn count_eviction(&self, reason: EvictionReason) {
        self.server.metrics().count_closed_connection();
        self.limit.count(reason);
    }
}

/// Guards that live as long as the connection.
struct OpenConnection {
    /// notified when idle connections are to close; the server ends once all of these are dropped
    over: watch::Receiver<bool>,
    _counted: Connection,
}

impl OpenConnection {
    /// Waits until idle connections are to close.
    async fn last_call(&mut self) {
        // The sender lives as long as the shared state.
        let _ = self.over.wait_for(|over| *over).await;
    }
}

/// Accepts connections until `stopped`, then waits for the open ones to close. All listeners share `limit`.
pub(crate) async fn accept(
    listener: Listener,
    server: Arc<Server>,
    front: Arc<EdgeService>,
    tls: Option<Arc<Tls>>,
    limit: Arc<ConnectionLimit>,
    mut stopped: watch::Receiver<bool>,
) {
    let (large, small) = (builder(server.settings(), LARGE), builder(server.settings(), SMALL));
    let shared = Arc::new(Shared { server, front, large, small, limit, tls, over: watch::Sender::new(false) });

    let start = |accepted: Accepted, permit| {
        // Counted before its task runs: the server must not end between the two.
        let open = OpenConnection { over: shared.over.subscribe(), _counted: shared.server.metrics().connection() };
        let settings = shared.server.settings();
        let activity = Arc::new(Activity::new(settings.header_timeout, settings.idle_timeout));
        let slot = shared.limit.slot(activity, permit);
        tokio::spawn(connection(shared.clone(), accepted, slot, open));
    };

    loop {
        let taken = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
        };

        match taken {
            // Without a permit, one connection waits here and the others in the kernel's queue.
            Ok(accepted) => {
                let (permit, is_stopped) = tokio::select! {
                    permit = shared.limit.permit() => (permit, false),
                    _ = stopped.changed() => (None, true),
                };
                start(accepted, permit);
                if is_stopped {
                    break;
                }
            }
            Err(error) => {
                shared.server.metrics().count_accept_error();
                if !is_client_gone(&error) {
                    tracing::warn!(target: "gpux", %error, "a connection cannot be taken");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    // The kernel has accepted the queued connections: their clients may have sent requests already.
    match listener.into_socket() {
        Ok(listener) => take_queued(&listener, &shared, |accepted| start(accepted, None)).await,
        Err(error) => tracing::warn!(target: "gpux", %error, "the connections in the kernel's queue are lost"),
    }

    let last_call = tokio::time::Instant::now() + LAST_CALL;
    while shared.server.metrics().connections() > 0 && tokio::time::Instant::now() < last_call {
        tokio::time::sleep(LAST_CALL / 25).await;
    }
    shared.over.send_replace(true);
    shared.over.closed().await;
}

/// Starts every connection in the kernel's queue. It calls `accept` directly: tokio's version yields after some dozens
/// of calls in a row, and sees a connection only after its I/O driver has polled.
async fn take_queued(socket: &ListenSocket, shared: &Shared, start: impl Fn(Accepted)) {
    loop {
        match accept_queued(socket) {
            Ok(accepted) => start(accepted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if is_client_gone(&error) => shared.server.metrics().count_accept_error(),
            Err(error) => {
                shared.server.metrics().count_accept_error();
                tracing::warn!(target: "gpux", %error, "a connection cannot be accepted");
                // Idle connections close and free their descriptors.
                shared.over.send_replace(true);
                tokio::time::sleep(RETRY).await;
            }
        }
        tokio::task::consume_budget().await;
    }
}

/// Whether `accept` failed because that client has gone; the next call can succeed.
fn is_client_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

fn builder(settings: &Settings, windows: Windows) -> auto::Builder<TokioExecutor> {
    const KEEP_ALIVE: Duration = Duration::from_secs(20);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // [`Activity`] bounds the time of a head: hyper would set a timer for each request.
    builder.http1().header_read_timeout(None).max_buf_size(BUFFER);
    // hyper's defaults bound rapid resets.
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.max_streams.min(windows.streams))
        .max_header_list_size(HTTP2_HEAD)
        .initial_stream_window_size(windows.window)
        .initial_connection_window_size(windows.window)
        .max_frame_size(windows.frame)
        .max_send_buf_size(windows.unsent)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}

/// Serves one connection from accept to close.
async fn connection(shared: Arc<Shared>, accepted: Accepted, slot: ConnectionSlot, mut open: OpenConnection) {
    let (stream, peer) = match accepted {
        Accepted::Tcp(stream, peer) => (stream, peer),
        // What a Unix socket carries stays on this machine: it has no TLS.
        #[cfg(unix)]
        Accepted::Unix(stream) => return serve(&shared, stream, Peer::unix(), &slot, &mut open).await,
    };
    let peer = Peer::new(peer, stream.local_addr().ok());
    // Without `TCP_NODELAY`, small responses wait for the client's acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &shared.tls else { return serve(&shared, stream, peer, &slot, &mut open).await };
    let patience = shared.server.settings().header_timeout;
    let handshake = async {
        if plain_http::is_plain_http(&stream).await {
            plain_http::reject(stream).await;
            return Err(io::ErrorKind::InvalidData.into());
        }
        tls.acceptor().accept(stream).await
    };
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(patience, handshake) => accepted,
        () = async {
            open.last_call().await;
            tokio::time::sleep(2 * LAST_LOOK).await;
        } => return,
        reason = slot.evicted() => return shared.count_eviction(reason),
    };
    match accepted {
        Ok(Ok(stream)) => Box::pin(serve(&shared, stream, peer, &slot, &mut open)).await,
        // Handshake errors are the client's fault and are not logged.
        Ok(Err(_)) => {}
        Err(_) => shared.server.metrics().count_closed_connection(),
    }
}

/// Serves requests until the client closes the connection, a timeout expires, or the server shuts down.
async fn serve<S>(shared: &Shared, stream: S, peer: Peer, slot: &ConnectionSlot, open: &mut OpenConnection)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (activity, memory) = (slot.activity(), slot.memory());
    let departure = slot.departure();
    let front = Arc::new(EdgeService::clone(&shared.front));

    let windows = shared.limit.large_window_permit();
    let builder = if windows.is_some() { &shared.large } else { &shared.small };
    let windows = Mutex::new(windows);

    let service = service_fn(|mut request: Request<Incoming>| {
        let is_chunked = request.version() < Version::HTTP_2 && request.headers().contains_key(TRANSFER_ENCODING);
        if is_chunked && activity.framing().next_chunked() {
            request.extensions_mut().insert(AmbiguousLength);
        }

        let (busy, front, activity) = (activity.begin(), front.clone(), activity.clone());
        let (memory, departure) = (memory.clone(), departure.clone());
        let has_streams = request.version() == Version::HTTP_2;

        let mut windows = windows.lock().unwrap_or_else(PoisonError::into_inner);
        // HTTP/1 has no flow-control windows.
        *windows = windows.take().filter(|_| has_streams);
        // A head that is refused waits for nothing.
        let runs_free = windows.is_some() || is_head_too_large(request.version(), request.headers(), request.uri());

        async move {
            // Opened before the response exists, so that the stream counts as open throughout.
            let mut open = has_streams.then(|| activity.open());
            if let Some(open) = open.as_mut().filter(|_| !runs_free) {
                open.keep(memory.stream_permit().await);
            }

            // In a box of its own, so that idle connections hold no room for it.
            let mut response: Response<Body> = Box::pin(front.answer(request.map(CheckedTrailers), Some(peer))).await;

            if departure.is_due() && !has_streams {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // A streamed response keeps its connection busy while it is produced.
            let response = match response.body().size_hint().exact() {
                Some(_) => response,
                None => response.map(|body| Body::new(StreamedBody::new(body, busy))),
            };

            // Over HTTP/1, an unread response blocks the connection, which `Observed` detects.
            Ok::<_, Infallible>(match open {
                Some(open) => response.map(|body| Body::new(Http2Body::new(body, &activity, open))),
                None => response,
            })
        }
    });

    let stream = TokioIo::new(Observed::new(stream, activity.clone(), memory.clone()));
    let mut connection = pin!(builder.serve_connection(stream, service));

    // The last accepted connection has as long for its request as the others.
    let last_request = tokio::time::Instant::now() + LAST_CALL;
    let mut last_call = pin!(async {
        open.last_call().await;
        tokio::time::sleep_until(last_request).await;
    });

    let mut evicted = pin!(slot.evicted());
    let (mut ending, mut was_idle) = (false, false);

    loop {
        let next_look = activity.next_look();
        let next_look = if ending { next_look.min(Instant::now() + LAST_LOOK) } else { next_look };
        let next_look = if memory.is_waiting() { next_look.min(Instant::now() + EVICTION_INTERVAL) } else { next_look };
        tokio::select! {
            biased;
            // Connection errors are the client's fault and are not logged.
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    shared.front.note_refused_head(&*error, peer);
                }
                return;
            }
            () = last_call.as_mut(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            reason = evicted.as_mut(), if !ending => {
                shared.count_eviction(reason);
                if !memory.is_http2() || !activity.has_begun() {
                    return;
                }
                // Streams that the client opens meanwhile are answered.
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = memory.changed(), if !ending => {
                if memory.is_leaving() && memory.is_http2() {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                if memory.is_waiting() {
                    shared.limit.evict_http2();
                }
            }
            () = tokio::time::sleep_until(next_look.into()) => {
                if memory.is_waiting() {
                    shared.limit.evict_http2();
                }
                if activity.is_over() {
                    return shared.server.metrics().count_closed_connection();
                }
                let is_idle = ending && activity.is_idle();
                if is_idle && was_idle {
                    return;
                }
                was_idle = is_idle;
            }
        }
    }
}
