//! The server's lifecycle: listen, load, serve, reload on SIGHUP, drain.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::future::join_all;
use http::Request;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::authentication::Authentication;
use super::connections;
use super::connections::{ConnectionLimit, Listener};
use super::listen_error::ListenError;
use super::listeners::{ListenAddress, ListenSocket, Listeners};
use super::service::EdgeService;
use super::signals::{Signal, Signals};
use super::telemetry::Telemetry;
use super::tls::Tls;
use crate::engine::loader::{LoadEvent, Loader, OnLoadEvent, Reloader};
use crate::engine::pipeline_source::PipelineSource;
use crate::engine::server::Server;
use crate::settings::{Otlp, Settings};
use gpux_config::Isolation;
use gpux_config::LoadError;
use gpux_core::catch_panic::catch_panic;
use gpux_core::threads;
#[cfg(target_os = "linux")]
use gpux_worker::WorkerEvent;

/// Keep-alive of the thread for blocking work: longer than any server runs.
const FOR_EVER: Duration = Duration::from_hours(1_000_000);

/// Events that the caller of [`serve`] receives.
#[derive(Clone, Debug)]
pub enum Event {
    /// each pipeline runs in a process of its own
    Isolated,
    /// the server accepts connections at this address; pipelines are not ready yet
    Listening(ListenAddress),
    /// the server accepts connections at this second address, too
    Grpc(ListenAddress),
    /// the pipeline of this name is loaded and warmed up for the first time
    Loaded(String),
    /// the pipeline of this name could not be loaded, and is tried again
    NotLoaded {
        /// the pipeline
        name: String,
        /// the error
        reason: String,
        /// until the next attempt
        pause: Duration,
    },
    /// requests are answered: the first load of every pipeline has ended, or takes long
    Ready(ListenAddress),
    /// the pipeline of this name was reloaded and serves requests
    Reloaded(String),
    /// the reload failed; the previous version keeps serving
    NotReloaded {
        /// the pipeline
        name: String,
        /// the error
        reason: String,
    },
    /// the process of a pipeline has ended, or a new one answers
    #[cfg(target_os = "linux")]
    Worker(WorkerEvent),
    /// a setting could not be honored; the server continues
    Warning(String),
    /// readiness fails, then the server stops accepting connections; requests under way finish
    Draining,
}

/// How the server shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownOutcome {
    /// every accepted request was answered
    Drained,
    /// some requests took longer than the drain timeout
    TimedOut,
    /// a second signal ended the drain
    Cut,
}

/// The server without connections, for benchmarks.
#[doc(hidden)]
pub struct InMemoryServer(Arc<EdgeService>);

impl InMemoryServer {
    /// Creates the server; reads its keys.
    pub fn new(server: &Arc<Server>) -> Result<Self, LoadError> {
        Ok(Self(Arc::new(EdgeService::without_telemetry(server)?)))
    }

    /// Answers a request: through the whole `EdgeService` as in [`serve`] if `front`, else by the routes alone.
    pub async fn answer(&self, request: Request<Body>, front: bool) -> Response {
        if front { self.0.answer(request, None).await } else { self.0.routes().answer(request).await }
    }
}

