//! Finds the ONNX Runtime library to load.

mod build;
mod candidates;
mod version;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::hardware::Hardware;
use super::providers::ExecutionProvider;
use gpux_core::CacheDir;

pub use build::LibraryBuild;

/// The oldest library that can be loaded: its API is what gpux is built against.
pub(super) const OLDEST: u32 = ort::MINOR_VERSION;

/// An engine library that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// the named file is not there
    #[error("{origin} names `{shown}`, which is not a file", shown = path.display())]
    Missing {
        /// the path as given
        path: PathBuf,
        /// who named it
        origin: LibraryOrigin,
    },
    /// it is no library, or cannot be loaded
    #[error("the engine library `{shown}` cannot be loaded: {reason}", shown = path.display())]
    Broken {
        /// the library
        path: PathBuf,
        /// the loader's reason
        reason: String,
    },
    /// it is older than the API that gpux is built against
    #[error(
        "the engine library `{shown}` is ONNX Runtime {found}, but gpux needs 1.{OLDEST} or newer; \
         run `gpux engine install`, or name another with `--engine-library`",
        shown = path.display()
    )]
    TooOld {
        /// the library
        path: PathBuf,
        /// its version
        found: String,
    },
    /// a plug-in's library that cannot be registered
    #[error("the provider library `{name}` (`{shown}`) cannot be used: {reason}", shown = path.display())]
    Plugin {
        /// how the operator calls it
        name: String,
        /// the library
        path: PathBuf,
        /// the reason of ONNX Runtime
        reason: String,
    },
    /// another is loaded already
    #[error(
        "a process can hold one engine library; `{}` is loaded already, so `{}` cannot be",
        .loaded.display(), .asked.display()
    )]
    Another {
        /// the loaded one
        loaded: PathBuf,
        /// the one asked for
        asked: PathBuf,
    },
    /// the child that was to load it gave no answer
    #[error("the engine library `{shown}` cannot be examined: {reason}", shown = path.display())]
    Probe {
        /// the library
        path: PathBuf,
        /// how the child ended
        reason: String,
    },
}

/// Where a library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LibraryOrigin {
    /// `--engine-library`
    Option,
    /// `ORT_DYLIB_PATH`
    Variable,
    /// what `gpux engine install` brought
    Installed,
    /// the active Python environment
    Python,
    /// the system's library folders
    System,
}

impl fmt::Display for LibraryOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Option => "--engine-library",
            Self::Variable => "ORT_DYLIB_PATH",
            Self::Installed => "gpux engine install",
            Self::Python => "the active Python environment",
            Self::System => "the system's libraries",
        })
    }
}

/// An ONNX Runtime library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryFile {
    /// its file
    pub path: PathBuf,
    /// where it was found
    pub origin: LibraryOrigin,
    /// its version, if it can be read without loading it
    pub version: Option<String>,
}

impl LibraryFile {
    /// The library at `path`, whose version is read from names and, failing that, from the file.
    pub fn at(path: impl Into<PathBuf>, origin: LibraryOrigin) -> Self {
        let path = path.into();
        let version = version::detect(&path);
        Self { path, origin, version }
    }

    /// The error of a library that is known to be too old.
    fn check_version(&self) -> Option<LibraryError> {
        let found = self.version.clone()?;
        version::is_too_old(&found).then(|| LibraryError::TooOld { path: self.path.clone(), found })
    }
}

/// A library that was found but is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedLibrary {
    /// the library
    pub found: LibraryFile,
    /// why it is not used
    pub reason: String,
}

/// The selected library, and those that were skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibrarySelection {
    /// the library; `None` for the embedded engine
    pub found: Option<LibraryFile>,
    /// found earlier in the order, but not usable
    pub passed_over: Vec<SkippedLibrary>,
}

/// Where to look, in this order. Never filled from gpux.yml: a library is native code.
#[derive(Clone, Debug, Default)]
pub struct LibrarySearch {
    /// `--engine-library`
    pub option: Option<PathBuf>,
    /// `ORT_DYLIB_PATH`
    pub variable: Option<PathBuf>,
    /// the cache with what `gpux engine install` brought
    pub cache: Option<CacheDir>,
    /// roots of the active Python environments
    pub python: Vec<PathBuf>,
    /// folders of system libraries
    pub system: Vec<PathBuf>,
    /// the providers that are requested by name: installed builds with the first of them come first
    pub wanted: Vec<ExecutionProvider>,
}

