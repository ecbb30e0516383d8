//! Reload, drain, signals.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::{Connection, ONE, SCORES, Server, command, replace, scaling, until};
use crate::digits::root;

const TWO: &str = "{\"x\": [1, 2]}";

fn scaled(server: &Server) -> f64 {
    let answer = server.post("/predict", "", TWO);
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.read();
    let (_, values) = json.as_object().unwrap().iter().next().unwrap();
    values[0].as_f64().unwrap()
}

#[test]
fn reloads_changed_files_unless_invalid() {
    let folder = tempfile::tempdir().unwrap();
    scaling(folder.path(), "scaling", 2.0);
    let server = Server::start(&[folder.path().to_str().unwrap(), "--reload"]);
    assert_eq!(scaled(&server), 2.0);

    scaling(folder.path(), "scaling", 3.0);
    server.line("scaling was loaded again");
    assert_eq!(scaled(&server), 3.0);

    replace(&folder.path().join("gpux.yml"), b"name: scaling\npipeline:\n  - no-such-step\n");
    let line = server.line("could not be loaded again");
    assert!(line.contains("scaling") && line.contains("the one before answers"), "{line}");
    assert_eq!(scaled(&server), 3.0);
    let health = server.get("/health");
    assert_eq!(health.status, 200);
    // What stands in its files is for the log.
    assert!(health.read()["not_reloaded"]["scaling"].as_str().unwrap().contains("ConfigurationError"), "{health:?}");
    assert!(!health.text().contains("no-such-step"), "{health:?}");
    assert!(server.get("/pipelines").read()["pipelines"][0]["reason"].is_string());
    assert_eq!(server.metric("gpux_reload_failing{pipeline=\"scaling\"}"), 1.0);
    assert!(server.metric("gpux_reloads_total{pipeline=\"scaling\",result=\"failed\"}") >= 1.0);

    scaling(folder.path(), "scaling", 4.0);
    server.line("scaling was loaded again");
    assert_eq!(scaled(&server), 4.0);
    assert_eq!(server.metric("gpux_reload_failing{pipeline=\"scaling\"}"), 0.0);
    assert!(server.get("/health").read()["not_reloaded"].is_null());
}

#[test]
fn keeps_labels_until_reload() {
    let folder = tempfile::tempdir().unwrap();
    let labels = folder.path().join("labels.txt");
    std::fs::write(&labels, "cat\ndog\n").unwrap();
    let text = "name: scaling\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [2] } }\n\
        pipeline: [{ scale: { factor: 2 } }]\noutputs: { tensor: { type: float32, labels: labels.txt } }\n";
    replace(&folder.path().join("gpux.yml"), text.as_bytes());
    let server = Server::start(&[folder.path().to_str().unwrap()]);
    let best = || {
        let request = serde_json::json!({
            "inputs": [{ "name": "x", "datatype": "FP32", "shape": [2], "data": [1, 3] }],
            "outputs": [{ "name": "tensor", "parameters": { "classification": 1 } }],
        });
        server.json("/v2/models/scaling/infer", &request).read()["outputs"][0]["data"][0].clone()
    };
    assert_eq!(best(), "6.000000:1:dog");
    std::fs::remove_file(&labels).unwrap();
    assert_eq!(best(), "6.000000:1:dog");
    std::fs::write(&labels, "ox\nelk\n").unwrap();
    assert_eq!(best(), "6.000000:1:dog");
    server.signal(Signal::HUP);
    server.line("scaling was loaded again");
    assert_eq!(best(), "6.000000:1:elk");
}

#[test]
fn reloads_on_sighup_only_if_watching_is_off() {
    let folder = tempfile::tempdir().unwrap();
    scaling(folder.path(), "scaling", 2.0);
    let server = Server::start(&[folder.path().to_str().unwrap()]);
    scaling(folder.path(), "scaling", 5.0);
    server.signal(Signal::HUP);
    server.line("scaling was loaded again");
    assert_eq!(scaled(&server), 5.0);
}

