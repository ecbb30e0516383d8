//! A repository of the hub at one commit, whose files are fetched into the store.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpux_store::{FileDigest, Hasher, PartFile, Store, is_safe};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::client::HubClient;
use crate::download::{Download, MAX_ATTEMPTS, is_right, is_temporary, pause, write_error};
use crate::error::HubError;
use crate::hub_cache;
use crate::lock::{LockedFile, LockedSource};
use crate::reference::HubReference;
use crate::remote_file::RemoteFile;
use crate::settings::HubSettings;
use crate::transfer::{RepositoryFacts, TransferProgress};

/// The most files of a repository.
const MAX_FILES: usize = 100_000;
/// The revision where none is named.
const MAIN: &str = "main";

/// A repository at one commit.
#[derive(Debug)]
pub(crate) struct HubRepository {
    id: String,
    reference: HubReference,
    commit: String,
    files: BTreeMap<String, RemoteFile>,
    facts: RepositoryFacts,
    /// `None` offline
    client: Option<HubClient>,
    caches: Vec<PathBuf>,
    store: Store,
    /// bytes that may still be fetched
    budget: u64,
    /// how many files are fetched at a time
    jobs: usize,
    /// the SHA-256 of files that are in the store
    ready: BTreeMap<String, String>,
    /// those of them that were asked for
    fetched: BTreeMap<String, LockedFile>,
}

/// The answer of `/api/models/ID/revision/REVISION?blobs=true`.
#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    siblings: Vec<Sibling>,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    gated: Json,
    pipeline_tag: Option<String>,
    #[serde(default, rename = "cardData")]
    card: Json,
}

#[derive(Deserialize)]
struct Sibling {
    #[serde(rename = "rfilename")]
    name: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
    size: u64,
}

