use std::path::Path;
use std::sync::mpsc::Receiver;

use super::*;
use crate::{IsolationPolicy, MemoryLimits, MemoryWatch, PipelineState, Settings, WorkerCommand, WorkerOptions};
use gpux::{LoadOptions, Pipeline};
use serde_json::json;

/// Longer than anything here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A worker that does as a file in its pipeline's folder says: `hangs`, `dies`, or `ready.json`, which it tells.
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/loader/worker.sh");

/// A loader of isolated pipelines with these folders and the names in their files.
struct Fixture {
    folder: tempfile::TempDir,
    server: Arc<Server>,
    events: Receiver<LoadEvent>,
    failure: Receiver<String>,
    reloader: Reloader,
}

fn write(folder: &Path, name: &str) {
    let inputs = "inputs:\n  x: { type: float32, shape: [2] }";
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("gpux.yml"), format!("name: {name}\nversion: 1.0.0\n{inputs}\npipeline: [softmax]\n"))
        .unwrap();
}

/// What the worker of the pipeline in this folder tells, with this name.
fn claim(folder: &Path, name: &str) {
    let mut info = Pipeline::open(folder, &LoadOptions::default()).unwrap().info();
    name.clone_into(&mut info.name);
    let ready =
        json!({ "Ready": { "info": info, "warm_up_report": { "failure": null, "sample": null }, "statistics": [] } });
    std::fs::write(folder.join("ready.json"), format!("{ready}\n")).unwrap();
}

impl Fixture {
    fn start(pipelines: &[(&str, &str)], start: StartPolicy) -> Self {
        Self::start_within(Duration::from_hours(1), pipelines, start)
    }

    fn start_within(load_timeout: Duration, pipelines: &[(&str, &str)], start: StartPolicy) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, called) in pipelines {
            write(&path(name), called);
            claim(&path(name), called);
            // Folders are called so that do so.
            std::fs::write(path(name).join(name), "").unwrap();
        }
        let worker = WorkerCommand {
            program: WORKER.into(),
            options: WorkerOptions { load_options: LoadOptions::default(), must_be_confined: false, threads: 2 },
            environment: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
            load_timeout,
            kill_after: Duration::from_secs(1),
            memory: Arc::new(MemoryWatch::new(MemoryLimits { each: 1 << 40, all: 1 << 40 })),
            has_reported_namespaces: Arc::default(),
            temporary: Arc::default(),
            templates: None,
        };
        let isolation = IsolationPolicy::Pipeline;
        let settings = Settings { worker: Some(worker), isolation, start, ..Settings::default() };
        let sources = pipelines.iter().map(|(name, _)| PipelineSource(path(name).display().to_string())).collect();
        let server = Arc::new(Server::new(settings, LoadOptions::default()));
        server.repository().decide_isolation(pipelines.len(), 0);
        let ((told, events), (failed, failure)) = (channel(), channel());
        let on_event = Box::new(move |event| drop(told.send(event)));
        let on_failure = move |error: GpuxError| drop(failed.send(error.to_string()));
        let reloader = Loader::start(&server, sources, on_event, on_failure).unwrap();
        Self { folder, server, events, failure, reloader }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for an event like this one; others before it are ignored.
    fn wait(&self, is_it: impl Fn(&LoadEvent) -> bool) -> LoadEvent {
        loop {
            let event = self.events.recv_timeout(TIMEOUT).unwrap();
            if is_it(&event) {
                return event;
            }
        }
    }

    fn wait_until_loaded(&self, wanted: &str) {
        self.wait(|event| matches!(event, LoadEvent::Loaded(name) if name == wanted));
    }

    fn state(&self, name: &str) -> PipelineState {
        self.server.repository().slots().iter().find(|slot| slot.name() == name).unwrap().state()
    }

    /// The error of a request for this name.
    fn error(&self, name: &str) -> ServeError {
        self.server.repository().get(name).err().unwrap()
    }
}

#[test]
fn serves_pipelines_beside_one_that_dies_and_one_that_hangs() {
    let fixture = Fixture::start(&[("dies", "dies"), ("good", "good"), ("hangs", "hangs")], StartPolicy::Any);
    let failed = fixture.wait(|event| matches!(event, LoadEvent::NotLoaded { .. }));
    assert!(matches!(&failed, LoadEvent::NotLoaded { name, .. } if name == "dies"), "{failed:?}");
    // Before the pause ends, and it is loaded again.
    assert_eq!(fixture.state("dies"), PipelineState::Failed);
    let is_not_ready = |name: &str, reason: &str| {
        let error = fixture.error(name);
        assert!(error.kind() == "NotReadyError" && error.to_string().contains(reason), "{error}");
        assert!(error.retry_after().is_some_and(|after| after >= Duration::from_secs(1)), "{error:?}");
    };
    is_not_ready("dies", "its process ended while it was loaded");
    fixture
        .server
        .repository()
        .get("good")
        .or_else(|_| {
            fixture.wait_until_loaded("good");
            fixture.server.repository().get("good")
        })
        .unwrap();
    assert_eq!(fixture.state("hangs"), PipelineState::Loading);
    is_not_ready("hangs", "is being loaded");
    assert!(matches!(fixture.error("other"), ServeError::NotFound(_)));
    // A reload of everything waits for neither.
    write(&fixture.path("good"), "good");
    claim(&fixture.path("good"), "good");
    fixture.reloader.all();
    fixture.wait(|event| matches!(event, LoadEvent::Reloaded(name) if name == "good"));
}

