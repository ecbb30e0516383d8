//! What the server and a worker tell each other over the control socket: a line of JSON each.

use std::io::{self, BufRead, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::model_statistics::ModelStatistics;
use crate::warm_up::WarmUpReport;
use gpux::error::ReportedError;
use gpux::internal::PipelineInfo;

/// The longest line.
const LONGEST: u64 = 64 << 20;

/// What a worker tells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerMessage {
    /// the pipeline is loaded and warm
    Ready(Box<ReadyMessage>),
    /// the pipeline cannot be loaded
    Failed(ReportedError),
    /// the numbers of its models have changed
    Statistics(Vec<ModelStatistics>),
}

/// A pipeline that is loaded and warm.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyMessage {
    pub(crate) info: PipelineInfo,
    pub(crate) warm_up_report: WarmUpReport,
    /// after the warm-up
    pub(crate) statistics: Vec<ModelStatistics>,
    /// what the system lacks to give the process namespaces of its own
    pub(crate) namespaces: Option<String>,
}

/// Writes a line.
pub(crate) fn send(mut to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line; `None` at the end.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(LONGEST).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}
