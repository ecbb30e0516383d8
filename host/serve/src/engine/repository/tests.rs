#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use futures_util::FutureExt as _;

use super::*;
use crate::Server;

/// Writes a pipeline that is called so, and has these steps.
fn write(file: &Path, name: &str, steps: &str) {
    let text =
        format!("name: {name}\nversion: 1.0.0\ninputs:\n  x: {{ type: float32, shape: [2] }}\npipeline: [{steps}]\n");
    std::fs::write(file, text).unwrap();
}

/// A server of the pipelines `one` and `two`, from files of these names.
fn server(folder: &Path) -> Server {
    let sources = ["one", "two"].map(|name| {
        let file = folder.join(format!("{name}.yml"));
        write(&file, name, "softmax");
        Source(file.display().to_string())
    });
    let server = Server::new(Settings::default(), LoadOptions::default());
    server.add(&sources).unwrap();
    server
}

fn entry(server: &Server, name: &str) -> Arc<Entry> {
    server.repository().entry(name).unwrap()
}

#[tokio::test]
async fn who_unloads_what_is_being_loaded_finds_it_unloaded() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let repository = server.repository();
    let loading = repository.turn("one").await.unwrap();
    let mut unloading = Box::pin(async { repository.turn("one").await.unwrap().unload() });
    assert!(unloading.as_mut().now_or_never().is_none(), "the turn is another's");
    repository.load(&loading).unwrap();
    assert_eq!(entry(&server, "one").state(), State::Ready);
    drop(loading);
    unloading.await;
    assert_eq!(entry(&server, "one").state(), State::Unloaded);
    assert!(repository.get("one").err().unwrap().to_string().contains("was unloaded"));
    repository.get("two").unwrap();
}

#[tokio::test]
async fn what_was_unloaded_and_cannot_be_loaded_stays_unloaded() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let repository = server.repository();
    repository.turn("one").await.unwrap().unload();
    for (name, steps, why) in [("one", "no-such-step", "no-such-step"), ("other", "softmax", "now called `other`")] {
        write(&folder.path().join("one.yml"), name, steps);
        let change = repository.turn("one").await.unwrap();
        repository.load(&change).unwrap_err();
        drop(change);
        let entry = entry(&server, "one");
        assert_eq!((entry.state(), entry.served().is_none(), server.is_ready()), (State::Unloaded, true, true));
        assert!(entry.failure().unwrap().contains(why));
    }
    write(&folder.path().join("one.yml"), "one", "softmax");
    repository.load(&repository.turn("one").await.unwrap()).unwrap();
    let entry = entry(&server, "one");
    assert_eq!((entry.state(), entry.failure()), (State::Ready, None));
}

#[tokio::test]
async fn a_turn_that_breaks_off_leaves_nothing_loading() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let change = server.repository().turn("one").await.unwrap();
    change.unload();
    change.loading();
    assert_eq!(entry(&server, "one").state(), State::Loading);
    drop(change);
    assert_eq!(entry(&server, "one").state(), State::Unloaded);
}

#[test]
fn reloading_leaves_alone_what_was_unloaded() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let one = entry(&server, "one");
    one.clone().blocking_turn().unload();
    write(&folder.path().join("one.yml"), "one", "no-such-step");
    assert!(server.repository().reload(&one).is_none());
    assert_eq!((one.state(), one.failure(), server.is_ready()), (State::Unloaded, None, true));
    server.repository().reload(&entry(&server, "two")).unwrap().unwrap();
}
