//! The supervisor of a server: it holds the listening sockets and starts the server again when native code ends it.
//! Connections queue at the sockets meanwhile.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::process::set_parent_process_death_signal;
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::child::{ChildEnd, SignalForwarder, is_child, same_command};
use gpux_core::file_passing::{receive_files, send_files};
use gpux_core::files::remove_tree;
use gpux_core::threads;
use gpux_serve::{ListenSocket, Listeners};

/// A server that has run so long has recovered from the crash before.
const STABLE: Duration = Duration::from_mins(1);

/// The pause before the second restart in a row; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often a pause looks for signals.
const POLL: Duration = Duration::from_millis(20);

/// Tells the server which folder it may make for temporary files. The supervisor removes it after the server's end, the
/// server after the supervisor's.
const TEMPORARY_VARIABLE: &str = "GPUX_SERVER_TEMPORARY";

/// Tells the server that one before it was ready.
const RESTART_VARIABLE: &str = "GPUX_SERVER_RESTART";

/// How the server of a supervisor ended.
pub(crate) enum ServerEnd {
    /// with this exit code
    Exit(u8),
    /// by this signal, which somebody sent it before it could handle signals
    Signal(i32),
    /// it crashed before it was ever ready, or while it was asked to end; in words
    Crash(String),
}

/// Runs the server in child processes until one ends for good: because it was asked to, because it was never ready, or
/// with an exit code after it was ready. Tells `on_crash` what else the server did, in words (`ended: …`), and the pause
/// before the next start. Gives the listeners back, and the reason, if no child can be started.
pub(crate) fn supervise(
    listeners: Listeners,
    on_crash: impl FnMut(&str, Duration),
) -> std::result::Result<ServerEnd, (Listeners, Option<Error>)> {
    match ServerProcess::start(&listeners, false) {
        Ok(child) => {
            let failed = |error: Error| ServerEnd::Crash(format!("cannot be supervised: {error}"));
            Ok(run(child, listeners, on_crash).unwrap_or_else(failed))
        }
        Err(error) => Err((listeners, Some(error))),
    }
}

fn run(mut child: ServerProcess, listeners: Listeners, mut on_crash: impl FnMut(&str, Duration)) -> Result<ServerEnd> {
    let mut signals = SignalForwarder::new()?;
    // Dropped when the end begins: the server alone then says how long it accepts connections.
    let mut listeners = Some(listeners);
    let (mut was_ready, mut crashes) = (false, 0_u32);
    loop {
        let begun = Instant::now();
        let end = signals.wait(child.id, || listeners = None)?;
        let is_ready = child.was_ready();
        was_ready |= is_ready;
        drop(child);
        let sockets = listeners.as_ref().filter(|_| was_ready);
        // A restarted server that cannot start is tried again: the reason may pass.
        let reason = match (end, sockets.filter(|_| !is_ready)) {
            (ChildEnd::Exit(code @ 1..), Some(_)) => format!("could not start (exit code {code})"),
            (ChildEnd::Signal(signal), Some(_)) => format!("ended before it was ready, by signal {signal}"),
            (ChildEnd::Exit(code), _) => return Ok(ServerEnd::Exit(code)),
            (ChildEnd::Signal(signal), _) => return Ok(ServerEnd::Signal(signal)),
            (ChildEnd::Crash(reason), _) => format!("ended: {reason}"),
        };
        let Some(sockets) = sockets else { return Ok(ServerEnd::Crash(reason)) };
        crashes = if begun.elapsed() > STABLE { 1 } else { crashes.saturating_add(1) };
        let mut pause = pause_before_restart(crashes);
        on_crash(&reason, pause);
        child = loop {
            if is_ended_while_pausing(&mut signals, pause) {
                return Ok(ServerEnd::Crash(reason));
            }
            match ServerProcess::start(sockets, true) {
                Ok(child) => break child,
                Err(error) => {
                    pause = LONGEST_PAUSE;
                    on_crash(&format!("could not be started: {error}"), pause);
                }
            }
        };
    }
}

fn pause_before_restart(crashes: u32) -> Duration {
    match crashes {
        0 | 1 => Duration::ZERO,
        _ => FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(crashes - 2)).min(LONGEST_PAUSE),
    }
}

