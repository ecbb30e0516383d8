//! The template: a process that has loaded what every worker needs, and copies itself for each.
//!
//! It has one thread for its whole life, knows nothing of any pipeline, and ends with the server.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, pidfd_open,
    set_parent_process_death_signal, waitid, waitpid,
};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::messages;
use crate::process::run_worker;
use crate::warm_up::GoldenCase;
use gpux::internal::prepare_for_fork;
use gpux_confinement::{fork, replace_environment, require_single_thread};
use gpux_core::file_passing::{receive_files, send_files};

/// The worker that a copy becomes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CopyRequest {
    pub(crate) pipeline: OsString,
    /// its whole environment
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// its command line, for those who list processes
    pub(crate) command_line: Vec<OsString>,
}

/// What the template tells of a copy, after a reference to its process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum CopyMessage {
    /// it runs, with this id
    Started(i32),
    /// it has ended, with this status of `wait`
    Ended(i32),
}

/// A copy that runs.
struct Copy {
    id: Pid,
    process: OwnedFd,
    /// to the server
    connection: UnixStream,
}

/// What a copy goes on with.
struct WorkerStart {
    control: OwnedFd,
    output: OwnedFd,
    request: CopyRequest,
}

/// Copies this process, which must have no other threads, for each connection that the server sends over standard input;
/// returns when the server closes that, and in a copy when its worker ends. The copies have loaded the library of their
/// engine.
///
/// # Errors
///
/// The server cannot be reached, or a worker fails as [`run_worker`] does.
pub fn run_template(library: Option<&Path>, golden_case: GoldenCase) -> io::Result<()> {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let requests = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    // Whoever ends a group of processes means the server, which then closes the socket.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let prepared = prepare_for_fork(library).map_err(|error| error.to_string());
    let prepared = prepared.and_then(|()| require_single_thread().map_err(|error| error.to_string()));
    messages::send(&requests, &prepared)?;
    if prepared.is_err() {
        return Ok(());
    }
    let Some(WorkerStart { control, output, request }) = serve(requests)? else { return Ok(()) };
    rustix::stdio::dup2_stdin(control)?;
    rustix::stdio::dup2_stdout(&output)?;
    rustix::stdio::dup2_stderr(output)?;
    replace_environment(request.variables)?;
    // Only for people.
    let _ = replace_command_line(&request.command_line);
    run_worker(Path::new(&request.pipeline), golden_case)
}

/// Copies this process until the server is gone; returns in a copy what that is to do. By then, everything of the
/// template and of other workers is closed there.
fn serve(requests: UnixStream) -> io::Result<Option<WorkerStart>> {
    let mut copies: Vec<Copy> = Vec::new();
    loop {
        let (is_asked, ended) = wait_for_event(&requests, &copies)?;
        for index in ended.into_iter().rev() {
            copies.swap_remove(index).report_end();
        }
        if !is_asked {
            continue;
        }
        let connection = match receive_files(&requests) {
            Ok(mut files) => files.pop().map(UnixStream::from),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        // One that fails is closed, and the server starts the worker in another way.
        match connection.map(copy) {
            Some(Ok(CopyResult::Original(copy))) => copies.push(copy),
            Some(Ok(CopyResult::Copy(start))) => return Ok(Some(start)),
            Some(Err(_)) | None => {}
        }
    }
}

/// Waits; returns whether the server asks for a copy or is gone, and which copies have ended.
fn wait_for_event(requests: &UnixStream, copies: &[Copy]) -> io::Result<(bool, Vec<usize>)> {
    let files = std::iter::once(requests.as_fd()).chain(copies.iter().map(|copy| copy.process.as_fd()));
    let mut files: Vec<_> = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
    while let Err(error) = poll(&mut files, None) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    let mut ready = files.iter().map(|file| !file.revents().is_empty());
    let is_asked = ready.next() == Some(true);
    Ok((is_asked, ready.enumerate().filter_map(|(index, is_ready)| is_ready.then_some(index)).collect()))
}

enum CopyResult {
    Original(Copy),
    Copy(WorkerStart),
}

/// Copies this process for the server at the other end of the connection.
fn copy(connection: UnixStream) -> io::Result<CopyResult> {
    let mut files = receive_files(&connection)?.into_iter();
    let (Some(control), Some(output)) = (files.next(), files.next()) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let request = messages::receive(&mut BufReader::new(&connection))?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let Some(id) = fork()? else { return Ok(CopyResult::Copy(WorkerStart { control, output, request })) };
    let copy = Copy { id, process: pidfd_open(id, PidfdFlags::empty())?, connection };
    // A server that is gone closes the other socket as well.
    let _ = send_files(&copy.connection, &[copy.process.as_fd()])
        .and_then(|()| messages::send(&copy.connection, &CopyMessage::Started(id.as_raw_nonzero().get())));
    Ok(CopyResult::Original(copy))
}

impl Copy {
    /// Ends what it has started, and tells the server how it ended.
    fn report_end(self) {
        // While its id is not free for others.
        let _ = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = kill_process_group(self.id, Signal::KILL);
        if let Ok(Some((_, status))) = waitpid(Some(self.id), WaitOptions::empty()) {
            let _ = messages::send(&self.connection, &CopyMessage::Ended(status.as_raw()));
        }
    }
}

/// Writes these words where the system reads the command line of this process. Those that do not fit are cut.
fn replace_command_line(words: &[OsString]) -> io::Result<()> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold anything (proc_pid_stat(5)): `arg_start` and `arg_end` are fields 48 and 49.
    let fields: Vec<_> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
    let (Some(start), Some(end)) = (field(48), field(49)) else { return Err(io::ErrorKind::InvalidData.into()) };
    let mut line: Vec<u8> = words.iter().flat_map(|word| [word.as_encoded_bytes(), b"\0"].concat()).collect();
    let space = usize::try_from(end.saturating_sub(start)).unwrap_or_default();
    // It ends in a zero: without one, the system would read the environment behind it as well.
    line.truncate(space.saturating_sub(1));
    line.resize(space, 0);
    File::options().write(true).open("/proc/self/mem")?.write_all_at(&line, start)
}
