//! What the store holds, what of it no name needs, and whether it is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gpux_core::files::open_file;

use crate::copy_hashed::{CopyError, copy_hashed};
use crate::digest::FileDigest;
use crate::error::{StoreError, io};
use crate::manifest::{Descriptor, Index};
use crate::names::{DIGEST_SCHEME, is_name};
use crate::pipeline::{FileRole, StoredFile, StoredPipeline};
use crate::store::{PART, Store};
use crate::stored_folder::LOCK;

/// What an interrupted download left is removed if nothing has gone on with it for so long.
const ABANDONED: Duration = Duration::from_hours(30 * 24);

/// The folder of the store with files that turned out to be damaged.
const DAMAGED: &str = "damaged";

/// A pipeline of the store, as `gpux store list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// its name; `None`: it was run, and nothing names it
    pub name: Option<String>,
    /// the digits of its manifest's digest
    pub manifest: String,
    /// what its gpux.yml calls it
    pub title: Option<String>,
    /// the version in its gpux.yml
    pub version: Option<String>,
    /// the bytes of its files
    pub size: u64,
    /// how many of them other pipelines have, too
    pub shared: u64,
    /// whether a process runs it
    pub is_used: bool,
    /// what is wrong with it
    pub damage: Option<String>,
}

/// A pipeline of the store, as `gpux store show` explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDetails {
    /// the digits of its manifest's digest
    pub manifest: String,
    /// its names
    pub names: Vec<String>,
    /// by their keys
    pub annotations: BTreeMap<String, String>,
    /// its files
    pub files: Vec<FileDetails>,
}

/// A file of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDetails {
    /// its path in the pipeline's folder
    pub path: String,
    /// what it is for
    pub role: FileRole,
    /// its SHA-256
    pub sha256: String,
    /// its size
    pub size: u64,
    /// whether the store has it
    pub is_there: bool,
}

/// Whether something is removed, or only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneMode {
    /// it is removed
    Remove,
    /// it is counted
    Count,
}

/// What [`Store::prune`] removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// files
    pub blobs: usize,
    /// folders from which pipelines were run
    pub folders: usize,
    /// downloads that nothing has gone on with
    pub parts: usize,
    /// bytes of all of them
    pub bytes: u64,
    /// pipelines without a name that stay since processes run them: the digits of their manifests' digests
    pub used: Vec<String>,
}

/// What [`Store::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// files that were read
    pub blobs: usize,
    /// their bytes
    pub bytes: u64,
    /// files whose bytes were others than their names say; they were set aside, if they could be
    pub damaged: Vec<PathBuf>,
    /// of names, or digests where there is none: what is wrong
    pub hurt: BTreeMap<String, String>,
}

impl CheckReport {
    /// Whether all is as it should be.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.hurt.is_empty()
    }
}

impl Store {
    /// The names, with the digits of their manifests' digests.
    pub fn named_digests(&self) -> Result<Vec<(String, String)>, StoreError> {
        let index = self.read_index()?;
        let named = index.manifests.iter().filter_map(|entry| Some((entry.name()?.to_owned(), entry.sha256().ok()?)));
        Ok(named.collect())
    }

    /// The digits of the digests of all manifests that are named, or were run.
    pub(crate) fn known_digests(&self) -> Result<BTreeSet<String>, StoreError> {
        let index = self.read_index()?;
        let mut digests: BTreeSet<_> = index.manifests.iter().filter_map(|entry| entry.sha256().ok()).collect();
        digests.extend(self.laid_out());
        Ok(digests)
    }

    /// The digits of the manifests whose digests begin so, also of those that nothing names any more.
    pub(crate) fn manifests_like(&self, digits: &str) -> Result<BTreeSet<String>, StoreError> {
        let mut found = self.known_digests()?;
        found.retain(|known| known.starts_with(digits));
        for (path, _) in files_in(&self.blobs()) {
            let name = path.file_name().and_then(|name| name.to_str()).filter(|name| name.starts_with(digits));
            found.extend(name.filter(|name| self.manifest(name).is_ok()).map(str::to_owned));
        }
        Ok(found)
    }

