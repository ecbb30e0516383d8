//! Asking a child process, within bounds: for whatever may bring a process down, or take more of
//! the machine than it is worth (engine libraries, unknown models, strangers' components).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::platform::catch_panic::shorten;
use crate::platform::process_exit::exit;

/// Bytes that are read of a child's output: its end, which holds the answer and the last messages.
const OUTPUT_LIMIT: u64 = 1 << 20;

/// Bytes that must be free on the disk for an answer.
const MIN_FREE_DISK: usize = 64 << 10;

/// A child that gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// the system starts no process
    #[error("no process could be started: {0}")]
    Start(std::io::Error),
    /// its output has no file
    #[error("the folder for temporary files, `{}` (TMPDIR), cannot be used: {error}", folder.display())]
    Temporary {
        /// `TMPDIR`
        folder: PathBuf,
        /// why
        error: std::io::Error,
    },
    /// it was killed after this long
    #[error("it did not end within {} s", .0.as_secs())]
    Timeout(Duration),
    /// its output is over the limit
    #[error("its answer is longer than {} MiB", OUTPUT_LIMIT >> 20)]
    TooLong,
    /// it ended without an answer
    #[error("{how}{}", if .stderr.is_empty() { String::new() } else { format!(": {stderr}") })]
    Ended {
        /// its exit code or signal
        how: String,
        /// the end of what it wrote there
        stderr: String,
    },
}

impl ChildError {
    /// Whether the machine let there be no child.
    pub const fn is_environment(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Temporary { .. })
    }
}

/// Reads the parent's input of such a child. Blocks until it comes. To be called before anything else, and
/// only if the parent sends an input.
pub fn read_parent_input<T: serde::de::DeserializeOwned>() -> std::io::Result<T> {
    let mut line = Vec::new();
    std::io::stdin().lock().read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// To be called by such a child before its work: the process ends as soon as its parent does,
/// however that ended. The parent holds the other end of the child's stdin and writes nothing more.
pub fn exit_with_parent() -> std::io::Result<()> {
    let wait = || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        exit(1);
    };
    std::thread::Builder::new().name("gpux-parent".to_owned()).spawn(wait)?;
    Ok(())
}

/// To be called by such a child before its work, which its parent waits for as long as `longest`:
/// nothing runs forever, whatever becomes of the parent. Only on Linux.
#[cfg(target_os = "linux")]
pub fn limit_cpu_time(longest: Duration) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // The time of all threads counts, and every core may be busy until the parent gives up.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let limit = longest.as_secs().saturating_add(10).saturating_mul(cores);
    let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(limit), maximum: Some(limit) });
}

/// Nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn limit_cpu_time(_longest: Duration) {}

/// The processor time of all threads of this process, so that a bound means
/// the same on a busy machine and on an idle one. On systems other than Linux, the wall clock.
#[cfg(target_os = "linux")]
pub fn processor_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// The wall clock on this system.
#[cfg(not(target_os = "linux"))]
pub fn processor_time() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// To be called by such a child before its work: it ends when it asks for more than `limit` bytes
/// of memory, and leaves no core file. Bounds the whole process; elsewhere than on Linux there is
/// no safe bound, and the time alone is limited.
#[cfg(target_os = "linux")]
pub fn limit_memory(limit: Option<u64>) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    if let Some(limit) = limit {
        let _ = setrlimit(Resource::Data, Rlimit { current: Some(limit), maximum: Some(limit) });
    }
    // A crash is expected here; its core is of no use to anyone.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn limit_memory(_limit: Option<u64>) {}

/// Lowers the priority of such a child, to be called before its work: processes that serve requests on this machine go
/// first.
#[cfg(target_os = "linux")]
pub fn lower_priority() {
    let _ = rustix::process::nice(10);
}

/// Nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn lower_priority() {}

/// Runs `program` with `arguments` and returns its stdout. Its answer is JSON on
/// one line, the last: libraries write there too.
pub fn run_json<T: serde::de::DeserializeOwned>(
    program: &Path,
    arguments: &[&OsStr],
    timeout: Duration,
) -> Result<T, ChildError> {
    answer_of(Command::new(program), arguments, Vec::new(), timeout)
}

