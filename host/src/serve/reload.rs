//! Pipelines loaded again, while they serve: when the operator says so, and where asked for, when
//! their files change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::listen::Event;
use super::repository::Entry;
use super::server::Server;

/// How often files are looked at. Looking works wherever files come from: volumes of the network, and
/// the links that a ConfigMap's update swaps, say nothing of their changes.
const LOOK: Duration = Duration::from_secs(1);

/// After a failure, what is missing may come without a change of what was read.
const AGAIN: Duration = Duration::from_secs(10);

/// Tells the thread that loads to load everything.
#[derive(Clone)]
pub(super) struct Reloader(Sender<()>);

impl Reloader {
    /// Starts the thread. It ends with the server.
    pub(super) fn start(server: &Arc<Server>, tell: Arc<dyn Fn(Event) + Send + Sync>) -> std::io::Result<Self> {
        let (ask, asked) = channel();
        let watch = server.settings().reload;
        let server = Arc::downgrade(server);
        std::thread::Builder::new()
            .name("gpux-reload".to_owned())
            .spawn(move || Watching { server, tell, seen: BTreeMap::new() }.run(&asked, watch))?;
        Ok(Self(ask))
    }

    /// Loads every pipeline again, whether its files have changed or not.
    pub(super) fn all(&self) {
        // Where the thread has ended, the server has.
        let _ = self.0.send(());
    }
}

/// What tells one version of a file from another; `None` where there is none.
type Mark = Option<(SystemTime, u64, u64)>;

/// The files of a pipeline, as they were.
type Marks = Vec<(PathBuf, Mark)>;

/// What is known of the files of a pipeline.
struct Seen {
    /// those of what was loaded, or failed to
    loaded: Marks,
    /// those of the last look, where they differ from that
    changed: Option<Marks>,
    /// when to try again what failed
    again: Option<Instant>,
}

struct Watching {
    server: Weak<Server>,
    tell: Arc<dyn Fn(Event) + Send + Sync>,
    seen: BTreeMap<String, Seen>,
}

impl Watching {
    fn run(mut self, asked: &Receiver<()>, watch: bool) {
        if let Some(server) = self.server.upgrade() {
            for entry in server.repository().entries() {
                self.is_due(&entry);
            }
        }
        loop {
            let all = match if watch { asked.recv_timeout(LOOK) } else { asked.recv().map_err(Into::into) } {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(server) = self.server.upgrade() else { return };
            for entry in server.repository().entries() {
                if all || (watch && self.is_due(&entry)) {
                    self.load(&server, &entry);
                }
            }
        }
    }

    /// Whether the files of the pipeline have changed, and stayed so for one look: who copies a large
    /// file is not interrupted.
    fn is_due(&mut self, entry: &Entry) -> bool {
        let Some(served) = entry.served() else { return false };
        let files = served.pipeline().files();
        let now = marks(files);
        let Some(seen) = self.seen.get_mut(entry.name()) else {
            // What was changed while it was loaded, or since, is no version that is known.
            let known = |(path, mark): (PathBuf, Mark)| (path, mark.filter(|(time, ..)| *time <= served.opened()));
            let loaded = now.into_iter().map(known).collect();
            self.seen.insert(entry.name().to_owned(), Seen { loaded, changed: None, again: None });
            return false;
        };
        if now == seen.loaded {
            seen.changed = None;
            return seen.again.is_some_and(|again| again <= Instant::now());
        }
        let settled = seen.changed.as_ref() == Some(&now);
        seen.changed = Some(now);
        settled
    }

    fn load(&mut self, server: &Server, entry: &Entry) {
        let name = entry.name();
        // What changes while it is loaded differs from this at the next look.
        let before = entry.served().map(|served| marks(served.pipeline().files()));
        let result = server.repository().load(name);
        let failed = result.is_err();
        // Other files may be named now; as they are, they are what was loaded.
        let files = entry.served().map(|served| served.pipeline().files().to_vec()).unwrap_or_default();
        let known: BTreeMap<_, _> = before.into_iter().flatten().collect();
        let loaded = files.into_iter().map(|path| {
            let mark = known.get(&path).copied().unwrap_or_else(|| mark(&path));
            (path, mark)
        });
        let again = failed.then(|| Instant::now() + AGAIN);
        self.seen.insert(name.to_owned(), Seen { loaded: loaded.collect(), changed: None, again });
        (self.tell)(match result {
            Ok(()) => Event::Reloaded(name.to_owned()),
            Err(error) => {
                let reason = entry.failure().unwrap_or_else(|| error.to_string());
                Event::NotReloaded { name: name.to_owned(), reason }
            }
        });
    }
}

fn marks(files: &[PathBuf]) -> Marks {
    files.iter().map(|path| (path.clone(), mark(path))).collect()
}

/// Links are followed: a new target is a new file.
fn mark(path: &Path) -> Mark {
    let metadata = path.metadata().ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Some((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), inode))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn another_file_has_another_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        assert_eq!(mark(&path), None);
        std::fs::write(&path, "one").unwrap();
        let first = mark(&path);
        assert_eq!(first, mark(&path));
        std::fs::write(&path, "three").unwrap();
        assert_ne!(first, mark(&path));
        #[cfg(unix)]
        {
            // As a ConfigMap changes: what a link points to is swapped for another of the same size.
            for name in ["a", "b"] {
                std::fs::create_dir(folder.path().join(name)).unwrap();
                std::fs::write(folder.path().join(name).join("gpux.yml"), "name: x").unwrap();
            }
            let link = folder.path().join("data");
            std::os::unix::fs::symlink("a", &link).unwrap();
            let through = link.join("gpux.yml");
            let first = mark(&through);
            std::fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink("b", &link).unwrap();
            assert_ne!(first, mark(&through));
        }
    }
}