    /// The digits of the pipelines that have a folder.
    fn laid_out(&self) -> Vec<String> {
        let entries = self.pipelines().read_dir().into_iter().flatten().flatten();
        let digits = |entry: fs::DirEntry| match FileDigest::from_hex(entry.file_name().to_str()?)? {
            FileDigest::Sha256(digits) => Some(digits),
            FileDigest::GitBlob(_) => None,
        };
        entries.filter_map(digits).collect()
    }

    /// Whether a process runs the pipeline.
    fn is_used(&self, digits: &str) -> bool {
        let lock = self.pipelines().join(format!("{digits}{LOCK}"));
        // Another process that looks has it for a moment.
        let is_held = |lock: &File| {
            (0..3).all(|_| {
                let is_held = lock.try_lock().is_err();
                if is_held {
                    std::thread::sleep(Duration::from_millis(1));
                }
                is_held
            })
        };
        File::open(lock).is_ok_and(|lock| is_held(&lock))
    }

    /// All pipelines, by their names; those without one come last.
    pub fn entries(&self) -> Result<Vec<StoreEntry>, StoreError> {
        let named = self.named_digests()?;
        let unnamed = self.known_digests()?.into_iter().filter(|digits| named.iter().all(|(_, other)| other != digits));
        let all: Vec<_> = unnamed.map(|digits| (None, digits)).collect();
        let mut all: Vec<_> =
            named.iter().map(|(name, digits)| (Some(name.clone()), digits.clone())).chain(all).collect();
        all.sort_by_key(|(name, digits)| (name.is_none(), name.clone(), digits.clone()));

        let manifests: BTreeMap<_, _> = all.iter().map(|(_, digits)| (digits.clone(), self.manifest(digits))).collect();
        let mut users = BTreeMap::<&str, usize>::new();
        for manifest in manifests.values().flatten() {
            for file in sizes(&manifest.pipeline).into_keys() {
                *users.entry(file).or_default() += 1;
            }
        }
        let entry = |(name, digits): (Option<String>, String)| {
            let mut entry = StoreEntry {
                name,
                title: None,
                version: None,
                size: 0,
                shared: 0,
                is_used: self.is_used(&digits),
                damage: None,
                manifest: digits,
            };
            match &manifests[&entry.manifest] {
                Ok(manifest) => {
                    let pipeline = &manifest.pipeline;
                    entry.title = pipeline.name().map(str::to_owned);
                    entry.version = pipeline.version().map(str::to_owned);
                    entry.size = pipeline.size();
                    let shared = sizes(pipeline).into_iter().filter(|(file, _)| users[*file] > 1);
                    entry.shared = shared.map(|(_, size)| size).sum();
                    entry.damage = self.pipeline(&entry.manifest).err().map(|error| error.to_string());
                }
                Err(error) => entry.damage = Some(error.to_string()),
            }
            entry
        };
        Ok(all.into_iter().map(entry).collect())
    }

    /// The bytes of all files, each of which may be part of several pipelines.
    pub fn blob_bytes(&self) -> u64 {
        files_in(&self.blobs()).map(|(_, metadata)| metadata.len()).sum()
    }

    /// The name that is most like this one, if one is.
    pub fn similar_name(&self, name: &str) -> Result<Option<String>, StoreError> {
        let named = self.named_digests()?;
        let names = named.iter().map(|(name, _)| name.as_str());
        let titles = names.clone().filter_map(|name| Some(name.rsplit_once(':')?.0));
        Ok(gpux_core::closest(name, names.chain(titles)).map(str::to_owned))
    }

    /// The pipeline whose manifest has this digest, whole or not.
    pub fn details(&self, digits: &str) -> Result<StoreDetails, StoreError> {
        let StoredPipeline { files, annotations, .. } = self.manifest(digits)?.pipeline;
        let named = self.named_digests()?.into_iter().filter(|(_, other)| other == digits);
        let files = files.into_iter().map(|file| FileDetails {
            is_there: self.has_blob(&file.sha256, file.size),
            role: file.role,
            path: file.path,
            sha256: file.sha256,
            size: file.size,
        });
        Ok(StoreDetails {
            manifest: digits.to_owned(),
            names: named.map(|(name, _)| name).collect::<BTreeSet<_>>().into_iter().collect(),
            annotations,
            files: files.collect(),
        })
    }