/// Serves the pipelines of `sources` on `listeners` until a signal ends the process. Reports its progress by `on_event`.
pub fn serve(
    server: &Arc<Server>,
    listeners: Listeners,
    sources: Vec<PipelineSource>,
    on_event: impl Fn(Event) + Send + Sync + 'static,
) -> Result<ShutdownOutcome, ListenError> {
    let settings = server.settings();
    let on_event: Arc<dyn Fn(Event) + Send + Sync> = Arc::new(on_event);
    warn(&*on_event, settings.warnings());
    #[cfg(target_os = "linux")]
    {
        let on_event = on_event.clone();
        server.repository().report_workers(Arc::new(move |event| on_event(Event::Worker(event))));
    }

    let access = Arc::new(Authentication::new(server));
    warn(&*on_event, access.load()?);

    let (isolation, lacks) = server.repository().decide_isolation(sources.len(), access.tenant_count());
    if isolation == Isolation::Pipeline {
        on_event(Event::Isolated);
    }
    if let Some(lacks) = lacks {
        if settings.isolation_strict {
            return Err(ListenError::Isolation(lacks));
        }
        let message = format!("all pipelines run in one process, which a crash of native code ends: {lacks}");
        on_event(Event::Warning(message));
    }

    let tls = settings.tls.clone().map(Tls::load).transpose()?.map(|(tls, warnings)| {
        warn(&*on_event, warnings);
        Arc::new(tls)
    });

    let local = listeners.main.local_address().map_err(ListenError::Start)?;
    if settings.keys.is_none()
        && let Some(open) = listeners.open_address()
    {
        if settings.model_control {
            return Err(ListenError::ModelControl(open));
        }
        let everybody = format!(
            "everybody who reaches {open} may use everything: name a file of keys with `--keys`, or listen on this \
             machine alone with `--host 127.0.0.1`"
        );
        on_event(Event::Warning(everybody));
    }

    let lifecycle = ServerLifecycle { server, access, tls, local, on_event };
    threads::require(needed_threads(settings)).map_err(ListenError::Start)?;
    let runtime = runtime(settings.workers).map_err(ListenError::Start)?;
    server.start_workers().map_err(ListenError::Start)?;

    let result = runtime.block_on(lifecycle.run(listeners, sources));
    // A step that is still running must not delay the exit.
    runtime.shutdown_background();
    result
}

/// The number of threads that a server starts at once: `workers` for connections, `workers` for requests, one for
/// blocking work, one that loads pipelines, and one that watches their files.
fn needed_threads(settings: &Settings) -> usize {
    2 * settings.workers + 2 + usize::from(settings.reload)
}

/// The runtime that reads connections. It starts every thread that tokio needs now: tokio panics later if the system
/// refuses one.
fn runtime(workers: usize) -> std::io::Result<Runtime> {
    let start = || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("gpux-io")
            .thread_keep_alive(FOR_EVER)
            .enable_all()
            .build()?;
        // This thread never ends. Blocking work queues for it if no other thread can be started.
        runtime.spawn_blocking(|| ());
        Ok(runtime)
    };
    catch_panic(start).map_err(std::io::Error::other)?
}

fn warn(on_event: &dyn Fn(Event), warnings: Vec<String>) {
    warnings.into_iter().map(Event::Warning).for_each(on_event);
}

/// A listening server, from its first connection to its last.
struct ServerLifecycle<'a> {
    server: &'a Arc<Server>,
    access: Arc<Authentication>,
    tls: Option<Arc<Tls>>,
    local: ListenAddress,
    on_event: Arc<dyn Fn(Event) + Send + Sync>,
}

