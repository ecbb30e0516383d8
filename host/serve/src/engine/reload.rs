//! Reloads pipelines while they serve: on SIGHUP, and with `--reload` when their files change.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::loaded_pipeline::LoadedPipeline;
use super::pipeline_slot::PipelineSlot;
use super::server::Server;
use gpux::{FileVersion, FileVersions};
use gpux_core::threads;

/// Poll interval of files. Polling works everywhere: network volumes, and the symlinks that a ConfigMap update swaps,
/// send no notifications.
const LOOK: Duration = Duration::from_secs(1);

/// Retry interval after a failure: a missing file may appear without a change of the files that were read.
const AGAIN: Duration = Duration::from_secs(10);

/// Asks the reload thread to reload everything. Requests before the thread starts are queued: a file may have changed
/// after it was first read.
#[derive(Clone)]
pub(crate) struct Reloader(Sender<()>);

/// Receives the name of each reloaded pipeline, and the error if its reload failed.
pub(crate) type Notify = Arc<dyn Fn(&str, Result<(), String>) + Send + Sync>;

/// The receiving end of reload requests.
pub(crate) struct ReloadRequests(Receiver<()>);

impl Reloader {
    pub(crate) fn new() -> (Self, ReloadRequests) {
        let (ask, requests) = channel();
        (Self(ask), ReloadRequests(requests))
    }

    /// Reloads every pipeline that is in service, even if its files are unchanged.
    pub(crate) fn all(&self) {
        // If the thread could not start, the server does not start, either.
        let _ = self.0.send(());
    }
}

impl ReloadRequests {
    /// Starts the thread. It ends when every [`Reloader`] is dropped.
    pub(crate) fn start(self, server: &Arc<Server>, notify: Notify) -> std::io::Result<()> {
        let watch = server.settings().reload;
        let watcher = ReloadWatcher { server: server.clone(), notify, seen: BTreeMap::new() };
        threads::spawn("gpux-reload", move || watcher.run(&self, watch))
    }

