//! Pipelines loaded again, while they serve: when the operator says so, and where asked for, when
//! their files change.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::loaded_pipeline::Served;
use super::pipeline_slot::Entry;
use super::server::Server;
use gpux::{Mark, Marks};
use gpux_core::threads;

/// How often files are looked at. Looking works wherever files come from: volumes of the network, and
/// the links that a ConfigMap's update swaps, say nothing of their changes.
const LOOK: Duration = Duration::from_secs(1);

/// After a failure, what is missing may come without a change of what was read.
const AGAIN: Duration = Duration::from_secs(10);

/// Tells the thread that loads to load everything. What is told before there is that thread it finds
/// when it starts: a file may have changed after it was read for the first time.
#[derive(Clone)]
pub(crate) struct Reloader(Sender<()>);

/// Hears the name of each pipeline that was loaded again, and why that failed if it did.
pub(crate) type Notify = Arc<dyn Fn(&str, Result<(), String>) + Send + Sync>;

/// What the thread is told.
pub(crate) struct Asked(Receiver<()>);

impl Reloader {
    pub(crate) fn new() -> (Self, Asked) {
        let (ask, asked) = channel();
        (Self(ask), Asked(asked))
    }

    /// Loads every pipeline again that is in service, whether its files have changed or not.
    pub(crate) fn all(&self) {
        // Where the thread could not start, the server does not, either.
        let _ = self.0.send(());
    }
}

impl Asked {
    /// Starts the thread. It ends when nobody can ask any more.
    pub(crate) fn start(self, server: &Arc<Server>, notify: Notify) -> std::io::Result<()> {
        let watch = server.settings().reload;
        let watching = Watching { server: server.clone(), notify, seen: BTreeMap::new() };
        threads::spawn("gpux-reload", move || watching.run(&self, watch))
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

/// What was seen of the files of a pipeline, as long as no other has taken its place.
struct Seen {
    of: Weak<Served>,
    /// those of the last look, where they differ from those that were read
    changed: Option<Marks>,
    failed: Option<Failed>,
}

/// Files that could not be loaded.
struct Failed {
    marks: Marks,
    /// when to try them again
    again: Instant,
}

impl Seen {
    fn new(served: &Arc<Served>) -> Self {
        Self { of: Arc::downgrade(served), changed: None, failed: None }
    }

    fn is_of(&self, served: &Arc<Served>) -> bool {
        std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(served))
    }
}

/// The files, as they are.
fn now(files: &Marks) -> Marks {
    files.keys().map(|path| (path.clone(), Mark::of(path))).collect()
}

struct Watching {
    server: Arc<Server>,
    notify: Notify,
    seen: BTreeMap<String, Seen>,
}

impl Watching {
    fn run(mut self, asked: &Asked, watch: bool) {
        while let Some(all) = asked.next(watch) {
            for entry in self.server.repository().entries() {
                if all || (watch && self.is_due(&entry)) {
                    self.load(&entry);
                }
            }
        }
    }

    /// Whether the files of the pipeline have changed, and stayed so for one look: who copies a large
    /// file is not interrupted.
    fn is_due(&mut self, entry: &Entry) -> bool {
        let Some(served) = entry.served() else { return false };
        let seen = self.seen.entry(entry.name().to_owned()).or_insert_with(|| Seen::new(&served));
        if !seen.is_of(&served) {
            // A client may have had it loaded since.
            *seen = Seen::new(&served);
        }
        let now = now(served.pipeline().files());
        if now == *seen.failed.as_ref().map_or(served.pipeline().files(), |failed| &failed.marks) {
            seen.changed = None;
            return seen.failed.as_ref().is_some_and(|failed| failed.again <= Instant::now());
        }
        let settled = seen.changed.as_ref() == Some(&now);
        seen.changed = Some(now);
        settled
    }

    fn load(&mut self, entry: &Arc<Entry>) {
        let name = entry.name();
        let before = entry.served().map(|served| (Seen::new(&served), now(served.pipeline().files())));
        let Some(result) = self.server.repository().reload(entry) else { return };
        if let (Err(_), Some((seen, marks))) = (&result, before) {
            // Those are watched that the one which answers was made from.
            let failed = Some(Failed { marks, again: Instant::now() + AGAIN });
            self.seen.insert(name.to_owned(), Seen { failed, ..seen });
        }
        // With its place: this is for the log.
        let result = result.map_err(|error| entry.failure().unwrap_or_else(|| error.to_string()));
        (self.notify)(name, result);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{Settings, Source};
    use gpux::LoadOptions;

    #[test]
    fn what_changed_is_loaded_once_whoever_loads_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.yml");
        let write = |steps: &str| {
            let inputs = "inputs:\n  x: { type: float32, shape: [2] }";
            std::fs::write(&file, format!("name: one\nversion: 1.0.0\n{inputs}\npipeline: [{steps}]\n")).unwrap();
        };
        write("softmax");
        let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
        server.add(&[Source(file.display().to_string())]).unwrap();
        let entry = server.repository().entries().remove(0);
        let told = Arc::new(std::sync::Mutex::new(0));
        let heard = told.clone();
        let notify = Arc::new(move |_: &str, _| *heard.lock().unwrap() += 1);
        let mut watching = Watching { server: server.clone(), notify, seen: BTreeMap::new() };
        // What was read must not be younger than when its reading began.
        let settle = || std::thread::sleep(Duration::from_millis(20));
        let look = |watching: &mut Watching| watching.is_due(&entry);
        settle();
        server.repository().reload(&entry).unwrap().unwrap();
        assert!(!look(&mut watching) && !look(&mut watching));
        write("softmax, sigmoid");
        settle();
        assert!(!look(&mut watching), "it may still be written");
        assert!(look(&mut watching));
        // A client asks for it first.
        server.repository().reload(&entry).unwrap().unwrap();
        assert!(!look(&mut watching) && !look(&mut watching));
        // What is broken is tried once, then again when that may help.
        write("no-such-step");
        assert!(!look(&mut watching) && look(&mut watching));
        watching.load(&entry);
        assert!(!look(&mut watching) && !look(&mut watching));
        watching.seen.get_mut("one").unwrap().failed.as_mut().unwrap().again = Instant::now();
        assert!(look(&mut watching));
        // A client has it loaded, mended.
        write("softmax");
        settle();
        server.repository().reload(&entry).unwrap().unwrap();
        assert!(!look(&mut watching) && !look(&mut watching));
        assert_eq!(*told.lock().unwrap(), 1);
    }

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
