//! Environments of gpux's own, in its cache, for tools from Python's index: nothing is installed into the system's
//! Python, which Debian, Ubuntu and Homebrew forbid (PEP 668).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build_error::InstallError;
use super::command_runner::{Progress, run_command};
use super::tool::Package;
use gpux_core::{CacheDir, CacheFolder};

/// Written once an environment is complete.
const COMPLETE: &str = "gpux-complete";

/// What to do where packages cannot be fetched.
const BY_HAND: &str = "is there a network?";

/// An environment in which a package is installed.
#[derive(Clone, Debug)]
pub struct ToolEnvironment {
    folder: PathBuf,
}

impl ToolEnvironment {
    /// The environment of `package` in `cache`; installs it if it is not there, or not what `works` accepts: its Python
    /// may have gone with an upgrade of the system's. Concurrent calls, of other processes too, wait for the first.
    pub fn install(
        package: Package,
        cache: Option<&CacheDir>,
        progress: &mut dyn Progress,
        works: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<Self, InstallError> {
        let mut is_ready = |environment: &Self| environment.is_complete() && works(environment);
        let cache = cache.ok_or(InstallError::NoCache)?;
        // Refused where others may write to it: what lies there is run.
        let root = cache.folder(CacheFolder::Tools).and_then(|root| root.canonicalize());
        let root = root.map_err(|source| InstallError::Io { folder: cache.path(CacheFolder::Tools), source })?;
        let environment = Self { folder: root.join(package.folder_name()) };
        if is_ready(&environment) {
            return Ok(environment);
        }
        let fail = |source| InstallError::Io { folder: environment.folder.clone(), source };
        progress.phase(&format!("waiting for another gpux that installs {package}"));
        let lock = File::create(root.join(format!("{}.lock", package.folder_name()))).map_err(fail)?;
        lock.lock().map_err(fail)?;
        if !is_ready(&environment) {
            environment.make(package, &root, progress)?;
        }
        Ok(environment)
    }

    fn make(&self, package: Package, root: &Path, progress: &mut dyn Progress) -> Result<(), InstallError> {
        let fail = |source| InstallError::Io { folder: self.folder.clone(), source };
        let installer = Installer::find(root).ok_or(InstallError::NoInstaller)?;
        progress.note(&format!(
            "installing {package} with {} for gpux alone, once, in {}",
            installer.program(),
            self.folder.display()
        ));
        progress.phase(&format!("installing {package}"));
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let [make, install] = installer.commands(package, self);
        for (mut command, hint) in [(make, installer.hint()), (install, BY_HAND)] {
            // Not in the step's folder, whose modules Python would load.
            let made = run_command(&mut command, root, progress);
            made.map_err(|error| InstallError::Failed { reason: error.to_string(), hint })?;
        }
        File::create(self.folder.join(COMPLETE)).map_err(fail)?;
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.folder.join(COMPLETE).is_file()
    }

    /// Whether its Python can import these modules.
    pub fn imports(&self, modules: &[&str]) -> bool {
        let import = format!("import {}", modules.join(", "));
        let output = Command::new(self.python()).args(["-I", "-c", &import]).stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    }

    /// The folder of its programs.
    pub fn programs(&self) -> PathBuf {
        self.folder.join(if cfg!(windows) { "Scripts" } else { "bin" })
    }

    /// Its Python.
    pub fn python(&self) -> PathBuf {
        self.programs().join(if cfg!(windows) { "python.exe" } else { "python" })
    }
}

/// A program that makes environments.
enum Installer {
    Uv,
    Python(&'static str),
}

impl Installer {
    /// The first that works; `folder` is where it is tried.
    fn find(folder: &Path) -> Option<Self> {
        let works = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).current_dir(folder).output();
            output.is_ok_and(|output| output.status.success())
        };
        if works("uv", &["--version"]) {
            return Some(Self::Uv);
        }
        let is_new = "import sys; sys.exit(sys.version_info < (3, 10))";
        ["python3", "python"].into_iter().find(|python| works(python, &["-c", is_new])).map(Self::Python)
    }

    const fn program(&self) -> &'static str {
        match self {
            Self::Uv => "uv",
            Self::Python(python) => python,
        }
    }

    /// What to do where it cannot make an environment.
    const fn hint(&self) -> &'static str {
        match self {
            Self::Uv => BY_HAND,
            Self::Python(_) => {
                "Debian and Ubuntu bring Python's module venv with `apt install python3-venv`; else install it by hand"
            }
        }
    }

    /// The commands that make the environment and install the package.
    fn commands(&self, package: Package, environment: &ToolEnvironment) -> [Command; 2] {
        let mut make = Command::new(self.program());
        let mut install = match self {
            Self::Uv => {
                make.args(["venv", "--quiet", "--no-project"]);
                let mut install = Command::new("uv");
                install.args(["pip", "install", "--quiet", "--python"]).arg(environment.python());
                install
            }
            Self::Python(_) => {
                make.args(["-m", "venv"]);
                let mut install = Command::new(environment.python());
                install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
                install
            }
        };
        make.arg(&environment.folder);
        install.args(package.requirements());
        // The user's own environment is not to be changed.
        for command in [&mut make, &mut install] {
            command.env_remove("VIRTUAL_ENV").env_remove("PYTHONHOME").env_remove("PYTHONPATH");
        }
        [make, install]
    }
}
