//! The process of a worker, from the server: it is started, killed and waited for.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufReader, PipeReader, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use crate::channel::ChannelClient;
use crate::command::{PipelineEnvironment, TemporaryFolder, WorkerCommand, cannot_start};
use crate::control_group::ControlGroup;
use crate::memory_watch::{Watched, exceeds_memory};
use crate::messages::{self, ReadyMessage, WorkerMessage};
use crate::model_statistics::ModelStatistics;
use crate::template::CopyRequest;
use crate::templates::Copied;
use crate::warm_up::WarmUpReport;
use gpux::GpuxError;
use gpux::error::ModelCrash;
use gpux::internal::{Definition, PipelineInfo, engine_library};
use gpux_core::child_process::describe_exit;
use gpux_core::file_passing::send_files;
use gpux_core::threads;

/// The most of a worker's last words that are kept, in bytes.
const LAST_WORDS: usize = 4 << 10;

/// A worker that has closed its socket has this long to end by itself.
const GRACE: Duration = Duration::from_millis(100);

/// How long the end of a killed process is waited for.
const UNKILLABLE: Duration = Duration::from_secs(5);

/// The last lines that are told.
const LAST_LINES: usize = 3;

/// A running worker.
pub(crate) struct Worker {
    pub(crate) channel: ChannelClient,
    process: OwnedFd,
    /// how it ended, or why the server killed it
    pub(crate) reason: Mutex<Option<String>>,
    /// whether it was killed
    pub(crate) is_dying: AtomicBool,
    /// the first process of its group
    id: u32,
    /// in which the kernel bounds its memory
    _group: Option<Arc<ControlGroup>>,
    /// where it writes its temporary files
    _temporary: TemporaryFolder,
}

/// A worker with the server's ends of its socket and pipe. The process ends when this is dropped.
pub(crate) struct WorkerProcess {
    pub(crate) worker: Arc<Worker>,
    /// receives how it ended
    end: Receiver<String>,
    pub(crate) control: BufReader<UnixStream>,
    last_words: Arc<Mutex<Vec<u8>>>,
    /// disconnected once nothing more is printed
    printed: Receiver<()>,
}

/// A worker whose pipeline is loaded and warm.
pub(crate) struct StartedWorker {
    pub(crate) process: WorkerProcess,
    pub(crate) info: PipelineInfo,
    pub(crate) warm_up_report: WarmUpReport,
    /// after the warm-up
    pub(crate) statistics: Vec<ModelStatistics>,
    /// what the system lacks to give the process namespaces of its own
    pub(crate) namespaces: Option<String>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched for Worker {
    fn id(&self) -> u32 {
        self.id
    }

    fn shared_memory(&self) -> u64 {
        self.channel.used_bytes()
    }

    fn kill(&self, reason: String) {
        lock(&self.reason).get_or_insert(reason);
        self.is_dying.store(true, Ordering::SeqCst);
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Worker {
    /// Kills it if it is not ready in time, unless what is returned is dropped before. `flag` is what sets
    /// the limit, for the message.
    pub(crate) fn limit_loading(self: Arc<Self>, limit: Duration, flag: &'static str) -> io::Result<Sender<()>> {
        let (loaded, end) = channel();
        threads::spawn("gpux-load-limit", move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                self.kill(format!("killed: it was not ready within {} s{flag}", limit.as_secs_f32()));
            }
        })?;
        Ok(loaded)
    }
}

impl StartedWorker {
    /// Waits until the pipeline of the process is warm. Its description is filed under the name in `definition`, whatever
    /// the process says.
    pub(crate) fn load(mut process: WorkerProcess, definition: &Definition) -> Result<Self, GpuxError> {
        match messages::receive(&mut process.control) {
            Ok(Some(WorkerMessage::Ready(ready))) => {
                let ReadyMessage { mut info, warm_up_report, statistics, namespaces } = *ready;
                info.name.clone_from(&definition.spec().name.value);
                info.aliases.clone_from(&definition.spec().serving.aliases);
                Ok(Self { process, info, warm_up_report, statistics, namespaces })
            }
            Ok(Some(WorkerMessage::Failed(error))) => Err(error.into()),
            Ok(Some(WorkerMessage::Statistics(_)) | None) | Err(_) => {
                let status = process.wait();
                let status = lock(&process.worker.reason).take().unwrap_or(status);
                let reason = format!("{status}{}", process.last_words());
                Err(ModelCrash { reason, step: None }.into())
            }
        }
    }
}

impl WorkerProcess {
    pub(crate) fn spawn(definition: &Definition, command: &WorkerCommand) -> Result<Self, GpuxError> {
        let environment = command.environment_of(definition)?;
        // The kernel counts pages of mapped files as well.
        let limit = command.memory.limits().each.saturating_add(model_bytes(definition));
        let group = ControlGroup::create(limit).map(Arc::new);
        Self::spawn_in(environment, definition, command, group).map_err(cannot_start)
    }

