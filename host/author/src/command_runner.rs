//! Runs the commands of a build, and shows what they print.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::build_error::BuildError;
use gpux_core::files::check_room;
use gpux_core::threads;

/// Lines of a failed command that are shown.
const LAST_LINES: usize = 200;

/// How long the pipes of a command that has ended are read without a further line.
const IDLE_LIMIT: Duration = Duration::from_millis(500);
/// How long the pipes of a command are read after its end, at most.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Receives the commands and the output of a build.
pub trait Progress {
    /// A command begins.
    fn command(&mut self, command: &str);
    /// A command has printed a line.
    fn line(&mut self, line: &str);
    /// Whether the lines are shown as they come: a failure then need not repeat them.
    fn shows_lines(&self) -> bool;
    /// Something is done that the user did not ask for in so many words.
    fn note(&mut self, text: &str);
    /// What is going on from now on, in a few words.
    fn phase(&mut self, text: &str);
}

/// A line of standard output, or of standard error.
enum Line {
    Result(String),
    Message(String),
}

/// Runs a command in `folder` to its end and returns its standard output. Its standard error goes to `progress`, and into
/// the error if it fails.
pub(crate) fn run_command(
    command: &mut Command,
    folder: &Path,
    progress: &mut dyn Progress,
) -> Result<String, BuildError> {
    let shown = shown(command);
    progress.command(&shown);
    let fail = |status: String, output: String| BuildError::Command { command: shown.clone(), status, output };

    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| fail(error.to_string(), String::new()))?;
    let (sender, lines) = mpsc::channel();
    let results = child.stdout.take().map(|pipe| read(pipe, sender.clone(), Line::Result)).transpose();
    let messages = child.stderr.take().map(|pipe| read(pipe, sender, Line::Message)).transpose();
    if let Err(error) = results.and(messages) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(fail(error.to_string(), String::new()));
    }

    let mut printed = String::new();
    let mut last = VecDeque::with_capacity(LAST_LINES);
    let mut end = None;
    while let Some(line) = next(&lines, &mut child, &mut end) {
        match line {
            Line::Result(line) => {
                printed.push_str(&line);
                printed.push('\n');
            }
            Line::Message(line) => {
                progress.line(&line);
                if last.len() == LAST_LINES {
                    last.pop_front();
                }
                last.push_back(line);
            }
        }
    }

    let status = child.wait().map_err(|error| fail(error.to_string(), String::new()))?;
    if status.success() {
        return Ok(printed);
    }
    // Compilers say it in many words, or none.
    check_disk(folder)?;
    let seen = progress.shows_lines();
    let mut output = Vec::from(last).join("\n");
    if output.trim().is_empty() {
        output = printed;
    }
    Err(fail(status.to_string(), if seen { String::new() } else { output }))
}

/// Fails where a build can write no files.
fn check_disk(folder: &Path) -> Result<(), BuildError> {
    let is_disk = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
    };
    for folder in [folder, &std::env::temp_dir()] {
        if let Some(source) = check_room(folder).err().filter(is_disk) {
            return Err(BuildError::Disk { folder: folder.to_owned(), source });
        }
    }
    Ok(())
}

/// The next line; none once both pipes are closed, or shortly after the command has ended: processes that it
/// started and left behind may hold the pipes open.
fn next(lines: &mpsc::Receiver<Line>, child: &mut Child, end: &mut Option<Instant>) -> Option<Line> {
    loop {
        if end.is_none() && !matches!(child.try_wait(), Ok(None)) {
            *end = Some(Instant::now() + DRAIN_LIMIT);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        match lines.recv_timeout(IDLE_LIMIT) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Timeout) if end.is_none() => {}
            Err(_) => return None,
        }
    }
}

/// Sends the lines of `pipe` until it is closed, or the receiver is dropped.
fn read(pipe: impl Read + Send + 'static, lines: mpsc::Sender<Line>, wrap: fn(String) -> Line) -> std::io::Result<()> {
    let read = move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            if lines.send(wrap(text.trim_end_matches(['\n', '\r']).to_owned())).is_err() {
                break;
            }
            line.clear();
        }
    };
    threads::spawn("gpux-read", read)
}

/// The command as a person would write it.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        if word.contains([' ', '$', '"']) { format!("'{word}'") } else { word.into_owned() }
    };
    words.map(quoted).collect::<Vec<_>>().join(" ")
}