impl LibrarySearch {
    /// Everything that this process's environment names; `option` is `--engine-library`.
    pub fn from_environment(option: Option<PathBuf>) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        Self {
            option,
            variable: set("ORT_DYLIB_PATH").map(PathBuf::from),
            cache: CacheDir::from_environment(),
            python: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set).map(PathBuf::from).collect(),
            system: candidates::system_folders(),
            wanted: Vec::new(),
        }
    }

    /// The library to use. One that the operator names must be there and new enough; others that
    /// are too old are passed over.
    pub fn choose(&self) -> Result<LibrarySelection, LibraryError> {
        if let Some((path, origin)) = self.named().next() {
            let found = Self::named_library(path, origin)?;
            return found
                .check_version()
                .map_or(Ok(LibrarySelection { found: Some(found), passed_over: Vec::new() }), Err);
        }
        let mut passed_over = Vec::new();
        for found in self.unnamed() {
            match found.check_version() {
                None => return Ok(LibrarySelection { found: Some(found), passed_over }),
                Some(error) => passed_over.push(SkippedLibrary { found, reason: error.to_string() }),
            }
        }
        Ok(LibrarySelection { found: None, passed_over })
    }

    /// Every library that is found, in the order of the search: for `gpux engine list`.
    pub fn all(&self) -> Vec<LibraryFile> {
        let named = self.named().filter_map(|(path, origin)| Self::named_library(path, origin).ok());
        let mut all: Vec<LibraryFile> = Vec::new();
        for found in named.chain(self.unnamed()) {
            let same = |other: &LibraryFile| other.path.canonicalize().ok() == found.path.canonicalize().ok();
            if !all.iter().any(same) {
                all.push(found);
            }
        }
        all
    }

    fn named(&self) -> impl Iterator<Item = (&Path, LibraryOrigin)> {
        let option = self.option.as_deref().map(|path| (path, LibraryOrigin::Option));
        option.into_iter().chain(self.variable.as_deref().map(|path| (path, LibraryOrigin::Variable)))
    }

    fn unnamed(&self) -> impl Iterator<Item = LibraryFile> {
        let found = |origin| move |path| LibraryFile::at(path, origin);
        let rank = |build| rank(build, &self.wanted, Hardware::detect());
        let installed = self.cache.iter().flat_map(move |cache| candidates::installed(cache, &rank));
        let installed = installed.map(found(LibraryOrigin::Installed));
        let python = self.python.iter().flat_map(|root| candidates::python(root)).map(found(LibraryOrigin::Python));
        let system =
            self.system.iter().flat_map(|folder| candidates::in_folder(folder)).map(found(LibraryOrigin::System));
        installed.chain(python).chain(system)
    }

    /// The library that the operator named, directly or by its folder.
    fn named_library(path: &Path, origin: LibraryOrigin) -> Result<LibraryFile, LibraryError> {
        let inside = path.is_dir().then(|| candidates::in_folder(path).into_iter().next()).flatten();
        let file = inside.unwrap_or_else(|| path.to_owned());
        if file.is_file() {
            Ok(LibraryFile::at(file, origin))
        } else {
            Err(LibraryError::Missing { path: path.to_owned(), origin })
        }
    }
}

/// The rank of an installed build, the smallest the best: it brings a provider that was
/// requested; it brings a provider for this machine's hardware; it is for the CPU.
fn rank(build: Option<LibraryBuild>, wanted: &[ExecutionProvider], hardware: &Hardware) -> (u8, usize) {
    let Some(build) = build else { return (3, 0) };
    let brings = |provider: &ExecutionProvider| {
        build.providers().contains(provider) || (*provider == ExecutionProvider::Cpu && build == LibraryBuild::Cpu)
    };
    if let Some(place) = wanted.iter().position(brings) {
        return (0, place);
    }
    let suits = |provider: &ExecutionProvider| build.providers().contains(provider) && hardware.is_suited_to(*provider);
    match (ExecutionProvider::ALL.iter().position(suits), build) {
        (Some(place), _) => (1, place),
        (None, LibraryBuild::Cpu) => (2, 0),
        (None, _) => (3, 0),
    }
}

#[cfg(test)]
mod tests;
