//! The worker: a process that loads one pipeline and runs its requests.

use std::io::{self, BufReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, getpgid, getppid, set_parent_process_death_signal, setpgid, setsid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::channel::{ChannelMemory, RequestService};
use crate::confine::{ConfinementLacks, confine};
use crate::foreign_folder::ForeignFolder;
use crate::messages::{self, ReadyMessage, WorkerMessage};
use crate::model_statistics::ModelStatistics;
use crate::request_threads::RequestThreads;
use crate::warm_up::{GoldenCase, warm_up};
use crate::{engine_threads, environment_error};
use gpux::internal::{Definition, Source};
use gpux::{GpuxError, LoadOptions, Pipeline};
use gpux_confinement::forbid_new_processes;
use gpux_core::file_passing::receive_files;
use gpux_core::threads;

/// How often the numbers of models are sent, if they have changed.
const STATISTICS: Duration = Duration::from_secs(1);

/// How a worker is run: the first message that the server sends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerOptions {
    /// how its pipeline is loaded
    pub load_options: LoadOptions,
    /// whether it ends where the system cannot confine it
    pub must_be_confined: bool,
    /// how many requests run at once, beside those that wait for others
    pub threads: usize,
}

/// Runs requests of the pipeline until the server closes the control socket, which is standard input; that ends the
/// process. `golden_case` warms the pipeline up if `serving.warmup` is empty. The process must have no other threads yet.
pub fn run_worker(pipeline: &Path, golden_case: GoldenCase) -> io::Result<()> {
    begin_session();
    // Also where it is stopped, and cannot see that its socket was closed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Programs that the worker starts must not keep the socket open.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    let files: [OwnedFd; 2] = receive_files(&control)?.try_into().map_err(|_| io::ErrorKind::UnexpectedEof)?;
    let [memory, event] = files;
    let memory = ChannelMemory::open(memory)?;
    let options = messages::receive(&mut BufReader::new(&control))?;
    let mut options: WorkerOptions = options.ok_or(io::ErrorKind::UnexpectedEof)?;
    // Whoever ends a group of processes means the server, which drains first and then closes the socket.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    // While this is the only thread.
    let foreign = ForeignFolder::open(pipeline)?;
    let reachable = foreign.as_ref().zip(pipeline.file_name()).map(|(folder, name)| folder.path().join(name));
    let confined = confine_for(reachable.as_deref().unwrap_or(pipeline), &mut options)?;
    let watched = control.try_clone()?;
    threads::spawn("gpux-control", move || {
        // The server sends nothing more: this waits for its end. Nothing here needs to be finished.
        let _ = (&watched).read(&mut [0]);
        signal_hook::low_level::exit(1);
    })?;
    let loaded = confined.and_then(|(definition, lacks)| {
        let started = engine_threads::start_if_long().map_err(|error| environment_error(error.to_string()))?;
        let pipeline = Pipeline::load(definition, &options.load_options)?;
        // Loading is what compiles and measures in child processes. Without seccomp, `lacks` says so.
        let _ = forbid_new_processes();
        let report = warm_up(&pipeline, golden_case)?;
        drop(started);
        Ok((pipeline, report, lacks))
    });
    let (pipeline, report, lacks) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let error = known_path(foreign.as_ref(), error.to_reported());
            return messages::send(&control, &WorkerMessage::Failed(error));
        }
    };
    let pipeline = Arc::new(pipeline);
    RequestThreads::start(pipeline.clone(), RequestService::new(memory, event), options.threads)?;
    let statistics = ModelStatistics::of(&pipeline);
    let mut info = pipeline.info();
    let required = lacks.required.iter().map(|lack| format!("its process is not wholly confined: {lack}"));
    info.warnings.extend(required);
    let info = known_path(foreign.as_ref(), info);
    let ready = ReadyMessage { info, warm_up_report: report, statistics, namespaces: lacks.namespaces };
    messages::send(&control, &WorkerMessage::Ready(Box::new(ready)))?;
    report_statistics(&pipeline, &control)
}

/// The message with the path of the pipeline that the server knows.
fn known_path<T: Serialize + DeserializeOwned>(foreign: Option<&ForeignFolder>, message: T) -> T {
    match foreign {
        Some(folder) => folder.with_known_path(message),
        None => message,
    }
}

/// Linux shares the processor among sessions first (autogroups), then among their threads.
fn begin_session() {
    // The first of a group cannot begin a session: it leaves its group, for the server's, first.
    let group = getpgid(getppid());
    let _ = group.and_then(|group| setpgid(None, Some(group))).and_then(|()| setsid());
}

/// Reads what describes the pipeline, and confines this process to it; returns what the system lacks for that. The
/// outer error ends the process.
fn confine_for(
    pipeline: &Path,
    options: &mut WorkerOptions,
) -> io::Result<Result<(Definition, ConfinementLacks), GpuxError>> {
    let definition = match Source::find(pipeline).and_then(|source| source.read(&options.load_options)) {
        Ok(definition) => definition,
        Err(error) => return Ok(Err(error)),
    };
    let lacks = confine(&definition, &mut options.load_options)?;
    if options.must_be_confined && !lacks.required.is_empty() {
        let message = format!("`--isolation-strict`: the process cannot be confined: {}", lacks.required.join("; "));
        return Ok(Err(environment_error(message)));
    }
    Ok(Ok((definition, lacks)))
}

/// Sends the numbers of models when they change.
fn report_statistics(pipeline: &Pipeline, control: &UnixStream) -> io::Result<()> {
    let mut sent = Vec::new();
    loop {
        std::thread::sleep(STATISTICS);
        let now = ModelStatistics::of(pipeline);
        if now != sent {
            messages::send(control, &WorkerMessage::Statistics(now.clone()))?;
            sent = now;
        }
    }
}