#[test]
fn rejects_a_worker_that_loaded_another_version_of_the_file() {
    let fixture = Fixture::start(&[("good", "good")], StartPolicy::Any);
    fixture.wait_until_loaded("good");
    // As if it had changed after the worker read it.
    write(&fixture.path("good"), "good");
    fixture.reloader.all();
    fixture.wait(
        |event| matches!(event, LoadEvent::NotReloaded { reason, .. } if reason.ends_with("changed while it was loaded")),
    );
    assert_eq!(fixture.state("good"), PipelineState::Ready);
}

#[test]
fn tries_failed_pipelines_again() {
    let fixture = Fixture::start(&[("good", "good"), ("dies", "late")], StartPolicy::Any);
    fixture.wait(|event| matches!(event, LoadEvent::NotLoaded { name, .. } if name == "late"));
    std::fs::remove_file(fixture.path("dies").join("dies")).unwrap();
    fixture.wait_until_loaded("late");
    assert_eq!(fixture.state("late"), PipelineState::Ready);
}

#[test]
fn bounds_the_time_of_a_load() {
    let pipelines = [("good", "good"), ("hangs", "hangs")];
    let fixture = Fixture::start_within(Duration::from_millis(500), &pipelines, StartPolicy::Restart);
    let is_killed = |reason: &str| reason.contains("it was not ready within 0.5 s (`--load-timeout`)");
    fixture.wait(
        |event| matches!(event, LoadEvent::NotLoaded { name, reason, .. } if name == "hangs" && is_killed(reason)),
    );
    assert_eq!(fixture.state("hangs"), PipelineState::Failed);
}

#[test]
fn ends_where_nothing_can_be_loaded() {
    let fixture = Fixture::start(&[("dies", "dies")], StartPolicy::Any);
    assert!(fixture.failure.recv_timeout(TIMEOUT).unwrap().contains("the process of the pipeline ended"));
    let fixture = Fixture::start(&[("good", "good"), ("dies", "dies")], StartPolicy::All);
    fixture.failure.recv_timeout(TIMEOUT).unwrap();
    let fixture = Fixture::start(&[("dies", "dies")], StartPolicy::Restart);
    fixture.wait(|event| matches!(event, LoadEvent::NotLoaded { .. }));
    assert_eq!(fixture.state("dies"), PipelineState::Failed);
    assert!(!fixture.server.is_ready() && fixture.failure.try_recv().is_err());
}

#[test]
fn files_descriptions_under_the_name_that_the_server_reads() {
    let fixture = Fixture::start(&[("one", "one"), ("two", "two")], StartPolicy::Any);
    fixture.wait(|event| matches!(event, LoadEvent::Ready));
    claim(&fixture.path("two"), "one");
    fixture.reloader.all();
    fixture.wait(|event| matches!(event, LoadEvent::Reloaded(name) if name == "two"));
    for name in ["one", "two"] {
        assert_eq!(fixture.server.repository().get(name).unwrap().name(), name);
    }
}

#[test]
fn gives_no_pipeline_the_name_of_another() {
    let fixture = Fixture::start(&[("one", "same"), ("two", "same")], StartPolicy::Any);
    assert!(fixture.failure.recv_timeout(TIMEOUT).unwrap().contains("two pipelines are called `same`"));
    let fixture = Fixture::start(&[("one", "same"), ("two", "same"), ("three", "three")], StartPolicy::Any);
    for _ in 0..2 {
        fixture.wait(|event| matches!(event, LoadEvent::NotLoaded { reason, .. } if reason.contains("called `same`")));
    }
    assert!(matches!(fixture.error("same"), ServeError::NotReady(_)));
    write(&fixture.path("two"), "two");
    fixture.wait(|event| matches!(event, LoadEvent::Loaded(name) if name == "same"));
    fixture.server.repository().get("same").unwrap();
}

#[test]
fn finds_out_names_later() {
    let fixture = Fixture::start(&[("good", "good")], StartPolicy::Restart);
    let folder = fixture.path("unreadable");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("gpux.yml"), "name: [").unwrap();
    let slots = fixture.server.repository().register(&[PipelineSource(folder.display().to_string())]);
    assert_eq!((slots[0].name(), slots[0].is_named()), ("unreadable", false));
    let (slot, result) = fixture.server.repository().attempt(&slots[0]);
    assert!(result.unwrap().is_err() && slot.state() == PipelineState::Failed);
    assert!(matches!(fixture.error("real"), ServeError::NotReady(_)), "it may be that one's name");
    write(&folder, "real");
    claim(&folder, "real");
    let (slot, result) = fixture.server.repository().attempt(&slot);
    result.unwrap().unwrap();
    assert_eq!((slot.name(), fixture.state("real")), ("real", PipelineState::Ready));
    assert!(matches!(fixture.error("unreadable"), ServeError::NotFound(_)));
}