impl HubRepository {
    /// Resolves the revision to a commit, and lists its files.
    pub(crate) fn open(
        reference: &HubReference,
        settings: &HubSettings,
        store: Store,
        max_size: u64,
    ) -> Result<Self, HubError> {
        let mut reference = reference.clone();
        let revision = reference.revision().unwrap_or(MAIN).to_owned();
        let mut id = reference.id();
        let mut facts = RepositoryFacts::default();
        let (client, commit, files) = if settings.offline {
            let found = hub_cache::snapshot(&settings.caches, &id, &revision);
            let looked = || settings.caches.iter().map(|cache| format!("`{}`", cache.display())).collect::<Vec<_>>();
            let missing =
                || HubError::Offline { id: id.clone(), revision: revision.clone(), looked: looked().join(", ") };
            let (commit, files) = found.ok_or_else(missing)?;
            (None, commit, files)
        } else {
            let client = HubClient::new(settings)?;
            let answer = match model_info(&client, &id, &revision) {
                // Once: the hub knows where a repository is now.
                Err(HubError::Renamed { id: old, to }) if settings.follows_renames => {
                    let unusable =
                        || HubError::Answer { about: old.clone(), reason: "its new name is none".to_owned() };
                    reference = reference.renamed(&to).ok_or_else(unusable)?;
                    id = reference.id();
                    model_info(&client, &id, &revision)?
                }
                other => other?,
            };
            let unusable = |reason: String| HubError::Answer { about: id.clone(), reason };
            let info: ModelInfo = serde_json::from_slice(&answer).map_err(|error| unusable(error.to_string()))?;
            if info.disabled {
                return Err(HubError::Disabled(id));
            }
            let is_gated = !matches!(info.gated, Json::Null | Json::Bool(false));
            if is_gated && !client.has_token() {
                return Err(HubError::Gated { id, endpoint: settings.endpoint.clone(), with_token: false });
            }
            if !matches!(FileDigest::from_hex(&info.sha), Some(FileDigest::GitBlob(_))) {
                return Err(unusable("its `sha` is no commit".to_owned()));
            }
            let is_commit = matches!(FileDigest::from_hex(&revision), Some(FileDigest::GitBlob(_)));
            if is_commit && info.sha != revision {
                return Err(unusable(format!("it is about the commit {}, not {revision}", info.sha)));
            }
            facts.pipeline_tag = info.pipeline_tag;
            facts.license = info.card["license"].as_str().map(str::to_owned);
            let files = remote_files(info.siblings, &id)?;
            (Some(client), info.sha, files)
        };
        (facts.name, facts.commit) = (id.clone(), Some(commit.clone()));
        let caches = settings.caches.clone();
        let (budget, ready, fetched) = (max_size, BTreeMap::new(), BTreeMap::new());
        let reference = reference.at(&revision);
        Ok(Self {
            id,
            reference,
            commit,
            files,
            facts,
            client,
            caches,
            store,
            budget,
            jobs: settings.jobs,
            ready,
            fetched,
        })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    pub(crate) fn facts(&self) -> RepositoryFacts {
        self.facts.clone()
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn locked(&self) -> LockedSource {
        LockedSource {
            reference: self.reference.clone(),
            commit: self.commit.clone(),
            files: self.fetched.values().cloned().collect(),
        }
    }

    /// The repository, by its present name, and the revision that was named.
    pub(crate) const fn reference(&self) -> &HubReference {
        &self.reference
    }

    /// Notes where a file that was fetched lies in the pipeline's folder.
    pub(crate) fn set_target(&mut self, name: &str, target: &str) {
        if let Some(file) = self.fetched.get_mut(name) {
            file.target = Some(target.to_owned());
        }
    }

    /// The path of a file in the store, fetched if it is not there.
    pub(crate) fn fetch(&mut self, name: &str, progress: &dyn TransferProgress) -> Result<PathBuf, HubError> {
        self.prefetch(&[name], progress)?;
        let no_file = || HubError::NoFile { id: self.id.clone(), file: name.to_owned() };
        let size = self.files.get(name).ok_or_else(no_file)?.size;
        let sha256 = self.ready.get(name).cloned().ok_or_else(no_file)?;
        let path = self.store.blob(&sha256);
        let file = || LockedFile { path: name.to_owned(), target: None, sha256, size };
        self.fetched.entry(name.to_owned()).or_insert_with(file);
        Ok(path)
    }

    /// Fetches files that are not in the store yet, several at a time. The first fault ends all.
    pub(crate) fn prefetch(&mut self, names: &[&str], progress: &dyn TransferProgress) -> Result<(), HubError> {
        let mut wanted = BTreeMap::new();
        for name in names.iter().copied().filter(|name| !self.ready.contains_key(*name)) {
            let file = self.files.get(name);
            let file = file.ok_or_else(|| HubError::NoFile { id: self.id.clone(), file: name.to_owned() })?;
            if wanted.insert(name, file).is_none() {
                let left = self.budget.checked_sub(file.size);
                let too_large = || HubError::TooLarge { file: name.to_owned(), size: file.size, limit: self.budget };
                self.budget = left.ok_or_else(too_large)?;
            }
        }

        let (wanted, next, ended) =
            (wanted.into_iter().collect::<Vec<_>>(), AtomicUsize::new(0), AtomicBool::new(false));
        let (ready, fault) = (Mutex::new(Vec::new()), Mutex::new(None));
        let fetch_next = || {
            while let Some((name, file)) = wanted.get(next.fetch_add(1, Ordering::Relaxed))
                && !ended.load(Ordering::Relaxed)
            {
                match self.fetch_file(name, file, &ended, progress) {
                    Ok(sha256) => lock(&ready).push(((*name).to_owned(), sha256)),
                    Err(error) => {
                        lock(&fault).get_or_insert(error);
                        ended.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.jobs.min(wanted.len()) {
                // Without a thread, the others do its work.
                let _ = std::thread::Builder::new().name("fetch".to_owned()).spawn_scoped(scope, fetch_next);
            }
            fetch_next();
        });
        let (ready, fault) = (std::mem::take(&mut *lock(&ready)), lock(&fault).take());
        self.ready.extend(ready);
        fault.map_or(Ok(()), Err)
    }

    /// Gives the SHA-256 of a file that is in the store then.
    fn fetch_file(
        &self,
        name: &str,
        file: &RemoteFile,
        ended: &AtomicBool,
        progress: &dyn TransferProgress,
    ) -> Result<String, HubError> {
        let in_store = || match &file.digest {
            FileDigest::Sha256(digits) if self.store.has_blob(digits, file.size) => Some(digits.clone()),
            _ => None,
        };
        if let Some(found) = in_store() {
            self.store.verify_blob(&found, &mut |_| {})?;
            return Ok(found);
        }
        // Waits for another process that fetches the same.
        let mut part = self.store.part(file.digest.hex())?;
        if let Some(found) = in_store() {
            part.discard();
            return Ok(found);
        }
        let full = |source| self.write_error(name, file.size, source);

        if let Some(cached) = hub_cache::blob(&self.caches, &self.id, &file.digest)
            && let Some(sha256) = copy_cached(&cached, file, &mut part).map_err(full)?
        {
            part.publish(&sha256)?;
            return Ok(sha256);
        }
        let Some(client) = &self.client else { return Err(HubError::OfflineFile { file: name.to_owned() }) };
        let download = Download { client, id: &self.id, commit: &self.commit, name, file, store: &self.store, ended };
        let sha256 = download.run(&mut part, progress)?;
        part.publish(&sha256)?;
        Ok(sha256)
    }

    fn write_error(&self, name: &str, size: u64, source: std::io::Error) -> HubError {
        write_error(&self.store, name, size, 0, source)
    }
}

/// What threads collect, whole even if one of them has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files by their names, each of which stays within a folder. Those without a digest are none.
fn remote_files(siblings: Vec<Sibling>, id: &str) -> Result<BTreeMap<String, RemoteFile>, HubError> {
    if siblings.len() > MAX_FILES {
        let reason = format!("it lists {} files, more than {MAX_FILES}", siblings.len());
        return Err(HubError::Answer { about: id.to_owned(), reason });
    }
    let mut files = BTreeMap::new();
    for Sibling { name, size, blob, lfs } in siblings {
        if !is_safe(&name) {
            return Err(HubError::FileName(name));
        }
        let (size, digits) = match lfs {
            Some(large) => (Some(large.size), Some(large.sha256)),
            None => (size, blob),
        };
        let (Some(size), Some(digest)) = (size, digits.and_then(|digits| FileDigest::from_hex(&digits))) else {
            let reason = format!("it gives no size or digest for `{name}`");
            return Err(HubError::Answer { about: id.to_owned(), reason });
        };
        if files.contains_key(&name) {
            return Err(HubError::SameName(name));
        }
        files.insert(name, RemoteFile { size, digest });
    }
    Ok(files)
}

/// Copies a file of the hub's own cache; gives its SHA-256 if it is the right one.
fn copy_cached(from: &std::path::Path, file: &RemoteFile, part: &mut PartFile) -> std::io::Result<Option<String>> {
    // What another program keeps there may be anything, or gone: then the file is fetched.
    let Ok(mut cached) = gpux_core::files::open_file(from, "a cached file") else { return Ok(None) };
    if cached.metadata()?.len() != file.size {
        return Ok(None);
    }
    let mut hasher = Hasher::new(file.size);
    part.file.set_len(0)?;
    part.file.seek(SeekFrom::Start(0))?;
    let mut piece = vec![0; 1 << 16];
    loop {
        let read = cached.read(&mut piece)?;
        if read == 0 {
            break;
        }
        hasher.update(&piece[..read]);
        part.file.write_all(&piece[..read])?;
    }
    let (sha256, git) = hasher.finish();
    if is_right(&file.digest, &sha256, &git) {
        return Ok(Some(sha256));
    }
    part.file.set_len(0)?;
    Ok(None)
}

/// What the hub says about a revision; asked again where its server has trouble.
fn model_info(client: &HubClient, id: &str, revision: &str) -> Result<Vec<u8>, HubError> {
    let mut attempts = 0;
    loop {
        match client.model_info(id, revision) {
            Err(error @ HubError::Status { .. }) if is_temporary(&error) && attempts + 1 < MAX_ATTEMPTS => {
                std::thread::sleep(pause(attempts, &error));
                attempts += 1;
            }
            other => return other,
        }
    }
}
