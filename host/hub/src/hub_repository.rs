//! A repository of the hub at one commit, whose files are fetched into the store.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpux_store::{FileDigest, Hasher, PartFile, Store, StoreError, is_safe};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::client::{FileBody, HubClient};
use crate::error::HubError;
use crate::hub_cache;
use crate::lock::{LockedFile, LockedSource};
use crate::reference::HubReference;
use crate::remote_file::RemoteFile;
use crate::settings::HubSettings;
use crate::transfer::{RepositoryFacts, TransferProgress};

/// The most files of a repository.
const MAX_FILES: usize = 100_000;
/// How often a file is asked for again without getting on.
const MAX_ATTEMPTS: u32 = 5;
/// What a connection must bring to count as getting on, and within which time.
const MIN_PROGRESS: u64 = 64 << 10;
const PROGRESS_TIME: Duration = Duration::from_mins(1);
/// The longest wait before the next attempt.
const MAX_PAUSE: Duration = Duration::from_secs(30);
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
        let (budget, fetched) = (max_size, BTreeMap::new());
        let reference = reference.at(&revision);
        Ok(Self { id, reference, commit, files, facts, client, caches, store, budget, fetched })
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

    /// What a file that was fetched is.
    pub(crate) fn fetched(&self, name: &str) -> Option<&LockedFile> {
        self.fetched.get(name)
    }

    /// Notes where a file that was fetched lies in the pipeline's folder.
    pub(crate) fn set_target(&mut self, name: &str, target: &str) {
        if let Some(file) = self.fetched.get_mut(name) {
            file.target = Some(target.to_owned());
        }
    }

    /// The path of a file in the store, fetched if it is not there.
    pub(crate) fn fetch(&mut self, name: &str, progress: &mut dyn TransferProgress) -> Result<PathBuf, HubError> {
        let file = self.files.get(name).cloned();
        let file = file.ok_or_else(|| HubError::NoFile { id: self.id.clone(), file: name.to_owned() })?;
        if let Some(done) = self.fetched.get(name) {
            return Ok(self.store.blob(&done.sha256));
        }
        let left = self.budget.checked_sub(file.size);
        let too_large = || HubError::TooLarge { file: name.to_owned(), size: file.size, limit: self.budget };
        self.budget = left.ok_or_else(too_large)?;

        let sha256 = self.fetch_file(name, &file, progress)?;
        let path = self.store.blob(&sha256);
        self.fetched
            .insert(name.to_owned(), LockedFile { path: name.to_owned(), target: None, sha256, size: file.size });
        Ok(path)
    }

    /// Gives the SHA-256 of a file that is in the store then.
    fn fetch_file(
        &self,
        name: &str,
        file: &RemoteFile,
        progress: &mut dyn TransferProgress,
    ) -> Result<String, HubError> {
        let in_store = || match &file.digest {
            FileDigest::Sha256(digits) if self.store.has_blob(digits, file.size) => Some(digits.clone()),
            _ => None,
        };
        if let Some(found) = in_store() {
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
        let download = Download { client, id: &self.id, commit: &self.commit, name, file, store: &self.store };
        let sha256 = download.run(&mut part, progress);
        progress.end();
        let sha256 = sha256?;
        part.publish(&sha256)?;
        Ok(sha256)
    }

    fn write_error(&self, name: &str, size: u64, source: std::io::Error) -> HubError {
        write_error(&self.store, name, size, 0, source)
    }
}

fn write_error(store: &Store, name: &str, size: u64, done: u64, source: std::io::Error) -> HubError {
    let (root, file) = (store.root().to_owned(), name.to_owned());
    HubError::Store(match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            StoreError::Full { file, root, done, size }
        }
        _ => StoreError::Io { action: "write into", path: root, source },
    })
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

fn is_right(expected: &FileDigest, sha256: &str, git: &str) -> bool {
    match expected {
        FileDigest::Sha256(digits) => digits == sha256,
        FileDigest::GitBlob(digits) => digits == git,
    }
}

/// One file that is being fetched.
struct Download<'a> {
    client: &'a HubClient,
    id: &'a str,
    commit: &'a str,
    name: &'a str,
    file: &'a RemoteFile,
    store: &'a Store,
}

/// How one connection went.
enum DownloadEnd {
    /// the file is whole
    Whole,
    /// it can go on
    Early(String),
}

