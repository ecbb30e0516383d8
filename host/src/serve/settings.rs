//! What the operator decides about the server.

use std::path::PathBuf;
use std::time::Duration;

use super::schedule::LaneOptions;
use crate::assemble::Pipeline;

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// the collector's URL
    pub endpoint: String,
    /// whether no server starts where that cannot be used; else it warns
    pub must: bool,
}

/// How the server listens and what it allows.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the operator's")]
pub struct Settings {
    /// the address to listen on
    pub host: String,
    /// the port to listen on; 0 takes a free one
    pub port: u16,
    /// a second port with the same API, for clients that expect gRPC on one of its own; 0 takes a free one
    pub grpc_port: Option<u16>,
    /// whether clients may load and unload pipelines
    pub model_control: bool,
    /// threads that run plans; one a core keeps sandboxes and models from taking each other's time
    pub workers: usize,
    /// the largest body of a request, in bytes; more is refused before it is read
    pub max_body: usize,
    /// what has come of the bodies of all requests may be so much together, in bytes; more is refused at once
    pub body_memory: usize,
    /// how many requests of one pipeline may wait; more are refused at once
    pub max_queue: usize,
    /// how long a client may take to send the head of a request
    pub header_timeout: Duration,
    /// how long a client may take to send the body of a request
    pub body_timeout: Duration,
    /// how long a connection may lie idle between two requests, how long its client may take nothing of an
    /// answer, and how long the head of any but the first request may take
    pub idle_timeout: Duration,
    /// the most connections at once; more wait to be taken
    pub max_connections: usize,
    /// the most requests at once on one connection of HTTP/2
    pub max_streams: u32,
    /// certificate and key, for TLS
    pub tls: Option<TlsFiles>,
    /// the file of API keys; without one, everybody may use everything
    pub keys: Option<PathBuf>,
    /// origins whose pages may read answers; `*` for all
    pub cors: Vec<String>,
    /// names of the server in requests from its own machine, where no keys are asked for; `*` for any
    pub allow_hosts: Vec<String>,
    /// whether the metrics come under Triton's names as well
    pub triton_metrics: bool,
    /// whether each answer is a line in the log
    pub access_log: bool,
    /// where traces are sent, by OTLP on gRPC
    pub otlp: Option<Otlp>,
    /// whether pipelines are loaded again when their files change
    pub reload: bool,
    /// how long the server goes on taking requests once it is asked to end, so that whoever sends
    /// them can see that it is not ready any more
    pub drain_delay: Duration,
    /// how long requests under way may take once the server is asked to end
    pub drain: Duration,
    /// whether a request may ask for its trace, which shows what lies between the steps
    pub trace: bool,
}

/// Files in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// the certificate, followed by those between it and one that clients trust
    pub certificate: PathBuf,
    /// its private key
    pub key: PathBuf,
}

/// File descriptors that are not for connections: models, logs, the console.
#[cfg(unix)]
const OTHER_FILES: u64 = 128;

/// As many connections as there are file descriptors for.
fn max_connections() -> usize {
    const MOST: usize = 16_384;
    #[cfg(unix)]
    {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let left = files.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES);
        usize::try_from(left).unwrap_or(MOST).clamp(16, MOST)
    }
    #[cfg(not(unix))]
    MOST
}

impl Settings {
    /// The seeds' port.
    pub const PORT: u16 = 8080;
    /// The seeds' address: every network of the machine.
    pub const HOST: &'static str = "0.0.0.0";

    /// What the lane of a pipeline takes: as many at once as there are workers, and beside those as
    /// many as its models run together, and as many again that are prepared meanwhile.
    pub(super) fn lane(&self, pipeline: &Pipeline) -> LaneOptions {
        LaneOptions { concurrency: self.workers + 2 * pipeline.at_once(), queue: self.max_queue }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: Self::HOST.to_owned(),
            port: Self::PORT,
            grpc_port: None,
            model_control: false,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            // A tensor of 64 MiB, which Triton takes, with what is said of it; and room for its kin.
            max_body: 128 << 20,
            body_memory: 1 << 30,
            max_queue: 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_connections: max_connections(),
            max_streams: 256,
            tls: None,
            keys: None,
            cors: Vec::new(),
            allow_hosts: Vec::new(),
            triton_metrics: false,
            access_log: false,
            otlp: None,
            reload: false,
            drain_delay: Duration::ZERO,
            drain: Duration::from_secs(30),
            trace: true,
        }
    }
}