    /// Waits for a request (`true`) or, with `watch`, for the next poll (`false`); `None` once every [`Reloader`] is
    /// dropped.
    fn next(&self, watch: bool) -> Option<bool> {
        match if watch { self.0.recv_timeout(LOOK) } else { self.0.recv().map_err(Into::into) } {
            // Requests queued since then mean the same reload.
            Ok(()) => {
                self.0.try_iter().for_each(drop);
                Some(true)
            }
            Err(RecvTimeoutError::Timeout) => Some(false),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

/// Observed files of one loaded pipeline.
struct WatchedFiles {
    of: Weak<LoadedPipeline>,
    /// the files at the last poll, if they differ from the loaded ones
    changed: Option<FileVersions>,
    failed: Option<FailedLoad>,
}

/// Files that could not be loaded.
struct FailedLoad {
    marks: FileVersions,
    /// the time of the next attempt
    again: Instant,
}

impl WatchedFiles {
    fn new(loaded: &Arc<LoadedPipeline>) -> Self {
        Self { of: Arc::downgrade(loaded), changed: None, failed: None }
    }

    fn is_of(&self, loaded: &Arc<LoadedPipeline>) -> bool {
        std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(loaded))
    }
}

/// The current versions of these files.
fn current_versions(files: &FileVersions) -> FileVersions {
    files.keys().map(|path| (path.clone(), FileVersion::of(path))).collect()
}

struct ReloadWatcher {
    server: Arc<Server>,
    notify: Notify,
    seen: BTreeMap<String, WatchedFiles>,
}

impl ReloadWatcher {
    fn run(mut self, requests: &ReloadRequests, watch: bool) {
        while let Some(all) = requests.next(watch) {
            for slot in self.server.repository().slots() {
                if all || (watch && self.is_due(&slot)) {
                    self.load(&slot);
                }
            }
        }
    }

    /// Whether the files of the pipeline have changed and then stayed the same for one poll: a large file may still be
    /// being copied.
    fn is_due(&mut self, slot: &PipelineSlot) -> bool {
        let Some(loaded) = slot.loaded() else { return false };
        let seen = self.seen.entry(slot.name().to_owned()).or_insert_with(|| WatchedFiles::new(&loaded));
        if !seen.is_of(&loaded) {
            // A client may have reloaded it since.
            *seen = WatchedFiles::new(&loaded);
        }
        let now = current_versions(&loaded.info().files);
        if now == *seen.failed.as_ref().map_or(&loaded.info().files, |failed| &failed.marks) {
            seen.changed = None;
            return seen.failed.as_ref().is_some_and(|failed| failed.again <= Instant::now());
        }
        let settled = seen.changed.as_ref() == Some(&now);
        seen.changed = Some(now);
        settled
    }

    fn load(&mut self, slot: &Arc<PipelineSlot>) {
        let name = slot.name();
        let before = slot.loaded().map(|loaded| (WatchedFiles::new(&loaded), current_versions(&loaded.info().files)));
        let Some(result) = self.server.repository().reload(slot) else { return };
        if let (Err(_), Some((seen, marks))) = (&result, before) {
            // Keep watching the files of the version that still serves.
            let failed = Some(FailedLoad { marks, again: Instant::now() + AGAIN });
            self.seen.insert(name.to_owned(), WatchedFiles { failed, ..seen });
        }
        // With its location: this is for the log.
        let result = result.map_err(|error| slot.failure().unwrap_or_else(|| error.to_string()));
        (self.notify)(name, result);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{PipelineSource, Settings};
    use gpux::LoadOptions;

    #[test]
    fn reloads_changed_files_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.yml");
        let write = |steps: &str| {
            let inputs = "inputs:\n  x: { type: float32, shape: [2] }";
            std::fs::write(&file, format!("name: one\nversion: 1.0.0\n{inputs}\npipeline: [{steps}]\n")).unwrap();
        };
        write("softmax");
        let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
        server.add(&[PipelineSource(file.display().to_string())]).unwrap();
        let slot = server.repository().slots().remove(0);
        let public = Arc::new(std::sync::Mutex::new(0));
        let heard = public.clone();
        let notify = Arc::new(move |_: &str, _| *heard.lock().unwrap() += 1);
        let mut watcher = ReloadWatcher { server: server.clone(), notify, seen: BTreeMap::new() };
        // File times must precede the start of the load.
        let settle = || std::thread::sleep(Duration::from_millis(20));
        let look = |watcher: &mut ReloadWatcher| watcher.is_due(&slot);
        settle();
        server.repository().reload(&slot).unwrap().unwrap();
        assert!(!look(&mut watcher) && !look(&mut watcher));
        write("softmax, sigmoid");
        settle();
        assert!(!look(&mut watcher), "it may still be written");
        assert!(look(&mut watcher));
        // A client reloads it first.
        server.repository().reload(&slot).unwrap().unwrap();
        assert!(!look(&mut watcher) && !look(&mut watcher));
        // A broken file is tried once, and again after the retry interval.
        write("no-such-step");
        assert!(!look(&mut watcher) && look(&mut watcher));
        watcher.load(&slot);
        assert!(!look(&mut watcher) && !look(&mut watcher));
        watcher.seen.get_mut("one").unwrap().failed.as_mut().unwrap().again = Instant::now();
        assert!(look(&mut watcher));
        // A client reloads the repaired file.
        write("softmax");
        settle();
        server.repository().reload(&slot).unwrap().unwrap();
        assert!(!look(&mut watcher) && !look(&mut watcher));
        assert_eq!(*public.lock().unwrap(), 1);
    }

    #[test]
    fn coalesces_reload_requests() {
        let (reloader, requests) = Reloader::new();
        reloader.all();
        reloader.all();
        assert_eq!(requests.next(true), Some(true));
        reloader.all();
        drop(reloader);
        assert_eq!((requests.next(false), requests.next(false)), (Some(true), None));
    }
}
