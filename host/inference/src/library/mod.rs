//! Finds the ONNX Runtime library to load.

mod build;
mod candidates;
mod plugin;
mod python;
mod version;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::hardware::Hardware;
use super::providers::{ExecutionProvider, ProviderLibrary};
use gpux_core::{CacheDir, CacheFolder};

pub use build::LibraryBuild;
pub(super) use candidates::{engine_folders, folders_of_needed};
pub use plugin::PluginFile;

/// The oldest library that can be loaded: its API is what gpux is built against.
pub(super) const OLDEST: u32 = ort::MINOR_VERSION;

/// An engine library that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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

    /// The providers that it was built with, as far as names tell: those of the build that gpux installed, else
    /// those whose own libraries lie beside it.
    fn built_in(&self) -> impl Iterator<Item = ExecutionProvider> {
        ExecutionProvider::ALL.into_iter().filter(|provider| self.has_built_in(*provider))
    }

    fn has_built_in(&self, provider: ExecutionProvider) -> bool {
        let Some(folder) = self.path.parent() else { return false };
        match LibraryBuild::of_folder(folder).filter(|_| self.origin == LibraryOrigin::Installed) {
            Some((build, _)) => build.providers().contains(&provider),
            None => candidates::has_provider_library(folder, provider),
        }
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
    /// plug-ins to register with it
    pub plugins: Vec<ProviderLibrary>,
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
    /// libraries of providers that the operator named
    pub plugins: Vec<ProviderLibrary>,
    /// the providers that are requested by name: libraries and plug-ins with the first of them come first
    pub wanted: Vec<ExecutionProvider>,
    /// which other plug-ins are registered
    pub others: OtherPlugins,
}

/// The plug-ins that are registered beside those of requested providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherPlugins {
    /// none: only the requested providers are used
    None,
    /// those made for this machine's hardware
    #[default]
    Suited,
    /// all, so that they can be compared
    All,
}

