#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use futures_util::FutureExt as _;

use super::*;
use crate::Server;

/// Writes a pipeline with this name and these steps.
fn write(file: &Path, name: &str, steps: &str) {
    let text =
        format!("name: {name}\nversion: 1.0.0\ninputs:\n  x: {{ type: float32, shape: [2] }}\npipeline: [{steps}]\n");
    std::fs::write(file, text).unwrap();
}

/// A server with the pipelines `one` and `two`, in `one.yml` and `two.yml`.
fn server(folder: &Path) -> Server {
    let sources = ["one", "two"].map(|name| {
        let file = folder.join(format!("{name}.yml"));
        write(&file, name, "softmax");
        PipelineSource(file.display().to_string())
    });
    let server = Server::new(Settings::default(), LoadOptions::default());
    server.add(&sources).unwrap();
    server
}

fn slot(server: &Server, name: &str) -> Arc<PipelineSlot> {
    server.repository().slot(name).unwrap()
}

#[tokio::test]
async fn unload_waits_for_load() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let repository = server.repository();
    let loading = repository.lock_update("one").await.unwrap();
    let mut unloading = Box::pin(async { repository.lock_update("one").await.unwrap().unload() });
    assert!(unloading.as_mut().now_or_never().is_none(), "the turn is another's");
    repository.load(&loading).unwrap();
    assert_eq!(slot(&server, "one").state(), PipelineState::Ready);
    drop(loading);
    unloading.await;
    assert_eq!(slot(&server, "one").state(), PipelineState::Unloaded);
    assert!(repository.get("one").err().unwrap().to_string().contains("was unloaded"));
    repository.get("two").unwrap();
}

#[tokio::test]
async fn failed_load_leaves_pipeline_unloaded() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let repository = server.repository();
    repository.lock_update("one").await.unwrap().unload();
    for (name, steps, why) in [("one", "no-such-step", "no-such-step"), ("other", "softmax", "now called `other`")] {
        write(&folder.path().join("one.yml"), name, steps);
        let update = repository.lock_update("one").await.unwrap();
        repository.load(&update).unwrap_err();
        drop(update);
        let slot = slot(&server, "one");
        assert_eq!((slot.state(), slot.loaded().is_none(), server.is_ready()), (PipelineState::Unloaded, true, true));
        assert!(slot.failure().unwrap().contains(why));
    }
    write(&folder.path().join("one.yml"), "one", "softmax");
    repository.load(&repository.lock_update("one").await.unwrap()).unwrap();
    let slot = slot(&server, "one");
    assert_eq!((slot.state(), slot.failure()), (PipelineState::Ready, None));
}

#[tokio::test]
async fn aborted_update_clears_loading() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let update = server.repository().lock_update("one").await.unwrap();
    update.unload();
    update.set_loading();
    assert_eq!(slot(&server, "one").state(), PipelineState::Loading);
    drop(update);
    assert_eq!(slot(&server, "one").state(), PipelineState::Unloaded);
}

#[test]
fn reload_skips_unloaded_pipelines() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let one = slot(&server, "one");
    one.clone().blocking_lock_update().unload();
    write(&folder.path().join("one.yml"), "one", "no-such-step");
    assert!(server.repository().reload(&one).is_none());
    assert_eq!((one.state(), one.failure(), server.is_ready()), (PipelineState::Unloaded, None, true));
    server.repository().reload(&slot(&server, "two")).unwrap().unwrap();
}

#[test]
fn is_ready_with_one_failed_pipeline_unless_all_must_load() {
    let folder = tempfile::tempdir().unwrap();
    for (start, ready) in [(StartPolicy::Any, true), (StartPolicy::Restart, true), (StartPolicy::All, false)] {
        let sources = [("good", "softmax"), ("bad", "no-such-step")].map(|(name, step)| {
            let file = folder.path().join(format!("{name}.yml"));
            write(&file, name, step);
            PipelineSource(file.display().to_string())
        });
        let server = Server::new(Settings { start, ..Settings::default() }, LoadOptions::default());
        let slots = server.repository().register(&sources);
        for slot in &slots {
            drop(server.repository().attempt(slot));
        }
        assert_eq!(slots.iter().map(|slot| slot.loaded().is_some()).collect::<Vec<_>>(), [true, false]);
        assert_eq!(server.is_ready(), ready, "{start:?}");
    }
}
