//! Child processes of the tests: each starts with default signals, whatever started the tests (`nohup` and a shell's
//! `&` ignore some), and is killed if it runs far too long, so that no wait for it lasts for ever.

use std::ffi::OsStr;
use std::process::{Child, Command, Output, Stdio};

/// The program, with nothing on its standard input, and no store.
pub(crate) fn program() -> Command {
    let mut program = command(env!("CARGO_BIN_EXE_gpux"));
    program.env("GPUX_STORE", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-store"));
    program
}

/// Another program, with nothing on its standard input.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts children within the limit.
pub(crate) trait StartWithLimit {
    fn start(&mut self) -> Child;

    /// Runs the child to its end.
    fn run(&mut self) -> Output;
}

impl StartWithLimit for Command {
    fn start(&mut self) -> Child {
        #[cfg(unix)]
        reset_ignored_signals();
        let child = self.spawn().unwrap_or_else(|error| panic!("{self:?}: {error}"));
        #[cfg(target_os = "linux")]
        watchdog::add(&child);
        child
    }

    fn run(&mut self) -> Output {
        self.start().wait_with_output().unwrap()
    }
}

/// A signal that this process ignores would be ignored by children, too; one that it handles is not.
#[cfg(unix)]
fn reset_ignored_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    static RESET: std::sync::Once = std::sync::Once::new();
    RESET.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            if ignored >> (signal - 1) & 1 == 1 {
                signal_hook::flag::register(signal, std::sync::Arc::default()).unwrap();
            }
        }
    });
}

#[cfg(target_os = "linux")]
mod watchdog {
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::process::Child;
    use std::sync::LazyLock;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

    /// Far longer than any child takes, also where it compiles, on a machine that is busy with other things.
    const LIMIT: Duration = Duration::from_mins(20);

    static CHILDREN: LazyLock<Sender<OwnedFd>> = LazyLock::new(|| {
        let (sender, children) = channel();
        std::thread::spawn(move || watch(&children));
        sender
    });

    pub(super) fn add(child: &Child) {
        CHILDREN.send(pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap()).unwrap();
    }

    fn watch(added: &Receiver<OwnedFd>) {
        let mut children = Vec::new();
        loop {
            if let Ok(child) = added.recv_timeout(Duration::from_secs(1)) {
                children.push((Instant::now(), child));
            }
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            children.retain(|(begun, child)| {
                let is_running = matches!(waitid(WaitId::PidFd(child.as_fd()), options), Ok(None));
                if is_running && begun.elapsed() > LIMIT {
                    eprintln!("a child is killed: it runs for longer than {LIMIT:?}");
                    let _ = pidfd_send_signal(child, Signal::KILL);
                }
                is_running
            });
        }
    }
}