impl ServerLifecycle<'_> {
    fn emit(&self, event: Event) {
        (self.on_event)(event);
    }

    /// Reports what happens to pipelines.
    fn on_load_event(&self) -> OnLoadEvent {
        let (on_event, local) = (self.on_event.clone(), self.local.clone());
        Box::new(move |event| {
            on_event(match event {
                LoadEvent::Ready => Event::Ready(local.clone()),
                LoadEvent::Loaded(name) => Event::Loaded(name),
                LoadEvent::NotLoaded { name, reason, pause } => Event::NotLoaded { name, reason, pause },
                LoadEvent::Reloaded(name) => Event::Reloaded(name),
                LoadEvent::NotReloaded { name, reason } => Event::NotReloaded { name, reason },
            });
        })
    }

    async fn run(&self, listeners: Listeners, sources: Vec<PipelineSource>) -> Result<ShutdownOutcome, ListenError> {
        // Signal handlers are installed before the first event: a caller may signal as soon as it receives it.
        let mut signals = Signals::new();
        self.emit(Event::Listening(self.local.clone()));
        let telemetry = self.telemetry()?;
        let accepting = self.accept(listeners, telemetry.clone())?;
        self.run_until_signal(sources, &mut signals).await?;
        self.server.close();
        self.emit(Event::Draining);
        let second = async { while signals.next().await != Signal::End {} };
        let ended = tokio::select! {
            ended = self.drain(accepting) => ended,
            () = second => return Ok(ShutdownOutcome::Cut),
        };
        if let Some(telemetry) = telemetry {
            // Exports the remaining spans.
            let _ = tokio::task::spawn_blocking(move || telemetry.flush()).await;
        }
        Ok(ended)
    }

    /// The trace exporter, if one is configured.
    fn telemetry(&self) -> Result<Option<Arc<Telemetry>>, ListenError> {
        let Some(Otlp { endpoint, must }) = &self.server.settings().otlp else { return Ok(None) };
        // It starts a thread, and panics if the system refuses one.
        match catch_panic(|| Telemetry::new(endpoint, self.server.metrics())).unwrap_or_else(Err) {
            Ok(telemetry) => Ok(Some(Arc::new(telemetry))),
            Err(why) if *must => Err(ListenError::Telemetry(why)),
            Err(why) => {
                self.emit(Event::Warning(why));
                Ok(None)
            }
        }
    }

    /// Accepts and answers connections from now on. Until pipelines are loaded, requests are answered as not ready.
    fn accept(
        &self,
        listeners: Listeners,
        telemetry: Option<Arc<Telemetry>>,
    ) -> Result<Vec<JoinHandle<()>>, ListenError> {
        let front = Arc::new(EdgeService::new(self.server, self.access.clone(), telemetry));
        let limit = Arc::new(ConnectionLimit::new(self.server.settings(), self.server.metrics()));
        let accept = |socket: ListenSocket| {
            let listener = Listener::new(socket).map_err(ListenError::Start)?;
            let (server, tls) = (self.server.clone(), self.tls.clone());
            let stopping = server.stopping();
            Ok::<_, ListenError>(tokio::spawn(connections::accept(
                listener,
                server,
                front.clone(),
                tls,
                limit.clone(),
                stopping,
            )))
        };
        let mut accepting = vec![accept(listeners.main)?];
        if let Some(grpc) = listeners.grpc {
            let local = grpc.local_address().map_err(ListenError::Start)?;
            accepting.push(accept(grpc)?);
            self.emit(Event::Grpc(local));
        }
        Ok(accepting)
    }

    /// Loads the pipelines, again on SIGHUP, until a signal asks to end.
    async fn run_until_signal(&self, sources: Vec<PipelineSource>, signals: &mut Signals) -> Result<(), ListenError> {
        let (fail, mut failed) = oneshot::channel();
        let on_failed_start = move |error| {
            // The receiver is gone if a signal came first.
            let _ = fail.send(error);
        };
        let reloader = Loader::start(self.server, sources, self.on_load_event(), on_failed_start);
        let reloader = reloader.map_err(ListenError::Start)?;
        loop {
            tokio::select! {
                Ok(error) = &mut failed, if !failed.is_terminated() => return Err(error.into()),
                signal = signals.next() => match signal {
                    Signal::End => return Ok(()),
                    Signal::Reload => self.reload(&reloader),
                },
            }
        }
    }

    /// Reloads keys and certificate, then the pipelines. Runs in the background: a file may lie on a disk that hangs.
    fn reload(&self, reloader: &Reloader) {
        let (access, tls, on_event) = (self.access.clone(), self.tls.clone(), self.on_event.clone());
        let reloader = reloader.clone();
        tokio::task::spawn_blocking(move || {
            match access.load() {
                Ok(warnings) => warn(&*on_event, warnings),
                Err(error) => warn(&*on_event, vec![format!("the keys are those of before: {error}")]),
            }
            match tls.map(|tls| tls.reload()) {
                Some(Ok(warnings)) => warn(&*on_event, warnings),
                Some(Err(error)) => warn(&*on_event, vec![format!("the certificate is that of before: {error}")]),
                None => {}
            }
            reloader.all();
        });
    }

    /// Stops accepting connections and waits for requests under way, up to the drain timeout.
    async fn drain(&self, accepting: Vec<JoinHandle<()>>) -> ShutdownOutcome {
        let settings = self.server.settings();
        tokio::time::sleep(settings.drain_delay).await;
        self.server.stop();
        // Connections without a request end within this.
        let limit = settings.drain.max(Duration::from_millis(100));
        let ended = tokio::time::timeout(limit, join_all(accepting)).await;
        if ended.is_ok() { ShutdownOutcome::Drained } else { ShutdownOutcome::TimedOut }
    }
}