    /// Has `name` mean the pipeline from now on. Returns the digits of the one that it meant before.
    pub fn add_name(&self, name: &str, digits: &str) -> Result<Option<String>, StoreError> {
        if !is_name(name) {
            return Err(StoreError::Name(name.to_owned()));
        }
        self.manifest(digits)?;
        let path = self.blob(digits);
        let size = path.metadata().map_err(io("read", &path))?.len();
        self.set_name(name, Descriptor::of_pipeline(digits, size))
    }

    /// Takes names away. What they mean stays until [`prune`](Self::prune). Fails, and does nothing, if one of them is
    /// not there.
    pub fn remove_names(&self, names: &[String]) -> Result<(), StoreError> {
        self.must_be_writable()?;
        let locked = self.lock()?;
        let mut index = self.read_index()?;
        for name in names.iter().collect::<BTreeSet<_>>() {
            let before = index.manifests.len();
            index.manifests.retain(|entry| entry.name() != Some(name));
            if index.manifests.len() == before {
                return Err(self.not_removed(name)?);
            }
        }
        self.write_index(&index)?;
        drop(locked);
        Ok(())
    }

    /// Why `wanted` is no name that can be taken away.
    fn not_removed(&self, wanted: &str) -> Result<StoreError, StoreError> {
        let named = self.named_digests()?;
        let digest = if wanted.starts_with(DIGEST_SCHEME) { self.resolve_digest(wanted)? } else { None };
        let is_meant = |name: &str, digits: &String| match &digest {
            Some(digest) => digits == digest,
            None => name.strip_prefix(wanted).is_some_and(|version| version.starts_with(':')),
        };
        let meant = named.into_iter().filter(|(name, digits)| is_meant(name, digits));
        let (wanted, mut names) = (wanted.to_owned(), meant.map(|(name, _)| name).collect::<Vec<_>>());
        names.sort();
        Ok(match (names.as_slice(), digest) {
            ([], Some(_)) => StoreError::Unnamed(wanted),
            ([], None) => StoreError::NoSuchName { similar: self.similar_name(&wanted)?, name: wanted },
            _ => StoreError::Ambiguous { wanted, names },
        })
    }

    /// Removes what no name needs and no process runs: files, folders, and downloads that nothing has gone on with for
    /// 30 days. Waits until no other process adds to the store.
    pub fn prune(&self, mode: PruneMode, on_wait: impl FnOnce()) -> Result<PruneReport, StoreError> {
        self.alone(on_wait, || self.prune_alone(mode))
    }

    fn prune_alone(&self, mode: PruneMode) -> Result<PruneReport, StoreError> {
        let named: BTreeSet<_> = self.named_digests()?.into_iter().map(|(_, digits)| digits).collect();
        let mut report = PruneReport::default();
        let folders: BTreeSet<_> = self.laid_out().into_iter().filter(|digits| !named.contains(digits)).collect();
        let (used, unused): (BTreeSet<_>, BTreeSet<_>) = folders.into_iter().partition(|digits| self.is_used(digits));
        report.used = used.iter().cloned().collect();

        // A manifest that cannot be read keeps every file: one of them may be its own.
        let mut needed = BTreeSet::new();
        for digits in named.iter().chain(&used) {
            needed.extend(self.references(digits)?);
            needed.insert(digits.clone());
        }

        let is_removed = mode == PruneMode::Remove;
        let mut index = self.read_index()?;
        let entries = index.manifests.len();
        index.manifests.retain(|entry| entry.sha256().is_ok_and(|digits| needed.contains(&digits)));
        if is_removed && index.manifests.len() < entries {
            let locked = self.lock()?;
            self.write_index(&index)?;
            drop(locked);
        }
        for digits in unused {
            let folder = self.pipelines().join(&digits);
            report.folders += 1;
            report.bytes += unshared_bytes(&folder);
            if is_removed {
                self.remove_folder(&folder)?;
            }
        }
        if is_removed {
            self.remove_unused_locks();
        }
        for (path, metadata) in files_in(&self.blobs()) {
            if !path.file_name().and_then(|name| name.to_str()).is_some_and(|name| needed.contains(name)) {
                report.blobs += 1;
                report.bytes += metadata.len();
                remove(&path, is_removed)?;
            }
        }
        for (path, metadata) in files_in(&self.root().join(DAMAGED)) {
            report.blobs += 1;
            report.bytes += metadata.len();
            remove(&path, is_removed)?;
        }
        for (path, metadata) in files_in(&self.ingest()) {
            let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
            let is_part = path.to_string_lossy().ends_with(PART);
            if is_part && age.is_some_and(|age| age >= ABANDONED) {
                report.parts += 1;
                report.bytes += metadata.len();
                remove(&path, is_removed)?;
            }
        }
        Ok(report)
    }