impl Download<'_> {
    /// Fetches what is missing; gives the SHA-256 of the whole.
    fn run(&self, part: &mut PartFile, progress: &mut dyn TransferProgress) -> Result<String, HubError> {
        let resumed = part.file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        match self.fetch(part, progress) {
            // What an earlier process left may be of no use.
            Err(HubError::Digest { .. }) if resumed => {
                self.truncate(part)?;
                self.fetch(part, progress)
            }
            other => other,
        }
        .inspect_err(|error| {
            if matches!(error, HubError::Digest { .. } | HubError::TooLong { .. }) {
                part.discard();
            }
        })
    }

    fn truncate(&self, part: &mut PartFile) -> Result<(), HubError> {
        let emptied = part.file.set_len(0).and_then(|()| part.file.seek(SeekFrom::Start(0)));
        emptied.map(drop).map_err(|source| self.write_error(0, source))
    }

    fn write_error(&self, done: u64, source: std::io::Error) -> HubError {
        write_error(self.store, self.name, self.file.size, done, source)
    }

    fn fetch(&self, part: &mut PartFile, progress: &mut dyn TransferProgress) -> Result<String, HubError> {
        let size = self.file.size;
        let (mut hasher, mut done) = self.resume(part)?;
        progress.begin(self.name, size, done);
        let mut attempts = 0;
        while done < size {
            let before = done;
            let reason = match self.client.file(self.id, self.commit, self.name, done) {
                Ok(body) => {
                    if body.start != done {
                        self.truncate(part)?;
                        (hasher, done) = (Hasher::new(size), 0);
                    }
                    if body.start == done {
                        match self.receive(body, part, &mut hasher, &mut done, progress)? {
                            DownloadEnd::Whole => break,
                            DownloadEnd::Early(reason) => reason,
                        }
                    } else {
                        "the hub sent another part than was asked for".to_owned()
                    }
                }
                Err(error) if is_temporary(&error) => {
                    let last = attempts + 1 >= MAX_ATTEMPTS;
                    if last {
                        return Err(error);
                    }
                    std::thread::sleep(pause(attempts, &error));
                    error.to_string()
                }
                Err(error) => return Err(error),
            };
            attempts = if done >= before + MIN_PROGRESS { 0 } else { attempts + 1 };
            if attempts >= MAX_ATTEMPTS {
                return Err(HubError::Cut { file: self.name.to_owned(), done, size, reason });
            }
        }
        let (sha256, git) = hasher.finish();
        if is_right(&self.file.digest, &sha256, &git) {
            return Ok(sha256);
        }
        let given = match &self.file.digest {
            FileDigest::Sha256(_) => FileDigest::Sha256(sha256),
            FileDigest::GitBlob(_) => FileDigest::GitBlob(git),
        };
        Err(HubError::Digest { file: self.name.to_owned(), expected: self.file.digest.clone(), given })
    }

    /// The digest of what is there already.
    fn resume(&self, part: &mut PartFile) -> Result<(Hasher, u64), HubError> {
        let size = self.file.size;
        let there = part.file.metadata().map_or(0, |metadata| metadata.len());
        if there > size {
            self.truncate(part)?;
            return Ok((Hasher::new(size), 0));
        }
        let (mut hasher, mut done) = (Hasher::new(size), 0);
        let mut piece = vec![0; 1 << 16];
        part.file.seek(SeekFrom::Start(0)).map_err(|source| self.write_error(0, source))?;
        loop {
            let read = part.file.read(&mut piece).map_err(|source| self.write_error(done, source))?;
            if read == 0 {
                return Ok((hasher, done));
            }
            hasher.update(&piece[..read]);
            done += read as u64;
        }
    }

    /// Takes what one connection brings.
    fn receive(
        &self,
        body: FileBody,
        part: &mut PartFile,
        hasher: &mut Hasher,
        done: &mut u64,
        progress: &mut dyn TransferProgress,
    ) -> Result<DownloadEnd, HubError> {
        let size = self.file.size;
        let too_long = || HubError::TooLong { file: self.name.to_owned(), size };
        if body.body.content_length().is_some_and(|length| length > size - *done) {
            return Err(too_long());
        }
        // One byte more shows a body that goes on.
        let mut reader = body.body.into_with_config().limit(u64::MAX).reader().take(size - *done + 1);
        let (mut piece, mut window, mut window_start) = (vec![0; 1 << 16], Instant::now(), *done);
        loop {
            let read = match reader.read(&mut piece) {
                Ok(0) if *done == size => return Ok(DownloadEnd::Whole),
                Ok(0) => return Ok(DownloadEnd::Early("it ended early".to_owned())),
                Ok(read) => read,
                Err(error) => return Ok(DownloadEnd::Early(error.to_string())),
            };
            if *done + read as u64 > size {
                return Err(too_long());
            }
            part.file.write_all(&piece[..read]).map_err(|source| self.write_error(*done, source))?;
            hasher.update(&piece[..read]);
            *done += read as u64;
            progress.advance(*done);
            if window.elapsed() >= PROGRESS_TIME {
                if *done < window_start + MIN_PROGRESS && *done < size {
                    return Ok(DownloadEnd::Early("it brought next to nothing for a minute".to_owned()));
                }
                (window, window_start) = (Instant::now(), *done);
            }
        }
    }
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

/// Whether the same may work later.
const fn is_temporary(error: &HubError) -> bool {
    matches!(error, HubError::Unreachable { .. } | HubError::Status { status: 408 | 425 | 429 | 500..=599, .. })
}

fn pause(attempts: u32, error: &HubError) -> Duration {
    let asked = match error {
        HubError::Status { after: Some(seconds), .. } => Duration::from_secs(*seconds),
        _ => Duration::from_millis(200) * 2_u32.pow(attempts),
    };
    asked.min(MAX_PAUSE)
}