impl LibrarySearch {
    /// Everything that this process's environment names; `option` is `--engine-library`.
    pub fn from_environment(option: Option<PathBuf>) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set).map(PathBuf::from);
        Self {
            option,
            variable: set("ORT_DYLIB_PATH").map(PathBuf::from),
            cache: CacheDir::from_environment(),
            python: roots.flat_map(|root| python::site_folders(&root)).collect(),
            system: candidates::system_folders(),
            ..Self::default()
        }
    }

    /// A search for these providers. If none of the places has a library of one that is requested, the packages of
    /// the `python3` on the search path are searched as well.
    #[must_use]
    pub fn for_providers(mut self, wanted: &[ExecutionProvider], others: OtherPlugins) -> Self {
        (self.wanted, self.others) = (wanted.to_vec(), others);
        let plugins: Vec<_> = self.plugins().into_iter().map(|plugin| plugin.library.provider).collect();
        let libraries = self.all();
        let is_found = |provider: &ExecutionProvider| {
            *provider == ExecutionProvider::Cpu
                || plugins.contains(provider)
                || libraries.iter().any(|library| library.has_built_in(*provider))
        };
        if !self.wanted.iter().all(is_found) {
            self.python.extend(python::ask());
        }
        self
    }

    /// The library to use, and the plug-ins with it. One that the operator names must be there and new enough;
    /// others that are too old are passed over.
    pub fn choose(&self) -> Result<LibrarySelection, LibraryError> {
        let plugins = self.plugins();
        let select = |found: Option<LibraryFile>, passed_over| {
            let plugins = found.as_ref().map(|found| self.registered(found, &plugins)).unwrap_or_default();
            LibrarySelection { found, passed_over, plugins }
        };
        if let Some((path, origin)) = self.named().next() {
            let found = Self::named_library(path, origin)?;
            return found.check_version().map_or_else(|| Ok(select(Some(found), Vec::new())), Err);
        }
        let mut passed_over = self.untrusted();
        for found in self.unnamed(&plugins) {
            match found.check_version() {
                None => return Ok(select(Some(found), passed_over)),
                Some(error) => passed_over.push(SkippedLibrary { found, reason: error.to_string() }),
            }
        }
        Ok(select(None, passed_over))
    }

    /// Every library that is found, in the order of the search: for `gpux engine list`.
    pub fn all(&self) -> Vec<LibraryFile> {
        let named = self.named().filter_map(|(path, origin)| Self::named_library(path, origin).ok());
        let mut all: Vec<LibraryFile> = Vec::new();
        for found in named.chain(self.unnamed(&self.plugins())) {
            let same = |other: &LibraryFile| other.path.canonicalize().ok() == found.path.canonicalize().ok();
            if !all.iter().any(same) {
                all.push(found);
            }
        }
        all
    }

    /// The providers that some library or plug-in offers, best first.
    pub fn offered_providers(&self) -> Vec<ExecutionProvider> {
        let (libraries, plugins) = (self.all(), self.plugins());
        let is_offered = |provider: &ExecutionProvider| {
            *provider == ExecutionProvider::Cpu && !libraries.is_empty()
                || plugins.iter().any(|plugin| plugin.library.provider == *provider)
                || libraries.iter().any(|library| library.has_built_in(*provider))
        };
        ExecutionProvider::ALL.into_iter().filter(is_offered).collect()
    }

    /// The folders from which libraries may be loaded.
    pub fn folders(&self) -> Vec<PathBuf> {
        let found = self.all().into_iter().map(|library| library.path);
        let plugins = self.plugins().into_iter().map(|plugin| plugin.library.path);
        // A library looks for others where it lies, which may be elsewhere than the link to it.
        let found = found.chain(plugins).flat_map(|path| [std::path::absolute(&path), path.canonicalize()]);
        let found = found.flatten().flat_map(|path| folders_of_needed(&path));
        let installed = self.trusted_cache().map(|cache| cache.path(CacheFolder::Engines));
        found.chain(installed).chain(self.python.iter().cloned()).chain(self.system.iter().cloned()).collect()
    }

    /// Every plug-in that is found, those first that come first.
    pub fn plugins(&self) -> Vec<PluginFile> {
        let named = self.plugins.iter().map(|library| PluginFile {
            library: library.clone(),
            origin: LibraryOrigin::Option,
            version: version::detect(&library.path),
        });
        let installed = self.trusted_cache().into_iter().flat_map(plugin::installed);
        named.chain(installed).chain(self.python.iter().flat_map(|site| plugin::in_site(site))).collect()
    }

    /// The plug-ins to register with `library`, one a provider: never one of a provider that it has built in, since
    /// two copies of that provider's own libraries in a process are not known to get on.
    fn registered(&self, library: &LibraryFile, plugins: &[PluginFile]) -> Vec<ProviderLibrary> {
        let hardware = Hardware::detect();
        let is_wanted = |provider: ExecutionProvider| match self.others {
            _ if self.wanted.contains(&provider) => true,
            OtherPlugins::None => false,
            OtherPlugins::Suited => hardware.is_suited_to(provider),
            OtherPlugins::All => true,
        };
        let mut registered: Vec<ProviderLibrary> = Vec::new();
        for PluginFile { library: plugin, .. } in plugins {
            let has_already = registered.iter().any(|other| other.provider == plugin.provider);
            let found = is_wanted(plugin.provider) && !library.has_built_in(plugin.provider);
            if !has_already && (plugin.is_required || found) {
                registered.push(plugin.clone());
            }
        }
        registered
    }

    /// The cache with what is installed, unless others may write there.
    fn trusted_cache(&self) -> Option<&CacheDir> {
        self.cache.as_ref().filter(|cache| cache.trusted_path(CacheFolder::Engines).is_ok())
    }

    /// What is installed in a cache where others may write.
    fn untrusted(&self) -> Vec<SkippedLibrary> {
        let cache =
            self.cache.iter().filter_map(|cache| Some((cache, cache.trusted_path(CacheFolder::Engines).err()?)));
        let skipped = |(path, error)| {
            let found = LibraryFile::at(path, LibraryOrigin::Installed);
            let version = found.version.as_deref().unwrap_or_default();
            let reason =
                format!("the installed ONNX Runtime {version} (`{}`) is not used, since {error}", found.path.display());
            SkippedLibrary { found, reason }
        };
        let libraries = cache.flat_map(|(cache, error)| {
            let error = error.to_string();
            candidates::installed(cache).into_iter().map(move |path| (path, error.clone()))
        });
        libraries.map(skipped).collect()
    }

    fn named(&self) -> impl Iterator<Item = (&Path, LibraryOrigin)> {
        let option = self.option.as_deref().map(|path| (path, LibraryOrigin::Option));
        option.into_iter().chain(self.variable.as_deref().map(|path| (path, LibraryOrigin::Variable)))
    }

    /// Libraries with a requested provider come first, then those for this machine's hardware; equals stay in the
    /// order installed, Python, system.
    fn unnamed(&self, plugins: &[PluginFile]) -> Vec<LibraryFile> {
        let found = |origin| move |path| LibraryFile::at(path, origin);
        let installed =
            self.trusted_cache().into_iter().flat_map(candidates::installed).map(found(LibraryOrigin::Installed));
        let python = self.python.iter().flat_map(|site| candidates::in_site(site)).map(found(LibraryOrigin::Python));
        let system =
            self.system.iter().flat_map(|folder| candidates::in_folder(folder)).map(found(LibraryOrigin::System));
        let mut all: Vec<_> = installed.chain(python).chain(system).collect();
        let plugins: Vec<_> = plugins.iter().map(|plugin| plugin.library.provider).collect();
        all.sort_by_key(|library| rank(library, &plugins, &self.wanted, Hardware::detect()));
        all
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

/// The rank of a library, the smallest the best: it comes to a provider that was requested; to a provider for this
/// machine's hardware; it is for the CPU. Of two that come to the same provider, one that needs its plug-in is newer
/// than one with the provider built in.
fn rank(
    library: &LibraryFile,
    plugins: &[ExecutionProvider],
    wanted: &[ExecutionProvider],
    hardware: &Hardware,
) -> (u8, usize, bool) {
    let is_whole = library.built_in().next().is_some();
    let comes_to = |provider: &ExecutionProvider| {
        library.has_built_in(*provider)
            || plugins.contains(provider)
            || (*provider == ExecutionProvider::Cpu && !is_whole)
    };
    if let Some(place) = wanted.iter().position(comes_to) {
        return (0, place, is_whole);
    }
    let is_suited = |provider: &ExecutionProvider| {
        *provider != ExecutionProvider::Cpu && comes_to(provider) && hardware.is_suited_to(*provider)
    };
    match ExecutionProvider::ALL.iter().position(is_suited) {
        Some(place) => (1, place, is_whole),
        None => (2, 0, is_whole),
    }
}

#[cfg(test)]
mod tests;
