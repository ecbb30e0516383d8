//! The supervisor of a server: it holds the listening sockets and starts the server again when native code ends it.
//! Connections queue at the sockets meanwhile.

use std::io::{ErrorKind, Read as _, Result, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::child::{ChildEnd, SignalForwarder, is_child, same_command};
use gpux_core::file_passing::{receive_files, send_files};
use gpux_core::threads;
use gpux_serve::Listeners;

/// A server that has run so long has recovered from the crash before.
const STABLE: Duration = Duration::from_mins(1);

/// The pause before the second restart in a row; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often a pause looks for signals.
const POLL: Duration = Duration::from_millis(20);

/// How the server of a supervisor ended.
pub(crate) enum ServerEnd {
    /// with this exit code
    Exit(u8),
    /// it crashed before it was ever ready, or while it was asked to end; in words
    Crash(String),
}

/// Runs the server in child processes until one ends by itself. Tells `on_crash` the reason of each crash, and the pause
/// before the next start. Gives the listeners back if no child can be started.
pub(crate) fn supervise(
    listeners: Listeners,
    on_crash: impl FnMut(&str, Duration),
) -> std::result::Result<ServerEnd, Listeners> {
    match ServerProcess::start(&listeners) {
        Ok(child) => Ok(run(child, listeners, on_crash).unwrap_or_else(|error| ServerEnd::Crash(error.to_string()))),
        Err(_) => Err(listeners),
    }
}

fn run(mut child: ServerProcess, listeners: Listeners, mut on_crash: impl FnMut(&str, Duration)) -> Result<ServerEnd> {
    let mut signals = SignalForwarder::new()?;
    // Dropped when the end begins: the server alone then says how long it accepts connections.
    let mut listeners = Some(listeners);
    let (mut was_ready, mut crashes) = (false, 0_u32);
    loop {
        let begun = Instant::now();
        let reason = match ChildEnd::from(signals.wait(child.id, || listeners = None)?) {
            ChildEnd::Exit(code) => return Ok(ServerEnd::Exit(code)),
            ChildEnd::Crash(reason) => reason,
        };
        was_ready |= child.was_ready();
        let Some(sockets) = listeners.as_ref().filter(|_| was_ready) else { return Ok(ServerEnd::Crash(reason)) };
        crashes = if begun.elapsed() > STABLE { 1 } else { crashes.saturating_add(1) };
        let pause = pause_before_restart(crashes);
        on_crash(&reason, pause);
        child = loop {
            if is_ended_while_pausing(&mut signals, pause) {
                return Ok(ServerEnd::Crash(reason));
            }
            match ServerProcess::start(sockets) {
                Ok(child) => break child,
                Err(error) => on_crash(&format!("it cannot be started: {error}"), LONGEST_PAUSE),
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

/// The process of a server.
struct ServerProcess {
    id: Pid,
    /// a byte arrives once the server is ready
    control: UnixStream,
}

impl ServerProcess {
    fn start(listeners: &Listeners) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = same_command()?.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        let sockets: Vec<_> = listeners.sockets().map(TcpListener::as_fd).collect();
        // A child that is gone already says so when it is waited for.
        let _ = send_files(&ours, &sockets);
        ours.set_nonblocking(true)?;
        Ok(Self { id: Pid::from_child(&child), control: ours })
    }

    /// Whether it has been ready to answer.
    fn was_ready(&mut self) -> bool {
        matches!(self.control.read(&mut [0]), Ok(1))
    }
}

/// A server's side of its supervisor.
pub(crate) struct Supervised(UnixStream);

impl Supervised {
    /// The sockets of the supervisor, if this process has one. It ends when the supervisor does.
    pub(crate) fn connect() -> Result<Option<(Self, Listeners)>> {
        if !is_child() {
            return Ok(None);
        }
        let control = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        // Programs that the server starts must not keep the socket open.
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        let mut sockets = receive_files(&control)?.into_iter().map(TcpListener::from);
        let main = sockets.next().ok_or(ErrorKind::UnexpectedEof)?;
        let listeners = Listeners::inherited(main, sockets.next());
        let watched = control.try_clone()?;
        threads::spawn("gpux-supervised", move || {
            // The supervisor sends nothing more: this waits for its end.
            let _ = (&watched).read(&mut [0]);
            let _ = kill_process(getpid(), Signal::KILL);
        })?;
        Ok(Some((Self(control), listeners)))
    }

    /// Tells the supervisor that the server is ready: from now on a crash of it is followed by a restart.
    pub(crate) fn tell_ready(&self) {
        // The supervisor reads this after the server's end.
        let _ = (&self.0).write(&[1]);
    }
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
