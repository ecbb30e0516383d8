//! Pipelines loaded again, while they serve: when the operator says so, and where asked for, when
//! their files change.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::entry::Entry;
use super::listen::Event;
use super::marks::{Marks, marks};
use super::server::Server;

/// How often files are looked at. Looking works wherever files come from: volumes of the network, and
/// the links that a ConfigMap's update swaps, say nothing of their changes.
const LOOK: Duration = Duration::from_secs(1);

/// After a failure, what is missing may come without a change of what was read.
const AGAIN: Duration = Duration::from_secs(10);

/// Tells the thread that loads to load everything. What is told before there is that thread it finds
/// when it starts: a file may have changed after it was read for the first time.
#[derive(Clone)]
pub(super) struct Reloader(Sender<()>);

/// What the thread is told.
pub(super) struct Asked(Receiver<()>);

impl Reloader {
    pub(super) fn new() -> (Self, Asked) {
        let (ask, asked) = channel();
        (Self(ask), Asked(asked))
    }

    /// Loads every pipeline again that is in service, whether its files have changed or not.
    pub(super) fn all(&self) {
        // Where the thread has ended, the server has.
        let _ = self.0.send(());
    }
}

impl Asked {
    /// Starts the thread. It ends with the server.
    pub(super) fn start(self, server: &Arc<Server>, tell: Arc<dyn Fn(Event) + Send + Sync>) -> std::io::Result<()> {
        let watch = server.settings().reload;
        let server = Arc::downgrade(server);
        let watching = Watching { server, tell, seen: BTreeMap::new() };
        let thread = std::thread::Builder::new().name("gpux-reload".to_owned());
        thread.spawn(move || watching.run(&self, watch)).map(drop)
    }

    /// Waits: for somebody to ask, or, with `watch`, for the next look; `None` when nobody can ask any
    /// more.
    fn next(&self, watch: bool) -> Option<bool> {
        match if watch { self.0.recv_timeout(LOOK) } else { self.0.recv().map_err(Into::into) } {
            // Whoever asked since then means the same.
            Ok(()) => {
                self.0.try_iter().for_each(drop);
                Some(true)
            }
            Err(RecvTimeoutError::Timeout) => Some(false),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

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
    fn run(mut self, asked: &Asked, watch: bool) {
        while let Some(all) = asked.next(watch) {
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
        let first = || Seen { loaded: served.marks().clone(), changed: None, again: None };
        let seen = self.seen.entry(entry.name().to_owned()).or_insert_with(first);
        if now == seen.loaded {
            seen.changed = None;
            return seen.again.is_some_and(|again| again <= Instant::now());
        }
        let settled = seen.changed.as_ref() == Some(&now);
        seen.changed = Some(now);
        settled
    }

    fn load(&mut self, server: &Server, entry: &Arc<Entry>) {
        let name = entry.name();
        // After a failure, those are watched that the one before was made from.
        let before = entry.served().map(|served| marks(served.pipeline().files()));
        let Some(result) = server.repository().reload(entry) else { return };
        let failed = result.is_err();
        let read = entry.served().filter(|_| !failed).map(|served| served.marks().clone());
        let loaded = read.or(before).unwrap_or_default();
        let again = failed.then(|| Instant::now() + AGAIN);
        self.seen.insert(name.to_owned(), Seen { loaded, changed: None, again });
        (self.tell)(match result {
            Ok(()) => Event::Reloaded(name.to_owned()),
            Err(error) => {
                let reason = entry.failure().unwrap_or_else(|| error.to_string());
                Event::NotReloaded { name: name.to_owned(), reason }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_before_anybody_listened_is_heard_once() {
        let (reloader, asked) = Reloader::new();
        reloader.all();
        reloader.all();
        assert_eq!(asked.next(true), Some(true));
        reloader.all();
        drop(reloader);
        assert_eq!((asked.next(false), asked.next(false)), (Some(true), None));
    }
}
