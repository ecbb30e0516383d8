//! The files that `gpux.lock` names, in its folder again.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gpux_core::process_exit::Scratch;
use gpux_store::{Hasher, Store};

use crate::error::HubError;
use crate::hub_repository::HubRepository;
use crate::lock::{LOCK_FILE, LockedFile, LockedSource, lock_text};
use crate::settings::HubSettings;
use crate::transfer::TransferProgress;

/// What the folders begin with that files are copied to before they get their names.
const STAGING: &str = ".gpux-pull-";

/// How a folder is made what its lock says.
#[derive(Clone, Copy, Debug)]
pub struct RestoreOptions {
    /// whether files that were changed are replaced
    pub force: bool,
    /// whether the lock must stay as it is
    pub locked: bool,
    /// the most bytes that are fetched
    pub max_size: u64,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// what the lock says now
    pub sources: Vec<LockedSource>,
    /// files that were put there
    pub restored: Vec<String>,
    /// files that are other than the lock says, and were left alone
    pub changed: Vec<String>,
}

#[derive(PartialEq, Eq)]
enum FileState {
    Same,
    Missing,
    Changed,
}

/// Puts files that are missing into a folder, by the commit and the digests of its lock. The hub is asked for what the
/// store lacks.
pub fn restore(
    folder: &Path,
    mut sources: Vec<LockedSource>,
    settings: &HubSettings,
    store: &Store,
    options: RestoreOptions,
    progress: &dyn TransferProgress,
) -> Result<RestoreReport, HubError> {
    // One at a time in a folder, so what an earlier one left there belongs to nobody.
    let held = File::open(folder).and_then(|file| file.lock().map(|()| file)).ok();
    if held.is_some() {
        remove_left(folder);
    }
    let (mut restored, mut changed, mut left) = (Vec::new(), Vec::new(), options.max_size);
    let mut renamed = false;
    for source in &mut sources {
        let mut wanted = Vec::new();
        for file in &source.files {
            let Some(target) = &file.target else { continue };
            match state(folder, target, file)? {
                FileState::Same => {}
                FileState::Changed if !options.force => changed.push(target.clone()),
                FileState::Missing | FileState::Changed => wanted.push((file, target)),
            }
        }
        let is_in_store = |file: &LockedFile| store.has_blob(&file.sha256, file.size);
        let absent: Vec<_> = wanted.iter().map(|(file, _)| *file).filter(|file| !is_in_store(file)).collect();
        let mut hub = None;
        if !absent.is_empty() {
            let hub = hub.insert(open(source, settings, store, options, left)?);
            let names: Vec<_> = absent.iter().map(|file| file.path.as_str()).collect();
            hub.prefetch(&names, progress)?;
            absent.iter().try_for_each(|file| check(hub, file, folder, progress))?;
            left = left.saturating_sub(absent.iter().map(|file| file.size).sum());
        }
        for (file, target) in wanted {
            store.verify_blob(&file.sha256, &mut |_| {})?;
            place(&store.blob(&file.sha256), folder, target)?;
            restored.push(target.clone());
        }
        if let Some(hub) = hub.filter(|hub| hub.reference().id() != source.reference.id()) {
            let revision = source.reference.revision().unwrap_or("main");
            source.reference = hub.reference().at(revision);
            renamed = true;
        }
    }
    if renamed {
        write_whole(folder, LOCK_FILE, |to| fs::write(to, lock_text(&sources)))?;
    }
    drop(held);
    Ok(RestoreReport { sources, restored, changed })
}

fn open(
    source: &LockedSource,
    settings: &HubSettings,
    store: &Store,
    options: RestoreOptions,
    left: u64,
) -> Result<HubRepository, HubError> {
    let (id, commit) = (source.reference.id(), source.commit.clone());
    let opened = HubRepository::open(&source.reference.at(&commit), settings, store.clone(), left);
    let opened = opened.map_err(|error| match error {
        HubError::NoRevision { id, .. } => HubError::LockedCommit { id, commit },
        other => other,
    })?;
    let to = opened.reference().id();
    if options.locked && to != id {
        return Err(HubError::Locked { from: id, to });
    }
    Ok(opened)
}

/// Refuses a file that the commit has with other bytes than the lock says.
fn check(
    repository: &mut HubRepository,
    file: &LockedFile,
    folder: &Path,
    progress: &dyn TransferProgress,
) -> Result<(), HubError> {
    let blob = repository.fetch(&file.path, progress)?;
    if blob.ends_with(&file.sha256) && repository.store().has_blob(&file.sha256, file.size) {
        return Ok(());
    }
    let lock = folder.join(LOCK_FILE);
    Err(HubError::LockedFile { file: file.path.clone(), lock, id: repository.reference().id() })
}

fn state(folder: &Path, target: &str, file: &LockedFile) -> Result<FileState, HubError> {
    let path = folder.join(target);
    let read = |source| HubError::Read { path: path.clone(), source };
    check_parents(folder, target)?;
    let mut there = match gpux_core::files::open_file(&path, "it") {
        Ok(there) => there,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(FileState::Missing),
        Err(error) => return Err(read(error)),
    };
    if there.metadata().map_err(read)?.len() != file.size {
        return Ok(FileState::Changed);
    }
    let (mut hasher, mut piece) = (Hasher::new(file.size), vec![0; 1 << 16]);
    loop {
        match there.read(&mut piece).map_err(read)? {
            0 => break,
            read => hasher.update(&piece[..read]),
        }
    }
    Ok(if hasher.finish().0 == file.sha256 { FileState::Same } else { FileState::Changed })
}

/// Refuses a path through a folder that is a link, which may lead elsewhere.
fn check_parents(folder: &Path, target: &str) -> Result<(), HubError> {
    let mut parent = folder.to_owned();
    for part in Path::new(target).parent().into_iter().flat_map(Path::components) {
        parent.push(part);
        if parent.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            return Err(HubError::NoFolder(parent));
        }
    }
    Ok(())
}

fn place(blob: &Path, folder: &Path, target: &str) -> Result<(), HubError> {
    write_whole(folder, target, |to| {
        let mut original = gpux_core::files::open_file(blob, "it")?;
        std::io::copy(&mut original, &mut File::create(to)?).map(drop)
    })
}

/// Replaces the files of a folder by those of another; `gpux.lock` is the last.
pub fn replace_files(folder: &Path, from: &Path, files: &[String]) -> Result<(), HubError> {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by_key(|file| *file == LOCK_FILE);
    files.into_iter().try_for_each(|file| place(&from.join(file), folder, file))
}

/// Writes a file of a folder whole or not at all.
fn write_whole(folder: &Path, target: &str, write: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), HubError> {
    check_parents(folder, target)?;
    let path = folder.join(target);
    let put = || {
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let staging = Scratch::with_prefix(STAGING, folder)?;
        let staged = staging.path().join("file");
        write(&staged)?;
        fs::rename(staged, &path)
    };
    put().map_err(|source| HubError::Write { path: path.clone(), source })
}

fn remove_left(folder: &Path) {
    let is_left = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(STAGING));
    let entries = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    for path in entries.filter(is_left).filter(|path| !path.is_symlink()) {
        // What cannot be removed costs room, no more.
        let _ = fs::remove_dir_all(path);
    }
}
