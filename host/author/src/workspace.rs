//! The folder in which a step is built: tools, commands, and their output.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::build_error::BuildError;
use super::tool::Tool;
use super::tool_environment::{InstallError, ToolEnvironment};
use gpux_core::CacheDir;
use gpux_core::files::check_room;
use gpux_core::threads;

/// The variable that tells a step's own build commands where to write the module.
pub(crate) const OUTPUT: &str = "GPUX_OUTPUT";

/// Lines of a failed command that are shown.
const LAST_LINES: usize = 200;

/// How long the pipes of a command that has ended are read without a further line.
const IDLE_LIMIT: Duration = Duration::from_millis(500);
/// How long the pipes of a command are read after its end, at most.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// The largest module that is read, in bytes; the sandbox has a limit of its own below this.
const MAX_MODULE: u64 = 1 << 30;

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

/// A step's folder while it is being built.
pub(crate) struct Workspace<'a> {
    folder: &'a Path,
    progress: &'a mut dyn Progress,
    /// where missing tools are installed
    cache: Option<&'a CacheDir>,
    /// folders of programs that are looked at after those of the search path
    programs: Vec<PathBuf>,
    /// the tools that were checked
    tools: Vec<(Tool, FoundTool)>,
}

/// A tool that is there.
#[derive(Clone)]
pub(crate) struct FoundTool {
    /// the check that succeeded
    pub(crate) check: &'static [&'static str],
    /// what it printed, with the check itself
    pub(crate) version: String,
}

enum Line {
    Result(String),
    Message(String),
}

impl<'a> Workspace<'a> {
    pub(crate) fn new(folder: &'a Path, progress: &'a mut dyn Progress) -> Self {
        Self { folder, progress, cache: None, programs: Vec::new(), tools: Vec::new() }
    }

    /// The same, with missing tools installed in `cache`.
    pub(crate) fn with_cache(self, cache: Option<&'a CacheDir>) -> Self {
        Self { cache, ..self }
    }

    /// The step's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder
    }

    /// A command that runs in the folder.
    pub(crate) fn command(&self, program: &str) -> Command {
        command(self.folder, &self.programs, program)
    }

    /// A folder for a build's outputs, removed after it.
    pub(crate) fn draft() -> Result<tempfile::TempDir, BuildError> {
        let fail = |source| BuildError::Io { what: "write", path: std::env::temp_dir(), source };
        tempfile::tempdir().map_err(fail)
    }

    /// Fails where a build can write no files.
    fn check_disk(&self) -> Result<(), BuildError> {
        let is_disk = |error: &std::io::Error| {
            matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
        };
        for folder in [self.folder, &std::env::temp_dir()] {
            if let Some(source) = check_room(folder).err().filter(is_disk) {
                return Err(BuildError::Disk { folder: folder.to_owned(), source });
            }
        }
        Ok(())
    }

    /// Sees that the tools are there: a missing one that a package brings along is installed. Gives what each says of
    /// its version.
    pub(crate) fn require(&mut self, tools: &[Tool]) -> Result<Vec<String>, BuildError> {
        tools.iter().map(|tool| self.check(tool).map(|found| found.version)).collect()
    }

    /// A tool, after it is installed if need be. It is looked for once.
    pub(crate) fn check(&mut self, tool: &Tool) -> Result<FoundTool, BuildError> {
        if let Some((_, found)) = self.tools.iter().find(|(checked, _)| checked == tool) {
            return Ok(found.clone());
        }
        let found = match find(self.folder, &self.programs, tool) {
            Some(found) => found,
            None => self.install(tool)?,
        };
        self.tools.push((*tool, found.clone()));
        Ok(found)
    }

    fn install(&mut self, tool: &Tool) -> Result<FoundTool, BuildError> {
        let missing = |why: Option<InstallError>| BuildError::Tool {
            name: tool.name.to_owned(),
            instructions: tool.instructions(),
            why: why.map(Box::new),
        };
        let package = tool.package.ok_or_else(|| missing(None))?;
        let mut found = None;
        let mut works = |environment: &ToolEnvironment| {
            let programs: Vec<_> = self.programs.iter().cloned().chain([environment.programs()]).collect();
            found = find(self.folder, &programs, tool);
            found.is_some()
        };
        let environment = ToolEnvironment::install(package, self.cache, self.progress, &mut works);
        self.programs.push(environment.map_err(|why| missing(Some(why)))?.programs());
        found.or_else(|| find(self.folder, &self.programs, tool)).ok_or_else(|| missing(None))
    }

    /// Runs a command to its end and returns its standard output. Its
    /// standard error goes to the observer of the build, and into the error if it fails.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<String, BuildError> {
        let shown = shown(command);
        self.progress.command(&shown);
        let fail = |status: String, output: String| BuildError::Command { command: shown.clone(), status, output };
        let mut child = command
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
                    self.progress.line(&line);
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
        self.check_disk()?;
        let seen = self.progress.shows_lines();
        let mut output = Vec::from(last).join("\n");
        if output.trim().is_empty() {
            output = printed;
        }
        Err(fail(status.to_string(), if seen { String::new() } else { output }))
    }

    /// Runs a step's own commands, one after the other, and gives the module that they wrote to
    /// `$GPUX_OUTPUT`.
    pub(crate) fn shell(&mut self, commands: &[String]) -> Result<Vec<u8>, BuildError> {
        let draft = Self::draft()?;
        let module = draft.path().join("module.wasm");
        for line in commands {
            let mut command = if cfg!(windows) { self.command("cmd") } else { self.command("sh") };
            command.args([if cfg!(windows) { "/C" } else { "-c" }, line]).env(OUTPUT, &module);
            self.run(&mut command)?;
        }
        if !module.is_file() {
            let why =
                format!("the commands under `build:` wrote no module; the last must write it to the path in ${OUTPUT}");
            return Err(BuildError::NoModule(why));
        }
        self.read(&module)
    }

    /// The bytes of a module that was built.
    pub(crate) fn read(&self, module: &Path) -> Result<Vec<u8>, BuildError> {
        let path: PathBuf = self.folder.join(module);
        let read = || {
            let mut bytes = Vec::new();
            std::fs::File::open(&path)?.take(MAX_MODULE).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|source| BuildError::Io { what: "read", path: path.clone(), source })
    }
}

