//! The operator's settings of the server.

mod available_memory;
mod trusted_proxies;

use std::path::PathBuf;
use std::time::Duration;

use gpux_worker::GoldenCase;
#[cfg(target_os = "linux")]
use gpux_worker::WorkerCommand;

pub use trusted_proxies::{TrustedProxies, TrustedProxy};

/// The collector of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// the collector's URL
    pub endpoint: String,
    /// whether the server fails to start if the endpoint is unusable; else it warns
    pub must: bool,
}

/// Where pipelines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationPolicy {
    /// each in a process of its own if a crash would hurt others: if several pipelines are served, or several tenants,
    /// and if the system has such processes
    Auto,
    /// in the server's process
    None,
    /// each in a process of its own
    Pipeline,
}

/// Which pipelines that cannot be loaded keep a server from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    /// it ends if none can be loaded; else those that cannot are tried again
    Any,
    /// it ends if one cannot be loaded, and is ready once all are
    All,
    /// it does not end, since it has served them before: a server that its supervisor starts again
    Restart,
}

/// Settings of the server.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the operator's")]
pub struct Settings {
    /// the address to listen on
    pub host: String,
    /// the port to listen on; 0 picks a free one
    pub port: u16,
    /// a second port with the same API, for clients that expect gRPC on a separate port; 0 picks a free one
    pub grpc_port: Option<u16>,
    /// the path of a Unix socket to listen on, in place of `host` and `port`
    pub socket: Option<PathBuf>,
    /// the path of a second Unix socket, in place of `grpc_port`
    pub grpc_socket: Option<PathBuf>,
    /// the mode of the files of Unix sockets: who may write may connect
    pub socket_mode: u32,
    /// the path under which a reverse proxy shows the server, without a slash at its end; empty for none
    pub root_path: String,
    /// the reverse proxies that are believed what they say of clients
    pub trusted_proxies: TrustedProxies,
    /// whether clients may load and unload pipelines
    pub model_control: bool,
    /// threads that run plans; one per core avoids contention between sandboxes and models
    pub workers: usize,
    /// the memory limit of the process in bytes, if known
    pub memory: Option<usize>,
    /// the largest body of a request, in bytes; larger ones are rejected before they are read
    pub max_body: usize,
    /// the memory budget of all request bodies with their decoded forms, in bytes; requests beyond it are rejected at
    /// once. Responses have a budget of the same size
    pub body_memory: usize,
    /// the most waiting requests per pipeline; further ones are rejected at once
    pub max_queue: usize,
    /// timeout for the head of a connection's first request
    pub header_timeout: Duration,
    /// timeout for the body of a request
    pub body_timeout: Duration,
    /// idle timeout: of a connection between two requests, of a client that does not read its response, and of the head
    /// of every request but the first
    pub idle_timeout: Duration,
    /// the most open connections. Above 90 %, answers close them; at the limit, new connections evict idle ones, and
    /// wait to be accepted if none is idle
    pub max_connections: usize,
    /// the most HTTP/2 connections
    pub http2_connections: usize,
    /// bytes that all connections may take together for long heads, long reads and many streams
    pub connection_buffers: usize,
    /// the most HTTP/2 connections with large windows
    pub large_windows: usize,
    /// the most concurrent requests of one HTTP/2 connection
    pub max_streams: u32,
    /// certificate and key, for TLS
    pub tls: Option<TlsFiles>,
    /// the file of API keys; without one, all clients have all rights
    pub keys: Option<PathBuf>,
    /// origins whose pages may read responses; `*` for all
    pub cors: Vec<String>,
    /// host names that requests from this machine may use if no keys are required; `*` for any
    pub allow_hosts: Vec<String>,
    /// whether metrics are also exported under Triton's names
    pub triton_metrics: bool,
    /// whether `/predict` is that of Text Embeddings Inference
    pub tei_predict: bool,
    /// whether each response is logged
    pub access_log: bool,
    /// the collector of traces (OTLP over gRPC)
    pub otlp: Option<Otlp>,
    /// where pipelines run that do not ask for more isolation
    pub isolation: IsolationPolicy,
    /// whether a server that cannot isolate pipelines as wanted fails to start
    pub isolation_strict: bool,
    /// which pipelines that cannot be loaded keep it from starting
    pub start: StartPolicy,
    /// how the process of a pipeline is started; `None` where none can be
    #[cfg(target_os = "linux")]
    pub worker: Option<WorkerCommand>,
    /// warms up the pipelines in this process that have no `serving.warmup`
    pub golden_case: GoldenCase,
    /// whether pipelines are reloaded when their files change
    pub reload: bool,
    /// how long the server keeps accepting requests after a shutdown begins, so that load balancers can see that it is
    /// not ready
    pub drain_delay: Duration,
    /// how long requests under way may continue after a shutdown begins
    pub drain: Duration,
    /// whether a request may ask for its trace, which shows the values between steps
    pub trace: bool,
}

