//! One file on its way into the store: resumed, asked for again, and checked against its digest.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpux_store::{FileDigest, Hasher, PartFile, Store, StoreError};

use crate::client::{FileBody, HubClient};
use crate::error::HubError;
use crate::remote_file::RemoteFile;
use crate::transfer::{FileProgress, TransferProgress};

/// How often a file is asked for again without getting on.
pub(crate) const MAX_ATTEMPTS: u32 = 5;
/// What a connection must bring to count as getting on, and within which time.
const MIN_PROGRESS: u64 = 64 << 10;
const PROGRESS_TIME: Duration = Duration::from_mins(1);
/// The longest wait before the next attempt.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// One file that is being fetched.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a HubClient,
    pub(crate) id: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) name: &'a str,
    pub(crate) file: &'a RemoteFile,
    pub(crate) store: &'a Store,
    /// set where another file has failed
    pub(crate) ended: &'a AtomicBool,
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
    pub(crate) fn run(&self, part: &mut PartFile, progress: &dyn TransferProgress) -> Result<String, HubError> {
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

    fn fetch(&self, part: &mut PartFile, progress: &dyn TransferProgress) -> Result<String, HubError> {
        let size = self.file.size;
        let (mut hasher, mut done) = self.resume(part)?;
        let progress = progress.begin(self.name, size, done);
        let mut attempts = 0;
        while done < size {
            if self.ended.load(Ordering::Relaxed) {
                return Err(self.cut(done, "another file has failed".to_owned()));
            }
            let before = done;
            let reason = match self.client.file(self.id, self.commit, self.name, done) {
                Ok(body) => {
                    if body.start != done {
                        self.truncate(part)?;
                        (hasher, done) = (Hasher::new(size), 0);
                    }
                    if body.start == done {
                        match self.receive(body, part, &mut hasher, &mut done, &*progress)? {
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
                return Err(self.cut(done, reason));
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

    fn cut(&self, done: u64, reason: String) -> HubError {
        HubError::Cut { file: self.name.to_owned(), done, size: self.file.size, reason }
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
        progress: &dyn FileProgress,
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
            if self.ended.load(Ordering::Relaxed) && *done < size {
                return Ok(DownloadEnd::Early("another file has failed".to_owned()));
            }
            if window.elapsed() >= PROGRESS_TIME {
                if *done < window_start + MIN_PROGRESS && *done < size {
                    return Ok(DownloadEnd::Early("it brought next to nothing for a minute".to_owned()));
                }
                (window, window_start) = (Instant::now(), *done);
            }
        }
    }
}

/// Whether what came is what was announced.
pub(crate) fn is_right(expected: &FileDigest, sha256: &str, git: &str) -> bool {
    match expected {
        FileDigest::Sha256(digits) => digits == sha256,
        FileDigest::GitBlob(digits) => digits == git,
    }
}

/// What a system that cannot write says about it.
pub(crate) fn write_error(store: &Store, name: &str, size: u64, done: u64, source: std::io::Error) -> HubError {
    let (root, file) = (store.root().to_owned(), name.to_owned());
    HubError::Store(match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            StoreError::Full { file, root, done, size }
        }
        _ => StoreError::Io { action: "write into", path: root, source },
    })
}

/// Whether the same may work later.
pub(crate) const fn is_temporary(error: &HubError) -> bool {
    matches!(error, HubError::Unreachable { .. } | HubError::Status { status: 408 | 425 | 429 | 500..=599, .. })
}

pub(crate) fn pause(attempts: u32, error: &HubError) -> Duration {
    let asked = match error {
        HubError::Status { after: Some(seconds), .. } => Duration::from_secs(*seconds),
        _ => Duration::from_millis(200) * 2_u32.pow(attempts),
    };
    asked.min(MAX_PAUSE)
}