/// A command that runs in `folder`, with further folders of programs.
fn command(folder: &Path, programs: &[PathBuf], program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    if !programs.is_empty() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(programs.iter().cloned());
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
    }
    command
}

/// The first of a tool's checks that succeeds.
fn find(folder: &Path, programs: &[PathBuf], tool: &Tool) -> Option<FoundTool> {
    tool.checks.iter().find_map(|check| {
        let (program, arguments) = check.split_first()?;
        let output = command(folder, programs, program).args(arguments).stdin(Stdio::null()).output().ok()?;
        let is_there = output.status.success() && names_what_exists(&output.stdout);
        let version = format!("{check:?}: {}", String::from_utf8_lossy(&output.stdout));
        is_there.then_some(FoundTool { check, version })
    })
}

/// Where a check prints a path, the path must be there: `rustc` prints that of a library which is
/// not installed as well.
fn names_what_exists(printed: &[u8]) -> bool {
    let text = String::from_utf8_lossy(printed);
    let path = Path::new(text.trim());
    !path.is_absolute() || path.exists()
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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Quiet {
        lines: Vec<String>,
    }

    impl Progress for Quiet {
        fn command(&mut self, _: &str) {}
        fn line(&mut self, line: &str) {
            self.lines.push(line.to_owned());
        }
        fn shows_lines(&self) -> bool {
            false
        }
        fn note(&mut self, _: &str) {}
        fn phase(&mut self, _: &str) {}
    }

    fn shell(commands: &[&str]) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let commands: Vec<_> = commands.iter().map(|command| (*command).to_owned()).collect();
        let mut progress = Quiet::default();
        Workspace::new(folder.path(), &mut progress).shell(&commands).map_err(|error| error.to_string())
    }

    #[test]
    fn runs_custom_build_commands() {
        assert_eq!(shell(&["printf hello > part", "cat part > \"$GPUX_OUTPUT\""]).unwrap(), b"hello");
        assert!(shell(&["true"]).unwrap_err().contains("must write it to the path in $GPUX_OUTPUT"));
    }

    #[test]
    fn failure_includes_the_commands_output() {
        let message = shell(&["echo out; echo why >&2; exit 3", "touch never"]).unwrap_err();
        assert_eq!(message, "`sh -c 'echo out; echo why >&2; exit 3'` did not succeed (exit status: 3); it said:\nwhy");
    }

    #[test]
    fn missing_tool_includes_installation() {
        let mut progress = Quiet::default();
        let mut workspace = Workspace::new(Path::new("."), &mut progress);
        let tool = |checks| Tool { name: "the tool", checks, by_hand: "run `get tool`", package: None };
        assert!(workspace.require(&[tool(&[&["sh", "-c", "echo /"]])]).is_ok());
        assert_eq!(workspace.check(&tool(&[&["false"], &["true"]])).unwrap().check, ["true"]);
        let missing: [&[&[&str]]; 3] =
            [&[&["no-such-program-of-gpux"], &["false"]], &[], &[&["echo", "/no/such/folder"]]];
        for checks in missing {
            let error = workspace.require(&[tool(checks)]).unwrap_err();
            assert!(error.is_environment());
            assert!(error.to_string().ends_with("run `get tool`"), "{error}");
        }
    }

    #[test]
    fn looks_for_a_tool_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut progress = Quiet::default();
        let mut workspace = Workspace::new(folder.path(), &mut progress);
        let checks: &[&[&str]] = &[&["sh", "-c", "echo >> count"]];
        let tool = Tool { name: "the tool", checks, by_hand: "", package: None };
        workspace.require(&[tool]).unwrap();
        workspace.check(&tool).unwrap();
        assert_eq!(std::fs::read(folder.path().join("count")).unwrap(), b"\n");
    }

    /// A background process that holds the pipes does not block the build.
    #[test]
    fn does_not_wait_for_background_processes() {
        let begin = Instant::now();
        assert_eq!(shell(&["sleep 60 & printf hello > \"$GPUX_OUTPUT\""]).unwrap(), b"hello");
        let chatty = "(for i in $(seq 600); do echo still; sleep 0.1; done) & printf hello > \"$GPUX_OUTPUT\"";
        assert_eq!(shell(&[chatty]).unwrap(), b"hello");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    /// Much output on both streams does not block the build.
    #[test]
    fn reads_stdout_and_stderr() {
        let line = "i=0; while [ $i -lt 20000 ]; do echo out; echo err >&2; i=$((i+1)); done";
        let mut progress = Quiet::default();
        let mut workspace = Workspace::new(Path::new("."), &mut progress);
        let mut command = workspace.command("sh");
        let printed = workspace.run(command.args(["-c", line])).unwrap();
        assert_eq!(printed.lines().count(), 20_000);
        assert_eq!(progress.lines.len(), 20_000);
    }
}