/// The same, and gives the child an input to read ([`read_parent_input`]): for what is long, what no other process may
/// see, as it would an argument, and what may lie on no disk.
pub fn run_json_with_input<T: serde::de::DeserializeOwned>(
    program: &Path,
    arguments: &[&OsStr],
    input: &impl serde::Serialize,
    timeout: Duration,
) -> Result<T, ChildError> {
    answer_of(Command::new(program), arguments, line(input)?, timeout)
}

/// The same with these variables of the environment alone.
pub fn run_json_in<T: serde::de::DeserializeOwned>(
    environment: &[(OsString, OsString)],
    program: &Path,
    arguments: &[&OsStr],
    input: &impl serde::Serialize,
    timeout: Duration,
) -> Result<T, ChildError> {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.iter().cloned());
    answer_of(command, arguments, line(input)?, timeout)
}

fn line(input: &impl serde::Serialize) -> Result<Vec<u8>, ChildError> {
    let mut line = serde_json::to_vec(input).map_err(|error| ChildError::Start(error.into()))?;
    line.push(b'\n');
    Ok(line)
}

fn answer_of<T: serde::de::DeserializeOwned>(
    mut command: Command,
    arguments: &[&OsStr],
    line: Vec<u8>,
    timeout: Duration,
) -> Result<T, ChildError> {
    command.args(arguments);
    // Files, not pipes: a child that writes more than anyone reads must not hang.
    let (mut stdout, mut stderr) = (temporary()?, temporary()?);
    let status = run(command, line, timeout, &stdout, &stderr)?;
    let output = read_tail(&mut stdout).map_err(ChildError::Start)?;
    let answer = output.text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    match answer {
        Some(answer) if status.success() => Ok(answer),
        None if status.success() && output.is_partial_line() => Err(ChildError::TooLong),
        _ => {
            // A full disk is not the child's fault.
            stdout.write_all(&vec![0; MIN_FREE_DISK]).map_err(temporary_folder_error)?;
            let stderr = read_tail(&mut stderr).map_err(ChildError::Start)?.text;
            let tail: Vec<_> = stderr.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
            let tail: Vec<_> = tail.into_iter().rev().collect();
            Err(ChildError::Ended { how: describe_exit(status), stderr: shorten(&tail.join("; ")) })
        }
    }
}

/// A file without a name, in memory where the system supports that, so that the output of a child needs no disk.
fn temporary() -> Result<File, ChildError> {
    #[cfg(target_os = "linux")]
    if let Ok(file) = rustix::fs::memfd_create("gpux-child", rustix::fs::MemfdFlags::CLOEXEC) {
        return Ok(file.into());
    }
    tempfile::tempfile().map_err(temporary_folder_error)
}

fn temporary_folder_error(error: std::io::Error) -> ChildError {
    ChildError::Temporary { folder: std::env::temp_dir(), error }
}

