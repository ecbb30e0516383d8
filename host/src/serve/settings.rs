//! What the operator decides about the server.

use std::time::Duration;

use super::schedule::LaneOptions;
use crate::assemble::Pipeline;

/// How the server listens and what it allows.
#[derive(Clone, Debug)]
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
    /// what the bodies of all requests may hold together, in bytes; more are refused at once
    pub body_memory: usize,
    /// how many requests of one pipeline may wait; more are refused at once
    pub max_queue: usize,
    /// how long a client may take to send the head of a request
    pub header_timeout: Duration,
    /// how long a client may take to send the body of a request
    pub body_timeout: Duration,
    /// how long requests under way may take once the server is asked to end
    pub drain: Duration,
    /// whether a request may ask for its trace, which shows what lies between the steps
    pub trace: bool,
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
            max_body: 64 << 20,
            body_memory: 1 << 30,
            max_queue: 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            trace: true,
        }
    }
}
