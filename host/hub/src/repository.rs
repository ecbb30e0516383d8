//! The files of a model: of the hub, or of a folder that is laid out like there.

use std::path::{Path, PathBuf};

use crate::error::HubError;
use crate::hub_repository::HubRepository;
use crate::lock::LockedSource;
use crate::reference::HubReference;
use crate::settings::HubSettings;
use crate::transfer::{RepositoryFacts, TransferProgress};
use gpux_store::Store;

/// The most files of a folder that are looked at.
const MAX_FILES: usize = 10_000;
/// How deep folders are looked into.
const MAX_DEPTH: usize = 4;

/// The files of a model.
#[derive(Debug)]
pub struct Repository {
    source: Source,
    names: Vec<String>,
    facts: RepositoryFacts,
}

#[derive(Debug)]
enum Source {
    Folder(PathBuf),
    Hub(Box<HubRepository>),
}

impl Repository {
    /// A folder that is laid out as a repository of the hub, such as what Optimum writes.
    pub fn folder(path: &Path) -> Result<Self, HubError> {
        let mut names = Vec::new();
        list(path, "", MAX_DEPTH, &mut names).map_err(|source| HubError::Read { path: path.to_owned(), source })?;
        names.sort();
        let facts = RepositoryFacts { name: path.display().to_string(), ..RepositoryFacts::default() };
        Ok(Self { source: Source::Folder(path.to_owned()), names, facts })
    }

    /// A revision of a repository of the hub, whose files are kept in `store` as they are fetched, at most `max_size`
    /// bytes of them.
    pub fn hub(
        reference: &HubReference,
        settings: &HubSettings,
        store: Store,
        max_size: u64,
    ) -> Result<Self, HubError> {
        let hub = HubRepository::open(reference, settings, store, max_size)?;
        let (names, facts) = (hub.names(), hub.facts());
        Ok(Self { source: Source::Hub(Box::new(hub)), names, facts })
    }

    /// The paths of all files, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether there is such a file.
    pub fn has(&self, name: &str) -> bool {
        self.names.binary_search_by(|other| other.as_str().cmp(name)).is_ok()
    }

    /// What else is known.
    pub const fn facts(&self) -> &RepositoryFacts {
        &self.facts
    }

    /// Fetches files, several at a time, so that [`fetch`](Self::fetch) has them at once. Those that the repository does
    /// not have are left out.
    pub fn prefetch(&mut self, names: &[&str], progress: &dyn TransferProgress) -> Result<(), HubError> {
        let there: Vec<_> = names.iter().copied().filter(|name| self.has(name)).collect();
        match &mut self.source {
            Source::Folder(_) => Ok(()),
            Source::Hub(hub) => hub.prefetch(&there, progress),
        }
    }

    /// The path of a file on this machine, fetched if it is not there.
    pub fn fetch(&mut self, name: &str, progress: &dyn TransferProgress) -> Result<PathBuf, HubError> {
        match &mut self.source {
            Source::Folder(folder) => Ok(folder.join(name)),
            Source::Hub(hub) => hub.fetch(name, progress),
        }
    }

    /// Notes where a file that was fetched lies in the pipeline's folder.
    pub fn set_target(&mut self, name: &str, target: &str) {
        if let Source::Hub(hub) = &mut self.source {
            hub.set_target(name, target);
        }
    }

    /// The repository by its present name, and the named revision; `None` for a folder.
    pub fn reference(&self) -> Option<&HubReference> {
        match &self.source {
            Source::Folder(_) => None,
            Source::Hub(hub) => Some(hub.reference()),
        }
    }

    /// What gpux.lock says about the files that were fetched; `None` for a folder.
    pub fn locked(&self) -> Option<LockedSource> {
        match &self.source {
            Source::Folder(_) => None,
            Source::Hub(hub) => Some(hub.locked()),
        }
    }

    /// The store that the files are kept in; `None` for a folder.
    pub fn store(&self) -> Option<&Store> {
        match &self.source {
            Source::Folder(_) => None,
            Source::Hub(hub) => Some(hub.store()),
        }
    }
}

fn list(folder: &Path, before: &str, depth: usize, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, name) = (entry.path(), format!("{before}{name}"));
        // Links are followed: the hub's own cache has nothing else.
        if path.is_file() && names.len() < MAX_FILES {
            names.push(name);
        } else if path.is_dir() && depth > 0 && !name.starts_with('.') {
            list(&path, &format!("{name}/"), depth - 1, names)?;
        }
    }
    Ok(())
}