/// Files in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// the certificate, followed by the intermediate certificates
    pub certificate: PathBuf,
    /// its private key
    pub key: PathBuf,
}

/// File descriptors reserved for other uses: models, logs, the console.
#[cfg(unix)]
const OTHER_FILES: u64 = 128;

/// How long connected clients may still send requests once the server stops: every response then asks them to close the
/// connection.
pub(crate) const LAST_CALL: Duration = Duration::from_millis(250);

/// Bytes that an HTTP/1 connection holds while it is idle, or receives a short request: 21 KiB were measured.
pub(crate) const IDLE_COST: usize = 24 << 10;

/// Bytes that TLS adds.
const TLS_COST: usize = 16 << 10;

/// Bytes that HTTP/2 adds: small windows, and few streams at the same time.
const HTTP2_COST: usize = 128 << 10;

/// Bytes that a long head adds, or a buffer for long bodies.
pub(crate) const BUFFER_COST: usize = 64 << 10;

/// Bytes that as many streams add as an HTTP/2 connection with small windows may have.
pub(crate) const STREAMS_COST: usize = 512 << 10;

/// Bytes that a connection with large windows may use without a permit.
pub(crate) const LARGE_COST: usize = 10 << 20;

/// The memory that is assumed if the system does not report it, in bytes.
const USUAL: usize = 16 << 30;

/// The budget of request bodies is this fraction (1/n) of the memory; so is that of responses.
const BODIES: usize = 6;
/// The fraction (1/n) of the memory for idle connections.
const CONNECTIONS: usize = 4;
/// The fraction (1/n) of the memory for what HTTP/2 adds.
const HTTP2: usize = 12;
/// The fraction (1/n) of the memory for long heads, long reads and many streams.
const BUFFERS: usize = 24;
/// The fraction (1/n) of the memory for large HTTP/2 windows.
const WINDOWS: usize = 16;

/// The memory budget of bodies for this much memory.
fn body_memory(memory: usize) -> usize {
    (memory / BODIES).clamp(1 << 20, 1 << 30)
}

/// The most connections of this cost that file descriptors and memory allow.
fn max_connections(memory: usize, cost: usize) -> usize {
    const MOST: usize = 65_536;
    let most = (memory / CONNECTIONS / cost).clamp(16, MOST);
    #[cfg(unix)]
    {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let left = files.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES);
        usize::try_from(left).unwrap_or(most).clamp(16, most)
    }
    #[cfg(not(unix))]
    most
}

impl Settings {
    /// The default port.
    pub const PORT: u16 = 8080;
    /// A tensor of 64 MiB, which Triton accepts, with its description; and room for more.
    pub const MAX_BODY: usize = 128 << 20;
    /// The default address: every network of the machine.
    pub const HOST: &'static str = "0.0.0.0";

    /// The defaults for a process with this memory limit, in bytes.
    pub fn within(memory: usize) -> Self {
        let body_memory = body_memory(memory);
        Self {
            memory: Some(memory),
            max_body: Self::MAX_BODY.min(body_memory),
            body_memory,
            max_connections: max_connections(memory, IDLE_COST),
            http2_connections: (memory / HTTP2 / HTTP2_COST).max(16),
            connection_buffers: (memory / BUFFERS).max(STREAMS_COST),
            large_windows: memory / WINDOWS / LARGE_COST,
            ..Self::of_any()
        }
    }