    fn spawn_in(
        environment: PipelineEnvironment,
        definition: &Definition,
        command: &WorkerCommand,
        group: Option<Arc<ControlGroup>>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (printed, prints) = io::pipe()?;
        let channel_client = ChannelClient::create()?;

        let PipelineEnvironment { variables, options, temporary } = environment;
        let watch = &command.memory;
        let library = engine_library(definition, &options.load_options);
        let launch = Launch {
            command: command.clone(),
            library,
            pipeline: definition.source().path().to_owned(),
            variables,
            control: theirs.into(),
            output: prints.into(),
        };

        let ((started, start), (ended, end)) = (channel(), channel());
        let socket = ours.try_clone()?;
        let (limit, own_group) = (watch.limits().each, group.clone());
        // The system kills a worker at the end of the thread that started it, so that thread waits for the worker.
        threads::spawn("gpux-worker-end", move || {
            let mut launched = match launch.run() {
                Ok(launched) => launched,
                Err(error) => return drop(started.send(Err(error))),
            };
            let process = launched.reference().inspect_err(|_| launched.kill());
            let _ = started.send(process.map(|process| (launched.id(), process)));
            let status = launched.wait();
            let has_too_much = own_group.is_some_and(|group| group.has_killed());
            let _ = ended.send(if has_too_much { exceeds_memory(limit) } else { status });
            // What the worker has started may still hold the other end.
            let _ = socket.shutdown(Shutdown::Both);
        })?;

        let (pid, process) = start.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        let id = pid.as_raw_nonzero().get().cast_unsigned();
        // While it waits for its options. Without a group, its memory is counted.
        let group = group.filter(|group| group.add(id).is_ok());
        let sent = send_files(&ours, &channel_client.files()).and_then(|()| messages::send(&ours, &options));
        if let Err(error) = sent
            // One that has ended already says so when it is waited for.
            && !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        {
            let _ = pidfd_send_signal(&process, Signal::KILL);
            return Err(error);
        }

        let last_words = Arc::new(Mutex::new(Vec::new()));
        let kept = last_words.clone();
        let (printing, ended_printing) = channel::<()>();
        threads::spawn("gpux-last-words", move || {
            keep_end(printed, &kept);
            drop(printing);
        })?;

        let worker = Worker {
            channel: channel_client,
            process,
            reason: Mutex::default(),
            is_dying: AtomicBool::new(false),
            id,
            _group: group,
            _temporary: temporary,
        };
        let worker = Arc::new(worker);

        let watched: Weak<Worker> = Arc::downgrade(&worker);
        watch.add(watched)?;
        Ok(Self { worker, end, control: BufReader::new(ours), last_words, printed: ended_printing })
    }

