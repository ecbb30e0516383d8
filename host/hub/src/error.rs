//! Why nothing was fetched, or kept.

use std::path::PathBuf;

use gpux_core::Size;
use gpux_core::sanitize::sanitize_for_terminal as clean;

use crate::lock::LockError;
use gpux_store::{FileDigest, StoreError};

/// Why a repository, or a file of it, cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// `HF_ENDPOINT` is no address
    #[error("HF_ENDPOINT is `{}`: write the hub's address, such as https://huggingface.co", clean(.0))]
    Endpoint(String),
    /// the token cannot be sent
    #[error(
        "the hub's token has white space or characters that are not ASCII: look at HF_TOKEN, or at the token's file"
    )]
    Token,
    /// the certificates of this machine
    #[error("cannot ask `{endpoint}` by TLS: {reason}")]
    Certificates {
        /// the hub
        endpoint: String,
        /// what is wrong
        reason: String,
    },
    /// `HF_HUB_OFFLINE`
    #[error(
        "`{id}` at `{revision}` is not in the hub's cache on this machine, and HF_HUB_OFFLINE forbids to fetch it; \
         looked for {looked}"
    )]
    Offline {
        /// the repository
        id: String,
        /// the revision
        revision: String,
        /// the folders
        looked: String,
    },
    /// a file that the cache lacks
    #[error("`{file}` is not in the hub's cache on this machine, and HF_HUB_OFFLINE forbids to fetch it")]
    OfflineFile {
        /// the file
        file: String,
    },
    /// no answer
    #[error(
        "cannot reach `{host}`: {reason}; HF_ENDPOINT names another hub, and HF_HUB_OFFLINE=1 uses what is in its cache"
    )]
    Unreachable {
        /// the host
        host: String,
        /// what happened
        reason: String,
    },
    /// no such repository, or none for this user
    #[error(
        "the hub has no model `{id}`{}",
        if *with_token { ", or the token may not see it" } else { ", or it is private: set HF_TOKEN" }
    )]
    NoRepository {
        /// the repository
        id: String,
        /// whether a token was sent
        with_token: bool,
    },
    /// no such revision
    #[error("`{id}` has no revision `{revision}`")]
    NoRevision {
        /// the repository
        id: String,
        /// the revision
        revision: String,
    },
    /// no such file
    #[error("`{id}` has no file `{file}`")]
    NoFile {
        /// the repository
        id: String,
        /// the file
        file: String,
    },
    /// its terms are not accepted
    #[error(
        "`{id}` is gated: accept its terms at {endpoint}/{id}{}",
        if *with_token { " with the account of the token" } else { ", then set HF_TOKEN" }
    )]
    Gated {
        /// the repository
        id: String,
        /// the hub
        endpoint: String,
        /// whether a token was sent
        with_token: bool,
    },
    /// the hub has disabled it
    #[error("the hub has disabled `{0}`")]
    Disabled(String),
    /// the token is refused
    #[error("the hub refuses the token (401): set HF_TOKEN to a valid one, or to none")]
    Unauthorized,
    /// it has another name now
    #[error("`{id}` is now `{to}`: if that is who you mean, write `hf:{to}`, or pull it with --follow-rename")]
    Renamed {
        /// the old name
        id: String,
        /// the new name
        to: String,
    },
    /// an answer that is none
    #[error("the hub's answer about `{about}` is not usable: {reason}")]
    Answer {
        /// what was asked for
        about: String,
        /// what is wrong
        reason: String,
    },
    /// a status that no other case has
    #[error("`{host}` answers `{about}` with {status}{}", after.map(|seconds| format!("; try again in {seconds} s")).unwrap_or_default())]
    Status {
        /// what was asked for
        about: String,
        /// the host
        host: String,
        /// the status
        status: u16,
        /// `Retry-After`
        after: Option<u64>,
    },
    /// a redirect that is not followed
    #[error("`{about}` is redirected {why}")]
    Redirect {
        /// what was asked for
        about: String,
        /// where to
        why: String,
    },
    /// a name that leads out of the folder
    #[error("the repository names a file `{}`, which would lead out of its folder: nothing is fetched", clean(.0))]
    FileName(String),
    /// two files for one path
    #[error("the repository names the file `{}` twice: nothing is fetched", clean(.0))]
    SameName(String),
    /// a file that is too large
    #[error("`{file}` has {}, more than the {} of `--max-size` that are left", Size(*size), Size(*limit))]
    TooLarge {
        /// the file
        file: String,
        /// its size
        size: u64,
        /// what may be fetched
        limit: u64,
    },
    /// a body that goes on
    #[error("`{file}` is longer than the {size} bytes that the hub announced: it is not kept")]
    TooLong {
        /// the file
        file: String,
        /// the announced size
        size: u64,
    },
    /// a connection that ends, again and again
    #[error(
        "the connection for `{file}` ended at {done} of {size} bytes: {reason}; the same command goes on from there"
    )]
    Cut {
        /// the file
        file: String,
        /// what is there
        done: u64,
        /// its size
        size: u64,
        /// the last reason
        reason: String,
    },
    /// what came is another file
    #[error("`{file}` is not what the hub announced ({expected}, but it came with {given}): it is not kept")]
    Digest {
        /// the file
        file: String,
        /// what it should be
        expected: FileDigest,
        /// what it is
        given: FileDigest,
    },
    /// a commit that a lock names
    #[error(
        "`{id}` no longer has the commit {commit}, which gpux.lock names; `gpux pull hf:{id} --force` takes what it has \
         now"
    )]
    LockedCommit {
        /// the repository
        id: String,
        /// the commit
        commit: String,
    },
    /// a file that the lock describes as another
    #[error(
        "`{}` has another digest or size for `{}` than `{id}` has at that commit: somebody has edited it, so restore it, \
         or pull the model by its name with --force", lock.display(), clean(file)
    )]
    LockedFile {
        /// the file
        file: String,
        /// the lock
        lock: PathBuf,
        /// the repository
        id: String,
    },
    /// the lock would have to change
    #[error("`{from}` is now `{to}`, so gpux.lock would change, which --locked forbids")]
    Locked {
        /// what the lock says
        from: String,
        /// what it would say
        to: String,
    },
    /// a lock
    #[error(transparent)]
    Lock(#[from] LockError),
    /// a path of a folder that leads elsewhere
    #[error("`{}` is no folder but a link or a file, so nothing is written into it", .0.display())]
    NoFolder(PathBuf),
    /// a file of the pipeline's folder cannot be written
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// the file
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// the folder of an export cannot be read
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// the file or folder
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// the store
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl HubError {
    /// Whether the machine or the network is at fault, rather than what was asked for.
    pub const fn is_environment(&self) -> bool {
        matches!(
            self,
            Self::Endpoint(_)
                | Self::Token
                | Self::Certificates { .. }
                | Self::Offline { .. }
                | Self::OfflineFile { .. }
                | Self::Unreachable { .. }
                | Self::Unauthorized
                | Self::Gated { .. }
        )
    }
}

impl HubError {
    /// Whether another name, revision or limit is to be given.
    pub const fn is_about_name(&self) -> bool {
        matches!(
            self,
            Self::NoRepository { .. }
                | Self::NoRevision { .. }
                | Self::NoFile { .. }
                | Self::Renamed { .. }
                | Self::Disabled(_)
                | Self::TooLarge { .. }
                | Self::Read { .. }
                | Self::Lock(_)
                | Self::LockedCommit { .. }
                | Self::LockedFile { .. }
                | Self::Locked { .. }
                | Self::NoFolder(_)
        )
    }
}
