//! The templates of a server: processes that are copied for workers, one for each engine library.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::messages;
use crate::template::{CopyMessage, CopyRequest};
use gpux_core::child_process::describe_exit;
use gpux_core::file_passing::{receive_files, send_files};
use gpux_core::threads;

/// How long a template may take to load its library.
const LOADING: Duration = Duration::from_mins(1);

/// How long it may take for a copy.
const COPYING: Duration = Duration::from_secs(10);

/// Space for the command lines of copies, in bytes: that of the longest path, and more.
const COMMAND_LINE: usize = 5 << 10;

/// The variables of a process.
pub(crate) type Environment = Vec<(OsString, OsString)>;

/// The templates of a server.
#[derive(Debug, Default)]
pub struct Templates {
    by_library: Mutex<HashMap<Option<PathBuf>, Arc<Mutex<State>>>>,
    /// why there is none, until somebody is told
    failure: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    New,
    Running(Arc<Template>),
    /// it could not be started, and is not tried again
    Failed,
}

#[derive(Debug)]
struct Template {
    requests: UnixStream,
    process: OwnedFd,
}

/// A copy of a template, which runs a worker.
pub(crate) struct Copied {
    pub(crate) id: Pid,
    pub(crate) process: OwnedFd,
    messages: BufReader<UnixStream>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Templates {
    /// Why workers are started without a template, told once.
    pub(crate) fn take_failure(&self) -> Option<String> {
        lock(&self.failure).take()
    }

    /// Copies the template of this library for a worker; `None` if there is none. The template is started from `program`,
    /// with variables that every worker gets.
    pub(crate) fn copy(
        &self,
        library: Option<&Path>,
        program: (&Path, &Environment),
        request: &CopyRequest,
        files: [BorrowedFd<'_>; 2],
    ) -> Option<Copied> {
        let state = lock(&self.by_library).entry(library.map(Path::to_owned)).or_default().clone();
        let template = self.template(&state, library, program)?;
        let copied = template.copy(request, files).or_else(|error| {
            // Other workers go on, where it could not copy itself: the system may have had no process or memory left.
            if !template.has_ended() {
                return Err(error);
            }
            let mut current = lock(&state);
            if matches!(&*current, State::Running(other) if Arc::ptr_eq(other, &template)) {
                *current = State::New;
            }
            drop(current);
            let template = self.template(&state, library, program).ok_or(error)?;
            template.copy(request, files)
        });
        copied.map_err(|error| self.note(format!("a template gives no process: {error}"))).ok()
    }

    /// The running template, which is started if there is none yet.
    fn template(
        &self,
        state: &Mutex<State>,
        library: Option<&Path>,
        program: (&Path, &Environment),
    ) -> Option<Arc<Template>> {
        let mut state = lock(state);
        if matches!(*state, State::New) {
            *state = match Template::start(library, program) {
                Ok(template) => State::Running(Arc::new(template)),
                Err(error) => {
                    self.note(format!("the template cannot be started: {error}"));
                    State::Failed
                }
            };
        }
        match &*state {
            State::Running(template) => Some(template.clone()),
            State::New | State::Failed => None,
        }
    }

    fn note(&self, failure: String) {
        lock(&self.failure).get_or_insert(failure);
    }
}

impl Template {
    fn start(library: Option<&Path>, (program, environment): (&Path, &Environment)) -> io::Result<Self> {
        let (requests, theirs) = UnixStream::pair()?;
        let mut program = Command::new(program);
        program.arg("__template").args(library).arg(" ".repeat(COMMAND_LINE));
        program.env_clear().envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
        program.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());

        let (started, start) = channel();
        // The system kills a template at the end of the thread that started it, so that thread waits for it.
        threads::spawn("gpux-template", move || {
            let spawned = program.spawn();
            drop(program);
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => return drop(started.send(Err(error))),
            };
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
                let _ = child.kill();
            });
            let _ = started.send(process.map_err(io::Error::from));
            let _ = child.wait();
        })?;
        let process = start.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        let template = Self { requests, process };
        template.requests.set_read_timeout(Some(LOADING))?;
        match messages::receive::<Result<(), String>>(&mut BufReader::new(&template.requests))? {
            Some(Ok(())) => Ok(template),
            Some(Err(reason)) => Err(io::Error::other(reason)),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended")),
        }
    }

    fn copy(&self, request: &CopyRequest, files: [BorrowedFd<'_>; 2]) -> io::Result<Copied> {
        let (ours, theirs) = UnixStream::pair()?;
        send_files(&self.requests, &[theirs.as_fd()])?;
        drop(theirs);
        send_files(&ours, &files)?;
        messages::send(&ours, request)?;
        ours.set_read_timeout(Some(COPYING))?;
        let process = receive_files(&ours)?.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut messages = BufReader::new(ours);
        let started = messages::receive(&mut messages)?;
        messages.get_ref().set_read_timeout(None)?;
        match started {
            Some(CopyMessage::Started(id)) => {
                let id = Pid::from_raw(id).ok_or(io::ErrorKind::InvalidData)?;
                Ok(Copied { id, process, messages })
            }
            Some(CopyMessage::Ended(_)) | None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn has_ended(&self) -> bool {
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut ended, Some(&now)).is_ok_and(|count| count > 0)
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Copied {
    /// Waits for its end, and says how it ended.
    pub(crate) fn wait(mut self) -> String {
        if let Ok(Some(CopyMessage::Ended(status))) = messages::receive(&mut self.messages) {
            return describe_exit(ExitStatus::from_raw(status));
        }
        // The system ends it with its template, unless it had not asked for that yet.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        "it was ended, since the template that it was copied from ended".to_owned()
    }
}