    /// Waits for the end of the process, which it is made to come to; returns how it ended.
    pub(crate) fn wait(&self) -> String {
        // What has closed the socket ends, or is ended.
        self.end.recv_timeout(GRACE).unwrap_or_else(|_| {
            let _ = pidfd_send_signal(&self.worker.process, Signal::KILL);
            // A process may sleep where no signal reaches it, in a driver: nobody waits for that.
            self.end.recv_timeout(UNKILLABLE).unwrap_or_else(|_| "it was killed, and has not ended yet".to_owned())
        })
    }

    /// The last lines that the process printed, behind a colon.
    pub(crate) fn last_words(&self) -> String {
        // They may still be on their way.
        let _ = self.printed.recv_timeout(GRACE);
        let words = lock(&self.last_words);
        let text = String::from_utf8_lossy(&words);
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.worker.process, Signal::KILL);
    }
}

/// Bytes of the files of models, with what lies beside them: their weights.
fn model_bytes(definition: &Definition) -> u64 {
    let folder = definition.source().path().parent().unwrap_or(Path::new("."));
    let models = definition.spec().models.iter().map(|model| folder.join(&model.source.value));
    let folders: BTreeSet<_> = models.filter_map(|model| Some(model.parent()?.to_owned())).collect();
    let files = folders.iter().flat_map(|folder| folder.read_dir().into_iter().flatten().flatten());
    files.filter_map(|file| file.path().metadata().ok()).map(|file| file.len()).fold(0, u64::saturating_add)
}

/// What a worker is started with.
struct Launch {
    command: WorkerCommand,
    library: Option<PathBuf>,
    pipeline: PathBuf,
    variables: Vec<(OsString, OsString)>,
    control: OwnedFd,
    output: OwnedFd,
}

/// A process that was started for a worker.
enum Launched {
    /// of a template
    Copied(Copied),
    Spawned(Child),
}

impl Launch {
    /// Starts the process. The worker's ends of socket and pipe are closed here.
    fn run(self) -> io::Result<Launched> {
        let Self { command, library, pipeline, variables, control, output } = self;
        if let Some(templates) = &command.templates {
            let command_line = vec![command.program.clone().into(), "__worker".into(), pipeline.clone().into()];
            let request = CopyRequest { pipeline: pipeline.clone().into(), variables: variables.clone(), command_line };
            let files = [control.as_fd(), output.as_fd()];
            let program = (command.program.as_path(), &command.shared_environment());
            if let Some(copied) = templates.copy(library.as_deref(), program, &request, files) {
                return Ok(Launched::Copied(copied));
            }
        }
        let mut program = Command::new(&command.program);
        program.arg("__worker").arg(pipeline).env_clear().envs(variables);
        // Of a process group of its own: ctrl-C on a terminal is for the server, which drains first.
        program.process_group(0).stdin(control).stdout(output.try_clone()?).stderr(output);
        program.spawn().map(Launched::Spawned)
    }
}

impl Launched {
    fn id(&self) -> Pid {
        match self {
            Self::Copied(copied) => copied.id,
            Self::Spawned(child) => Pid::from_child(child),
        }
    }

    fn reference(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Copied(copied) => copied.process.try_clone(),
            Self::Spawned(child) => Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?),
        }
    }

    fn kill(&mut self) {
        let _ = match self {
            Self::Copied(copied) => pidfd_send_signal(&copied.process, Signal::KILL).map_err(io::Error::from),
            Self::Spawned(child) => child.kill(),
        };
    }

    /// Waits for its end, ends what it has started, and says how it ended.
    fn wait(self) -> String {
        match self {
            Self::Copied(copied) => copied.wait(),
            Self::Spawned(mut child) => {
                let status = child.wait().map_or_else(|error| error.to_string(), describe_exit);
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                status
            }
        }
    }
}

/// Keeps the end of what the worker prints.
fn keep_end(mut printed: PipeReader, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 1024];
    while let Ok(len @ 1..) = printed.read(&mut bytes) {
        let mut kept = lock(kept);
        kept.extend_from_slice(&bytes[..len]);
        let beyond = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..beyond);
    }
}