    /// Removes the locks of folders that are gone.
    fn remove_unused_locks(&self) {
        for (path, _) in files_in(&self.pipelines()) {
            let digits = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(LOCK));
            if digits.is_some_and(|digits| !self.pipelines().join(digits).exists() && !self.is_used(digits)) {
                // An empty file costs nothing.
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Removes the folder of a pipeline: all of it at once for those who look for it.
    fn remove_folder(&self, folder: &Path) -> Result<(), StoreError> {
        let scratch = self.scratch()?;
        let moved = scratch.path().join("folder");
        fs::rename(folder, &moved).and_then(|()| fs::remove_dir_all(&moved)).map_err(io("remove", folder))
    }

    /// Reads every file. One that is not what its name says is set aside, so that the next that adds it keeps it whole.
    /// `on_progress` gets the bytes of each piece that was read; `on_wait` is called before it waits until no other process adds to
    /// the store, if something is to be set aside.
    pub fn check(&self, on_wait: impl FnOnce(), mut on_progress: impl FnMut(u64)) -> Result<CheckReport, StoreError> {
        let mut report = CheckReport::default();
        if let Err(StoreError::Damaged { path, reason }) = self.read_index()
            && self.is_writable()
        {
            self.set_index_aside()?;
            let lost =
                "it is set aside: add the pipelines again before `gpux store prune`, which keeps named ones alone";
            report.hurt.insert(path.display().to_string(), format!("{reason}; {lost}"));
        }
        let mut suspects = Vec::new();
        for (path, metadata) in files_in(&self.blobs()) {
            // One that cannot be read is damaged, too.
            if !is_blob(&path, &mut on_progress).unwrap_or(false) {
                suspects.push(path);
            }
            (report.blobs, report.bytes) = (report.blobs + 1, report.bytes + metadata.len());
        }
        let mut changed = BTreeSet::new();
        for digits in self.laid_out() {
            if !self.is_laid_out_whole(&digits) {
                changed.insert(digits);
            }
        }
        if self.is_writable() && !(suspects.is_empty() && changed.is_empty()) {
            changed = self.alone(on_wait, || self.set_aside(&suspects, changed))?;
        }
        for digits in changed {
            let folder = self.pipelines().join(&digits);
            let reason = format!("the files in `{}`, which a process runs, were changed", folder.display());
            report.hurt.insert(format!("{DIGEST_SCHEME}{digits}"), reason);
        }
        report.damaged = suspects;
        for entry in self.entries()? {
            if let Some(damage) = entry.damage {
                report.hurt.insert(entry.name.unwrap_or_else(|| format!("{DIGEST_SCHEME}{}", entry.manifest)), damage);
            }
        }
        Ok(report)
    }

    /// Puts an empty index in the place of a damaged one, unless another process has.
    fn set_index_aside(&self) -> Result<(), StoreError> {
        let index = self.index();
        let locked = self.lock()?;
        if matches!(self.read_index(), Err(StoreError::Damaged { .. })) {
            self.move_aside(&index)?;
            self.write_index(&Index::new(Vec::new()))?;
        }
        drop(locked);
        Ok(())
    }

    /// Moves a damaged file to those that are set aside. None of them is lost.
    fn move_aside(&self, path: &Path) -> Result<(), StoreError> {
        let folder = self.root().join(DAMAGED);
        fs::create_dir_all(&folder).map_err(io("make", &folder))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let numbered = (2..).map(|number: u64| format!("{name}.{number}"));
        let mut places = std::iter::once(name.clone().into_owned()).chain(numbered).map(|name| folder.join(name));
        let place = places.find(|place| place.symlink_metadata().is_err()).unwrap_or_else(|| folder.join(&*name));
        fs::rename(path, place).map_err(io("move", path))
    }

    /// Compares each file of a pipeline with its digest. `progress` gets the bytes of each piece that was read.
    pub fn verify(&self, pipeline: &StoredPipeline, progress: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
        let mut read = BTreeSet::new();
        for file in pipeline.files.iter().filter(|file| read.insert(&file.sha256)) {
            self.verify_blob(&file.sha256, progress).map_err(|error| match error {
                StoreError::Damaged { path, .. } => {
                    StoreError::Damaged { reason: format!("it is not the file `{}`", file.path), path }
                }
                error => error,
            })?;
        }
        Ok(())
    }

    /// Compares a file with its digest.
    pub fn verify_blob(&self, sha256: &str, progress: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
        let path = self.blob(sha256);
        if has_digest(&path, sha256, progress)? {
            return Ok(());
        }
        Err(StoreError::Damaged { reason: "its digest is another than its name".to_owned(), path })
    }

    /// Whether each file in the folder of a pipeline is a link to its blob, or a copy with the same bytes.
    fn is_laid_out_whole(&self, digits: &str) -> bool {
        let folder = self.pipelines().join(digits);
        let is_whole = |file: &StoredFile| {
            let path = folder.join(&file.path);
            let Ok(found) = path.symlink_metadata() else { return false };
            is_same_file(&found, self.blob(&file.sha256).symlink_metadata().ok().as_ref())
                || found.is_file() && has_digest(&path, &file.sha256, &mut |_| {}).unwrap_or(false)
        };
        self.manifest(digits).is_ok_and(|manifest| manifest.pipeline.files.iter().all(is_whole))
    }

    /// Removes damaged files from those that pipelines are made of, with the folders that have links to them. Returns the
    /// digits of the pipelines whose folders stay, since a process runs them.
    fn set_aside(&self, suspects: &[PathBuf], changed: BTreeSet<String>) -> Result<BTreeSet<String>, StoreError> {
        for path in suspects {
            // Another process may have put it right.
            if path.symlink_metadata().is_ok() && !is_blob(path, &mut |_| {}).unwrap_or(false) {
                self.move_aside(path)?;
            }
        }
        let of_suspects = self.laid_out().into_iter().filter(|digits| !self.is_laid_out_whole(digits));
        let (used, unused): (BTreeSet<_>, BTreeSet<_>) =
            changed.into_iter().chain(of_suspects).partition(|digits| self.is_used(digits));
        for folder in unused.iter().map(|digits| self.pipelines().join(digits)).filter(|folder| folder.exists()) {
            self.remove_folder(&folder)?;
        }
        Ok(used)
    }
}

/// Whether the file has the digest that its name is.
fn is_blob(path: &Path, progress: &mut dyn FnMut(u64)) -> Result<bool, StoreError> {
    has_digest(path, path.file_name().and_then(|name| name.to_str()).unwrap_or_default(), progress)
}

fn has_digest(path: &Path, digits: &str, progress: &mut dyn FnMut(u64)) -> Result<bool, StoreError> {
    let file = open_file(path, "it").map_err(io("read", path))?;
    match copy_hashed(file, u64::MAX, &mut std::io::sink(), progress) {
        Ok((digest, _)) => Ok(digest == digits),
        Err(CopyError::Read(source) | CopyError::Write { source, .. }) => Err(io("read", path)(source)),
    }
}

/// The sizes of a pipeline's files, by their digests.
fn sizes(pipeline: &StoredPipeline) -> BTreeMap<&str, u64> {
    pipeline.files.iter().map(|file| (file.sha256.as_str(), file.size)).collect()
}

fn remove(path: &Path, is_removed: bool) -> Result<(), StoreError> {
    if is_removed { fs::remove_file(path).map_err(io("remove", path)) } else { Ok(()) }
}

fn files_in(folder: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?))).filter(|(_, metadata)| metadata.is_file())
}

/// The bytes of a folder's files that are copies: those of links are the blobs' own.
fn unshared_bytes(folder: &Path) -> u64 {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => unshared_bytes(&entry.path()),
        Ok(metadata) if !is_link(&metadata) => metadata.len(),
        _ => 0,
    });
    bytes.sum()
}

#[cfg(unix)]
fn is_link(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(metadata) > 1
}

#[cfg(not(unix))]
const fn is_link(_: &Metadata) -> bool {
    true
}

#[cfg(unix)]
fn is_same_file(one: &Metadata, other: Option<&Metadata>) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    other.is_some_and(|other| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

#[cfg(not(unix))]
const fn is_same_file(_: &Metadata, _: Option<&Metadata>) -> bool {
    false
}

#[cfg(test)]
mod tests;
