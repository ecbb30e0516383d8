//! `gpux engine install`: ONNX Runtime's own library, by its package name, through the package
//! client and the index that the user has configured.

mod archive;
mod client;
mod pinned;

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::library::{Found, Origin};
use crate::config::CacheDir;
use crate::files::hex;

use client::Client;

/// What to install, and whether the network may be used.
#[derive(Clone, Debug)]
pub struct InstallRequest {
    /// where engines are kept
    pub cache: CacheDir,
    /// whether to refuse anything that is not there already
    pub offline: bool,
}

/// What is told while an installation goes on.
pub trait Progress {
    /// A new part of the work begins, described in a few words.
    fn stage(&mut self, what: &str);
    /// So many bytes of (about) so many are there.
    fn bytes(&mut self, done: u64, total: u64);
}

/// An installed library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// the library
    pub found: Found,
    /// whether it was there before
    pub already: bool,
}

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// no package holds the library for this machine
    #[error(
        "there is no ready-made ONNX Runtime for {os} on {arch}; build one and name it with `--engine-library`",
        os = std::env::consts::OS, arch = std::env::consts::ARCH
    )]
    Platform,
    /// `--offline`, and it is not there
    #[error("ONNX Runtime {version} is not installed, and `--offline` forbids to fetch it")]
    Offline {
        /// the pinned version
        version: &'static str,
    },
    /// neither pip nor npm
    #[error(
        "neither `pip` nor `npm` is on this machine; install one of them, or name a library with `--engine-library`"
    )]
    NoClient,
    /// every client failed
    #[error("ONNX Runtime could not be fetched: {}", .0.join("; "))]
    Fetch(Vec<String>),
    /// what was fetched is not what was pinned
    #[error(
        "`{name}` of the package `{package}` is not the file that gpux knows (SHA-256 {given}, not {expected}); nothing was installed"
    )]
    Digest {
        /// the package
        package: String,
        /// the library in it
        name: String,
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

/// Installs the CPU build, unless it is there.
pub fn install(request: &InstallRequest, progress: &mut dyn Progress) -> Result<Installed, InstallError> {
    let pinned = pinned::here().ok_or(InstallError::Platform)?;
    for client in Client::ALL {
        let path = folder(&request.cache, client).join(client.entry(pinned).name);
        if path.is_file() {
            return Ok(Installed { found: Found::at(path, Origin::Installed), already: true });
        }
    }
    if request.offline {
        return Err(InstallError::Offline { version: pinned::PIP.version });
    }
    let downloads = request.cache.folder("downloads").map_err(cache_error(&request.cache.root().join("downloads")))?;
    let mut failures = Vec::new();
    for client in Client::ALL {
        let archive = match client.fetch(pinned, &downloads, progress) {
            Ok(Some(archive)) => archive,
            Ok(None) => continue,
            Err(reason) => {
                failures.push(reason);
                continue;
            }
        };
        progress.stage("unpacking");
        let unpacked = unpack(&request.cache, client, client.entry(pinned), &archive);
        // Whole and used, or damaged: in neither case is the archive of use any more.
        let _ = fs::remove_file(&archive);
        return unpacked.map(|path| Installed { found: Found::at(path, Origin::Installed), already: false });
    }
    if failures.is_empty() { Err(InstallError::NoClient) } else { Err(InstallError::Fetch(failures)) }
}

/// Where a client's version of the library is kept.
fn folder(cache: &CacheDir, client: Client) -> PathBuf {
    cache.root().join("engines").join(format!("onnxruntime-{}-cpu", client.source().version))
}

/// Unpacks the library beside its place, checks it, and moves it there whole.
fn unpack(cache: &CacheDir, client: Client, entry: pinned::Entry, archive: &Path) -> Result<PathBuf, InstallError> {
    let target = folder(cache, client);
    let engines = cache.folder("engines").map_err(cache_error(&target))?;
    let staging =
        tempfile::Builder::new().prefix(".installing-").tempdir_in(&engines).map_err(cache_error(&engines))?;
    let library = staging.path().join(entry.name);
    archive::extract(archive, entry.path, &library)?;
    let given = digest(&library).map_err(cache_error(&library))?;
    if given != entry.sha256 {
        return Err(InstallError::Digest {
            package: client.source().package.to_owned(),
            name: entry.name.to_owned(),
            expected: entry.sha256.to_owned(),
            given,
        });
    }
    // Another installation may have finished meanwhile; its library is as good as this one.
    match fs::rename(staging.path(), &target) {
        Ok(()) => {
            let _ = staging.keep();
        }
        Err(_) if target.join(entry.name).is_file() => {}
        Err(source) => return Err(InstallError::Cache { path: target, source }),
    }
    Ok(target.join(entry.name))
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

#[cfg(test)]
mod tests;