fn run(
    mut command: Command,
    line: Vec<u8>,
    timeout: Duration,
    stdout: &File,
    stderr: &File,
) -> Result<ExitStatus, ChildError> {
    let copy = |file: &File| file.try_clone().map(Stdio::from).map_err(ChildError::Start);
    command.stdin(Stdio::piped()).stdout(copy(stdout)?).stderr(copy(stderr)?);
    // Its last words say what happened; a trace of the stack would bury them.
    command.env("RUST_BACKTRACE", "0");
    let mut child = command.spawn().map_err(ChildError::Start)?;
    let stdin = child.stdin.take().map(|stdin| write_stdin(stdin, line)).transpose();
    let mut child = RunningChild { child, _stdin: stdin.map_err(ChildError::Start)? };
    // A timeout that the clock cannot represent is none.
    let deadline = Instant::now().checked_add(timeout);
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.child.try_wait().map_err(ChildError::Start)? {
            return Ok(status);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(ChildError::Timeout(timeout));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Writes `line` on a thread of its own, since a child that hangs reads nothing. The pipe stays
/// open as long as the handle lives, and the thread ends with the child at the latest.
fn write_stdin(mut stdin: ChildStdin, line: Vec<u8>) -> std::io::Result<JoinHandle<ChildStdin>> {
    let write = move || {
        // A child that ended early says by itself why.
        let _ = stdin.write_all(&line);
        stdin
    };
    std::thread::Builder::new().name("gpux-stdin".to_owned()).spawn(write)
}

/// A child that is ended, and its end waited for, however the asking ends.
struct RunningChild {
    child: Child,
    _stdin: Option<JoinHandle<ChildStdin>>,
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a child's output.
struct OutputTail {
    text: String,
    /// whether something came before it
    is_truncated: bool,
}

impl OutputTail {
    fn is_partial_line(&self) -> bool {
        self.is_truncated && !self.text.trim_end_matches(['\n', '\r']).contains('\n')
    }
}

fn read_tail(file: &mut File) -> std::io::Result<OutputTail> {
    let start = file.seek(SeekFrom::End(0))?.saturating_sub(OUTPUT_LIMIT);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    // Processes that the child started may still write.
    file.take(OUTPUT_LIMIT).read_to_end(&mut bytes)?;
    Ok(OutputTail { text: String::from_utf8_lossy(&bytes).into_owned(), is_truncated: start > 0 })
}

/// The program of this process, to start others of it.
pub fn own_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    // An upgrade has replaced the file: children are to be of the version of their parent.
    let is_replaced = cfg!(target_os = "linux") && !path.exists();
    Ok(if is_replaced { "/proc/self/exe".into() } else { path })
}

/// How a process ended, in words: by which signal, or with which exit code.
pub fn describe_exit(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (illegal instruction)",
            6 => " (aborted)",
            7 => " (bus error)",
            8 => " (arithmetic error)",
            9 => " (killed)",
            11 => " (segmentation fault)",
            _ => "",
        };
        return format!("it was ended by signal {signal}{name}");
    }
    match status.code() {
        Some(code) => format!("it ended with exit code {code} and no answer"),
        None => "it ended without an answer".to_owned(),
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Result<Vec<u8>, String> {
        run_json(Path::new("/bin/sh"), &["-c".as_ref(), script.as_ref()], timeout).map_err(|fault| fault.to_string())
    }

    #[test]
    fn reports_answers_crashes_and_timeouts() {
        let long = Duration::from_mins(1);
        assert_eq!(shell("echo noise; echo '[1,2]'", long), Ok(vec![1, 2]));
        let crash = shell("echo terminate called >&2; kill -SEGV $$", long).unwrap_err();
        assert_eq!(crash, "it was ended by signal 11 (segmentation fault): terminate called");
        assert_eq!(shell("exit 3", long).unwrap_err(), "it ended with exit code 3 and no answer");
        assert!(shell("sleep 600", Duration::from_millis(1)).unwrap_err().contains("did not end within"));
        let with_input = |script: &str, input: &[u8], timeout| -> Result<Vec<u8>, _> {
            run_json_with_input(Path::new("/bin/sh"), &["-c".as_ref(), script.as_ref()], &input, timeout)
        };
        assert_eq!(with_input("read line; echo $line", &[1, 2], long).ok(), Some(vec![1, 2]));
        // More than a pipe holds, which no process reads.
        let unread = with_input("sleep 600", &vec![0; 1 << 20], Duration::from_millis(1));
        assert!(matches!(unread, Err(ChildError::Timeout(_))));
        // More than a pipe holds.
        assert_eq!(shell("head -c 900000 /dev/zero | tr '\\0' x; echo; echo '[3]'", long), Ok(vec![3]));
    }

    #[test]
    fn reads_the_last_line_of_long_output() {
        let much = "head -c 3000000 /dev/zero | tr '\\0' ";
        let long = Duration::from_mins(1);
        assert_eq!(shell(&format!("{much} x; echo; echo '[3]'"), long), Ok(vec![3]));
        let told = shell(&format!("printf '['; {much} 1; echo ']'"), long).unwrap_err();
        assert_eq!(told, "its answer is longer than 1 MiB");
        // What ended by itself says why, whatever it wrote.
        let words = format!("(yes line | head -c 3000000; echo; echo last words) >&2; {much} x; exit 3");
        let told = shell(&words, long).unwrap_err();
        assert_eq!(told, "it ended with exit code 3 and no answer: line; line; last words");
    }
}