#[test]
fn handles_sighup_received_while_loading() {
    let folder = tempfile::tempdir().unwrap();
    scaling(&folder.path().join("scaling"), "scaling", 2.0);
    // A component that was never seen takes a while.
    let slow = folder.path().join("slow");
    std::fs::create_dir(&slow).unwrap();
    std::fs::copy(root().join("guest-examples/rust/center-ink.wasm"), slow.join("center-ink.wasm")).unwrap();
    let text = "name: slow\nversion: 1.0.0\ninputs: { image: { type: image } }\n\
        pipeline: [{ decode-image: { channels: gray } }, { wasm: ./center-ink.wasm }]\n";
    replace(&slow.join("gpux.yml"), text.as_bytes());
    let mut command = command(&[folder.path().to_str().unwrap(), "--grpc-port", "0"]);
    command.env("GPUX_CACHE_DIR", folder.path().join("cache"));
    let server = Server::spawn(command);
    server.line("gRPC on");
    server.signal(Signal::HUP);
    // Each is loaded for the first time, then again, whatever the other does.
    server.line("scaling was loaded again");
    server.line("slow was loaded again");
}

#[test]
fn sighup_keeps_unloaded_models_unloaded() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["first", "second"] {
        scaling(&folder.path().join(name), name, 2.0);
    }
    let server = Server::start(&[folder.path().to_str().unwrap(), "--model-control"]);
    let call = |call: &str| server.post(&format!("/v2/repository/models/first/{call}"), "", "").status;
    assert_eq!(call("unload"), 200);
    let file = folder.path().join("first/gpux.yml");
    replace(&file, b"name: first\npipeline: [no-such-step]\n");
    server.signal(Signal::HUP);
    // They are loaded in the order of their names.
    server.line("second was loaded again");
    assert_eq!(server.get("/health/ready").status, 200);
    assert_eq!(server.get("/pipelines").read()["pipelines"][0]["state"], "unloaded");
    let refused = server.post("/v2/repository/models/first/load", "", "");
    assert_eq!((refused.status, refused.text().contains("no-such-step")), (500, false), "{refused:?}");
    server.line("first could not be loaded");
    server.line("no-such-step");
    assert_eq!(server.get("/health/ready").status, 200);
    assert!(server.get("/health").read()["not_reloaded"]["first"].as_str().unwrap().contains("ConfigurationError"));
    scaling(&folder.path().join("first"), "first", 3.0);
    assert_eq!(call("load"), 200);
    assert_eq!(server.post("/pipelines/first/predict", "", TWO).status, 200);
}

#[test]
fn reloads_folders_swapped_like_configmaps() {
    let folder = tempfile::tempdir().unwrap();
    scaling(&folder.path().join("v1"), "scaling", 2.0);
    scaling(&folder.path().join("v2"), "scaling", 7.0);
    let link = folder.path().join("current");
    std::os::unix::fs::symlink("v1", &link).unwrap();
    let server = Server::start(&[link.to_str().unwrap(), "--reload"]);
    assert_eq!(scaled(&server), 2.0);
    let next = folder.path().join("next");
    std::os::unix::fs::symlink("v2", &next).unwrap();
    std::fs::rename(next, &link).unwrap();
    server.line("scaling was loaded again");
    assert_eq!(scaled(&server), 7.0);
}

/// How many requests there are between two reloads: some in the gate, more when asked for.
fn between_reloads() -> usize {
    std::env::var("GPUX_RELOAD_REQUESTS").ok().and_then(|many| many.parse().ok()).unwrap_or(50)
}

