//! Finds out that the files of pipelines have changed, or what their names mean in the store, for `--reload`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::loaded_pipeline::LoadedPipeline;
use super::pipeline_slot::PipelineSlot;
use super::server::Server;
use gpux::internal::Source;
use gpux_core::files::{FileVersion, FileVersions};

/// Poll interval of files. Polling works everywhere: network volumes, and the symlinks that a ConfigMap update swaps,
/// send no notifications.
const LOOK: Duration = Duration::from_secs(1);

/// Retry interval after a failure: a missing file may appear without a change of the files that were read.
const AGAIN: Duration = Duration::from_secs(10);

/// Calls `on_due` with the name of each pipeline whose files have changed, while the server is there and that returns
/// `true`.
pub(crate) fn watch(server: &Weak<Server>, on_due: impl Fn(&str) -> bool) {
    let mut seen = BTreeMap::<String, WatchedFiles>::new();
    while let Some(server) = server.upgrade() {
        for slot in server.repository().slots() {
            if seen.entry(slot.name().to_owned()).or_default().is_due(&slot) && !on_due(slot.name()) {
                return;
            }
        }
        drop(server);
        std::thread::sleep(LOOK);
    }
}

/// Observed files of one loaded pipeline.
#[derive(Default)]
struct WatchedFiles {
    of: Weak<LoadedPipeline>,
    /// what was there at the last poll, if it differs from what is loaded
    changed: Option<Version>,
    /// what was to be loaded, and when that is tried again if it cannot be
    tried: Option<(Version, Instant)>,
}

/// What a pipeline is loaded from.
#[derive(Clone, PartialEq, Eq)]
enum Version {
    Files(FileVersions),
    /// the digest that the name means in the store, whose files never change
    Stored(Option<String>),
}

impl Version {
    /// What the pipeline was loaded from.
    fn loaded(loaded: &LoadedPipeline) -> Self {
        let info = loaded.info();
        info.digest.clone().map_or_else(|| Self::Files(info.files.clone()), |digest| Self::Stored(Some(digest)))
    }

    /// What it would be loaded from now.
    fn now(slot: &PipelineSlot, loaded: &LoadedPipeline) -> Self {
        let info = loaded.info();
        if info.digest.is_some() {
            return Self::Stored(Source::current_digest(&slot.source().0));
        }
        Self::Files(info.files.keys().map(|path| (path.clone(), FileVersion::of(path))).collect())
    }
}

impl WatchedFiles {
    /// Whether the files of the pipeline have changed and then stayed the same for one poll: a large file may still be
    /// being copied.
    fn is_due(&mut self, slot: &PipelineSlot) -> bool {
        let Some(loaded) = slot.loaded() else { return false };
        if !std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(&loaded)) {
            *self = Self { of: Arc::downgrade(&loaded), ..Self::default() };
        }
        let now = Version::now(slot, &loaded);
        let before = self.tried.as_ref().map_or_else(|| Version::loaded(&loaded), |(tried, _)| tried.clone());
        let is_due = if now == before {
            self.changed = None;
            let may_retry = |(_, again): &(_, Instant)| *again <= Instant::now() && slot.failure().is_some();
            self.tried.as_ref().is_some_and(may_retry)
        } else {
            self.changed.replace(now.clone()) == Some(now.clone())
        };
        if is_due {
            self.tried = Some((now, Instant::now() + AGAIN));
        }
        is_due
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{PipelineSource, Settings};
    use gpux::LoadOptions;

    #[test]
    fn reports_changed_files_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.yml");
        let write = |steps: &str| {
            let inputs = "inputs:\n  x: { type: float32, shape: [2] }";
            std::fs::write(&file, format!("name: one\nversion: 1.0.0\n{inputs}\npipeline: [{steps}]\n")).unwrap();
        };
        write("softmax");
        let server = Server::new(Settings::default(), LoadOptions::default());
        server.add(&[PipelineSource(file.display().to_string())]).unwrap();
        let slot = server.repository().slots().remove(0);
        let reload = || server.repository().reload(&slot).unwrap();
        let mut watched = WatchedFiles::default();
        let mut look = |is_due: bool| assert_eq!(watched.is_due(&slot), is_due);
        // File times must precede the start of the load.
        let settle = || std::thread::sleep(Duration::from_millis(20));
        settle();
        reload().unwrap();
        look(false);
        look(false);
        write("softmax, sigmoid");
        settle();
        // It may still be written.
        look(false);
        look(true);
        look(false);
        reload().unwrap();
        look(false);
        look(false);
        // A broken file is tried once, and again after the retry interval.
        write("no-such-step");
        look(false);
        look(true);
        reload().unwrap_err();
        look(false);
        look(false);
        watched.tried.as_mut().unwrap().1 = Instant::now();
        assert!(watched.is_due(&slot) && !watched.is_due(&slot));
        // A client reloads the repaired file.
        write("softmax");
        settle();
        reload().unwrap();
        assert!(!watched.is_due(&slot) && !watched.is_due(&slot));
    }
}
