//! The folder in which a step is built: tools, commands, and their output.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build_error::{BuildError, InstallError};
use super::command_runner::{Progress, run_command};
use super::tool::Tool;
use super::tool_environment::ToolEnvironment;
use gpux_core::CacheDir;

/// The variable that tells a step's own build commands where to write the module.
pub(crate) const OUTPUT: &str = "GPUX_OUTPUT";

/// The largest module that is read, in bytes; the sandbox has a limit of its own below this.
const MAX_MODULE: u64 = 1 << 30;

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

    /// Runs a command to its end and returns its standard output.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<String, BuildError> {
        run_command(command, self.folder, self.progress)
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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::time::{Duration, Instant};

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
