//! The operator's settings of the server.

mod available_memory;

use std::path::PathBuf;
use std::time::Duration;

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// the collector's URL
    pub endpoint: String,
    /// whether no server starts where that cannot be used; else it warns
    pub must: bool,
}

/// Settings of the server.
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
    /// the memory that the process may have, in bytes, as far as it is known
    pub memory: Option<usize>,
    /// the largest body of a request, in bytes; more is refused before it is read
    pub max_body: usize,
    /// what has come of the bodies of all requests may be so much together, in bytes; more is refused at once, and
    /// large answers may be as much again
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
    /// the most connections at once: idle ones give way to new ones, and where none is idle, those wait to be taken
    pub max_connections: usize,
    /// how many connections of HTTP/2 may have large windows
    pub large_windows: usize,
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

/// How long those that have connections may still send requests once the server ends: every answer
/// then tells them to send no more on theirs.
pub(crate) const LAST_CALL: Duration = Duration::from_millis(250);

/// Bytes that a connection may make the server hold without being read: small windows, requests with their small
/// heads and answers, and what is read of it at once.
pub(crate) const COST: usize = 512 << 10;

/// The same with large windows.
pub(crate) const LARGE_COST: usize = 10 << 20;

/// The memory that is counted with where the system does not say how much there is, in bytes.
const USUAL: usize = 16 << 30;

/// The part of the memory for bodies; answers have as much again.
const BODIES: usize = 6;
/// The part for what connections may make the server hold without being read.
const CONNECTIONS: usize = 6;
/// The part for large windows of HTTP/2.
const WINDOWS: usize = 16;

/// The memory for bodies where the process may have so much in all.
fn body_memory(memory: usize) -> usize {
    (memory / BODIES).clamp(1 << 20, 1 << 30)
}

/// The most connections that file descriptors and memory allow.
fn max_connections(memory: usize) -> usize {
    const MOST: usize = 16_384;
    let most = (memory / CONNECTIONS / COST).clamp(16, MOST);
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
    /// A tensor of 64 MiB, which Triton takes, with what is said of it; and room for its kin.
    pub const MAX_BODY: usize = 128 << 20;
    /// The default address: every network of the machine.
    pub const HOST: &'static str = "0.0.0.0";

    /// The defaults of a process that may have so much memory, in bytes.
    pub fn within(memory: usize) -> Self {
        let body_memory = body_memory(memory);
        Self {
            memory: Some(memory),
            max_body: Self::MAX_BODY.min(body_memory),
            body_memory,
            max_connections: max_connections(memory),
            large_windows: memory / WINDOWS / LARGE_COST,
            ..Self::of_any()
        }
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
        let connections = self.max_connections.saturating_mul(COST);
        if connections > memory / 2 {
            warnings.push(format!(
                "`--max-connections` lets connections that nobody reads take {} MiB, {}",
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
            model_control: false,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            max_body: Self::MAX_BODY,
            body_memory: Self::MAX_BODY,
            max_queue: 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_connections: 16,
            large_windows: 1,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_budgets_fit_the_memory() {
        for memory in [64 << 20, 256 << 20, 1 << 30, 2 << 30, 16 << 30, 1 << 40] {
            let settings = Settings::within(memory);
            let connections = settings.max_connections * COST;
            let windows = settings.large_windows * LARGE_COST;
            assert!(2 * settings.body_memory + connections + windows <= memory / 5 * 3, "{settings:?}");
            assert!(settings.max_body <= settings.body_memory, "{settings:?}");
            assert_eq!(settings.warnings(), Vec::<String>::new(), "{memory}");
        }
        assert_eq!(Settings::within(16 << 30).body_memory, 1 << 30);
        assert_eq!(Settings::within(16 << 30).max_body, 128 << 20);
    }

    #[test]
    fn warns_of_budgets_that_are_larger_than_the_memory() {
        let within = |memory| Settings { body_memory: 512 << 20, max_connections: 4096, ..Settings::within(memory) };
        let warnings = within(1 << 30).warnings();
        assert!(warnings[0].contains("bodies 512 MiB") && warnings[0].contains("1024 MiB"), "{warnings:?}");
        assert!(warnings[1].contains("take 2048 MiB"), "{warnings:?}");
        assert!(within(8 << 30).warnings().is_empty());
    }
}