#[test]
fn reload_under_load_fails_no_request() {
    let folder = tempfile::tempdir().unwrap();
    scaling(folder.path(), "scaling", 2.0);
    let server = Server::start(&[folder.path().to_str().unwrap()]);
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = server.connect();
                while !done.load(Ordering::Relaxed) {
                    let answer = connection.send("POST", "/predict", &[], TWO.as_bytes()).unwrap();
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for factor in [3.0, 4.0, 5.0, 6.0, 7.0] {
            let before = answered.load(Ordering::Relaxed);
            scaling(folder.path(), "scaling", factor);
            server.signal(Signal::HUP);
            server.line("scaling was loaded again");
            until("requests go on", || answered.load(Ordering::Relaxed) > before + between_reloads());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(scaled(&server), 7.0);
    assert_eq!(server.metric("gpux_reloads_total{pipeline=\"scaling\",result=\"succeeded\"}"), 5.0);
}

#[test]
fn survives_garbage_in_place_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("square.onnx");
    std::fs::copy(root().join("tests/models/square.onnx"), &model).unwrap();
    let server = Server::start(&[model.to_str().unwrap(), "--reload"]);
    let works = || {
        let answer = server.post("/predict", "", "{\"x\": [[1, 2], [3, 4]]}");
        assert_eq!((answer.status, answer.read()["y"][0][0].as_f64()), (200, Some(7.0)), "{answer:?}");
    };
    works();
    replace(&model, &[0xff; 4096]);
    server.line("could not be loaded again");
    works();
    replace(&model, &std::fs::read(root().join("tests/models/square.onnx")).unwrap());
    server.line("was loaded again");
    works();
}

#[test]
fn drain_under_load_loses_no_request() {
    let mut server = Server::start(&[SCORES]);
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = server.connect();
                    loop {
                        let answer = connection.send("POST", "/predict", &[], ONE.as_bytes()).unwrap();
                        assert_eq!(answer.status, 200, "{answer:?}");
                        answered.fetch_add(1, Ordering::Relaxed);
                        if answer.header("connection") == Some("close") {
                            break;
                        }
                    }
                })
            })
            .collect();
        until("requests are under way", || answered.load(Ordering::Relaxed) > 200);
        server.signal(Signal::TERM);
        for client in clients {
            client.join().unwrap();
        }
    });
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn answers_but_is_not_ready_during_the_shutdown_delay() {
    let server = Server::start(&[SCORES, "--drain-delay", "1h"]);
    server.signal(Signal::TERM);
    server.line("ending");
    let ready = server.get("/health/ready");
    assert_eq!((ready.status, ready.header("connection")), (503, Some("close")));
    assert_eq!(server.get("/health/live").status, 200);
    server.assert_alive();
    let mut server = server;
    // Faster ones count as one: terminals and service managers signal the supervisor and the server.
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(130), "the second time counts at once");
}

#[test]
fn finishes_in_flight_requests_before_exit() {
    let mut server = Server::start(&[SCORES]);
    let mut connection = server.connect();
    let head = format!("POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", ONE.len());
    connection.write(&[head.as_bytes(), &ONE.as_bytes()[..5]].concat()).unwrap();
    until("the request is under way", || server.metric("gpux_connections ") >= 2.0);
    server.signal(Signal::TERM);
    server.line("ending");
    until("no connection is taken", || Connection::to(server.address).is_err());
    connection.write(&ONE.as_bytes()[5..]).unwrap();
    let answer = connection.answer().unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(server.ended().code(), Some(0));
}

/// As many connections as the kernel queues for a program that does not call `accept`.
fn backlog() -> usize {
    // The default of macOS.
    const SMALLEST: usize = 128;
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(SMALLEST)
}

#[test]
fn drain_answers_every_connection_in_the_accept_queue() {
    // More than the standard library's backlog, and than tokio accepts in a row.
    let queued = backlog().min(300);
    for _ in 0..3 {
        let mut server = Server::start(&[SCORES, "--max-connections", "1"]);
        // It is busy, since its body is awaited.
        let mut only = server.connect();
        let length = ONE.len();
        let expecting = format!("content-length: {length}\r\nexpect: 100-continue\r\n\r\n");
        only.write(format!("POST /predict HTTP/1.1\r\nhost: localhost\r\n{expecting}").as_bytes()).unwrap();
        let mut goes_on = [0; 25];
        only.0.read_exact(&mut goes_on).unwrap();
        assert_eq!(goes_on, *b"HTTP/1.1 100 Continue\r\n\r\n");
        let head = format!("POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", ONE.len());
        let connect = |_| {
            let mut connection = server.connect();
            connection.write(&[head.as_bytes(), ONE.as_bytes()].concat()).unwrap();
            connection
        };
        let connections: Vec<_> = (0..queued).map(connect).collect();
        server.signal(Signal::TERM);
        for (number, mut connection) in connections.into_iter().enumerate() {
            let answer = connection.answer().unwrap_or_else(|error| panic!("connection {number}: {error}"));
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        only.write(ONE.as_bytes()).unwrap();
        assert_eq!(only.answer().unwrap().status, 200);
        assert_eq!(server.ended().code(), Some(0));
    }
}

#[test]
fn reports_a_port_in_use() {
    let first = Server::start(&[SCORES]);
    let port = first.address.port().to_string();
    let mut second = Server::begin(&[SCORES, "--port", &port]);
    let line = second.line("cannot listen on");
    assert!(line.contains(&port) && line.contains("another program listens there"), "{line}");
    assert_eq!(second.ended().code(), Some(3));
    first.assert_alive();
}