/// Waits; ends early if a signal asks for the end.
fn is_ended_while_pausing(signals: &mut SignalForwarder, pause: Duration) -> bool {
    let begun = Instant::now();
    loop {
        if signals.is_end_pending() {
            return true;
        }
        let left = pause.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(POLL));
    }
}

/// The process of a server. Dropped, after its end, its temporary files and control groups are removed.
struct ServerProcess {
    id: Pid,
    /// a byte arrives once the server is ready
    control: UnixStream,
    temporary: PathBuf,
}

impl ServerProcess {
    fn start(listeners: &Listeners, is_restart: bool) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // Only named: the server makes it when it needs it.
        let random = RandomState::new().hash_one(std::process::id());
        let temporary = std::env::temp_dir().join(format!("gpux-workers-{random:016x}"));
        let mut command = same_command()?;
        command.stdin(Stdio::from(OwnedFd::from(theirs))).env(TEMPORARY_VARIABLE, &temporary);
        command.envs(is_restart.then_some((RESTART_VARIABLE, "1")));
        let mut child = command.spawn()?;
        // With it, the server's end of the socket is closed here.
        drop(command);
        let sockets: Vec<_> = listeners.sockets().map(ListenSocket::as_fd).collect();
        if let Err(error) = send_files(&ours, &sockets)
            // A server that is gone already says so when it is waited for.
            && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        Ok(Self { id: Pid::from_child(&child), control: ours, temporary })
    }

    /// Whether it has been ready to answer.
    fn was_ready(&mut self) -> bool {
        matches!(self.control.read(&mut [0]), Ok(1))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = remove_tree(&self.temporary);
        #[cfg(target_os = "linux")]
        gpux_serve::remove_control_groups(self.id.as_raw_nonzero().get().cast_unsigned());
    }
}

/// A server's link to its supervisor.
pub(crate) struct SupervisorLink {
    control: UnixStream,
    /// whether a server before this one was ready
    is_restart: bool,
    /// where the server may make a folder for temporary files
    #[cfg(target_os = "linux")]
    pub(crate) temporary: Option<PathBuf>,
}

impl SupervisorLink {
    /// The link and the sockets, if this process has a supervisor. It ends when the supervisor does.
    pub(crate) fn connect() -> Result<Option<(Self, Listeners)>> {
        if !is_child() {
            return Ok(None);
        }
        let control = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        // Programs that the server starts must not keep the socket open.
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        let mut sockets = receive_files(&control)?.into_iter().map(ListenSocket::try_from);
        let main = sockets.next().ok_or(ErrorKind::UnexpectedEof)??;
        let listeners = Listeners::inherited(main, sockets.next().transpose()?);
        let temporary = std::env::var_os(TEMPORARY_VARIABLE).map(PathBuf::from);
        // A server that is stopped goes on then, and ends.
        #[cfg(target_os = "linux")]
        let _ = set_parent_process_death_signal(Some(Signal::CONT));
        let (watched, removed) = (control.try_clone()?, temporary.clone());
        threads::spawn("gpux-supervised", move || {
            // The supervisor sends nothing more: this waits for its end.
            let _ = (&watched).read(&mut [0]);
            let _ = removed.map(|folder| remove_tree(&folder));
            let _ = kill_process(getpid(), Signal::KILL);
        })?;
        let link = Self {
            control,
            is_restart: std::env::var_os(RESTART_VARIABLE).is_some(),
            #[cfg(target_os = "linux")]
            temporary,
        };
        Ok(Some((link, listeners)))
    }

    /// Whether a server before this one was ready.
    pub(crate) const fn is_restart(&self) -> bool {
        self.is_restart
    }

    /// Tells the supervisor that the server is ready: from now on a crash of it is followed by a restart.
    pub(crate) fn tell_ready(&self) {
        // The supervisor reads this after the server's end.
        let _ = (&self.control).write(&[1]);
    }
}

/// Ends this process as its server ended: by a signal that somebody sent.
pub(crate) fn end_by_signal(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_crashes_in_a_row() {
        let pauses: Vec<_> = [1, 2, 3, 6, 7, 100].map(|crashes| pause_before_restart(crashes).as_millis()).into();
        assert_eq!(pauses, [0, 200, 400, 3200, 5000, 5000]);
    }
}