    /// The most connections where all of them use TLS, if the operator names no number.
    pub fn max_tls_connections(&self) -> usize {
        max_connections(self.memory.unwrap_or(USUAL), IDLE_COST + TLS_COST)
    }

    /// Warnings about settings that may take more memory than the process has.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let Some(memory) = self.memory else { return Vec::new() };
        let of = |part: usize| format!("of the {} MiB that this process may have", part >> 20);
        let mut warnings = Vec::new();
        if self.body_memory > memory / 3 {
            warnings.push(format!(
                "`--body-memory` gives bodies {} MiB and answers as much again, {}; a third of it for each at most \
                 leaves room for models",
                self.body_memory >> 20,
                of(memory)
            ));
        }
        let connections = self.max_connections.saturating_mul(IDLE_COST);
        if connections > memory / 2 {
            warnings.push(format!(
                "`--max-connections` lets idle connections take {} MiB, {}",
                connections >> 20,
                of(memory)
            ));
        }
        warnings
    }
}

impl Default for Settings {
    fn default() -> Self {
        let memory = available_memory::available();
        Self { memory, ..Self::within(memory.unwrap_or(USUAL)) }
    }
}

impl Settings {
    /// Settings that do not depend on the memory.
    fn of_any() -> Self {
        Self {
            memory: None,
            host: Self::HOST.to_owned(),
            port: Self::PORT,
            grpc_port: None,
            socket: None,
            grpc_socket: None,
            socket_mode: 0o660,
            root_path: String::new(),
            trusted_proxies: TrustedProxies::default(),
            model_control: false,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            max_body: Self::MAX_BODY,
            body_memory: Self::MAX_BODY,
            max_queue: 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_connections: 16,
            http2_connections: 16,
            connection_buffers: STREAMS_COST,
            large_windows: 1,
            max_streams: 256,
            tls: None,
            keys: None,
            cors: Vec::new(),
            allow_hosts: Vec::new(),
            triton_metrics: false,
            tei_predict: false,
            access_log: false,
            otlp: None,
            isolation: IsolationPolicy::Auto,
            isolation_strict: false,
            start: StartPolicy::Any,
            #[cfg(target_os = "linux")]
            worker: None,
            golden_case: |_| None,
            reload: false,
            drain_delay: Duration::ZERO,
            drain: Duration::from_secs(30),
            trace: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_budgets_fit_the_memory() {
        for memory in [64 << 20, 256 << 20, 1 << 30, 2 << 30, 16 << 30, 1 << 40] {
            let settings = Settings::within(memory);
            let connections = settings.max_connections * IDLE_COST + settings.http2_connections * HTTP2_COST;
            let windows = settings.large_windows * LARGE_COST + settings.connection_buffers;
            assert!(2 * settings.body_memory + connections + windows <= memory / 100 * 78, "{settings:?}");
            assert!(settings.max_body <= settings.body_memory, "{settings:?}");
            assert_eq!(settings.warnings(), Vec::<String>::new(), "{memory}");
        }
        let memory = 1_usize << 30;
        assert!(memory / CONNECTIONS / IDLE_COST >= 10_000);
        assert_eq!(Settings::within(16 << 30).body_memory, 1 << 30);
        assert_eq!(Settings::within(16 << 30).max_body, 128 << 20);
    }

    #[test]
    fn warns_of_budgets_that_are_larger_than_the_memory() {
        let within = |memory| Settings { body_memory: 512 << 20, max_connections: 1 << 17, ..Settings::within(memory) };
        let warnings = within(1 << 30).warnings();
        assert!(warnings[0].contains("bodies 512 MiB") && warnings[0].contains("1024 MiB"), "{warnings:?}");
        assert!(warnings[1].contains("take 3072 MiB"), "{warnings:?}");
        assert!(within(8 << 30).warnings().is_empty());
    }
}
