//! `gpux serve` from outside: the HTTP API, its description, its page.

mod oip;
mod openapi;
mod page;
mod predict;
mod space;
mod tei;
mod texts;
mod trace;
mod warm_up;

use serde_json::json;

use crate::digits::{gpux, root};
use crate::test_server::Server;

/// A photo of a seven.
pub(crate) fn seven() -> Vec<u8> {
    std::fs::read(root().join("models/samples/seven.png")).unwrap()
}

/// A pipeline of the tests.
pub(crate) fn pipeline(name: &str) -> String {
    format!("tests/cases/pipelines/{name}.yml")
}

#[test]
fn describes_a_pipeline() {
    let server = Server::start(&[]);
    let health = server.get("/health").with_status(200);
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["model"], "digits");
    assert_eq!(server.get("/health/live").with_status(200), json!({ "live": true }));
    assert_eq!(server.get("/health/ready").with_status(200), json!({ "ready": true }));
    let info = server.get("/info").with_status(200);
    for (key, value) in [
        ("name", json!("digits")),
        ("version", json!("1.0.0")),
        ("format", json!("onnx")),
        ("trace", json!(true)),
        (
            "inputs",
            json!([{
                "name": "image", "type": "bytes", "shape": null, "columns": null, "required": true,
                "description": "a photo or scan of one digit", "media_type": "image/*",
            }]),
        ),
    ] {
        assert_eq!(info[key], value, "{key}");
    }
    assert_eq!(info["steps"][1], "center-ink.wasm");
    assert_eq!(server.get("/pipelines/digits/info").with_status(200), info);
    let listed = server.get("/pipelines").with_status(200);
    assert_eq!(listed["pipelines"][0]["state"], "ready");
}

#[test]
fn returns_404_as_json() {
    let server = Server::start(&[&pipeline("scores"), &pipeline("text")]);
    assert_eq!(server.get("/nothing").error(404), "there is nothing at `/nothing`");
    assert!(server.get("/pipelines/none/info").error(404).contains("`scores`, `text`"));
    let several = server.json("/predict", &json!({})).error(404);
    assert!(several.contains("/pipelines/scores/predict"), "{several}");
    let wrong = server.get("/pipelines/scores/predict");
    assert!(wrong.error(405).contains("does not take GET"));
    assert_eq!(wrong.header("allow"), Some("POST"));
    let named = server.ask("DELETE", "/health", &["x-request-id: r-1"], b"");
    assert_eq!(named.with_status(405)["details"]["request_id"], "r-1");
    let head = server.ask("HEAD", "/health", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn rejects_pipelines_with_equal_names() {
    let output = gpux(&["serve", "--port", "0", "--engine", "embedded", &pipeline("scores"), &pipeline("scores")]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("two pipelines are called `scores`"), "{said}");
}

#[test]
fn serves_the_others_where_one_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("gpux.yml"), "name: wrong\nversion: 1.0.0\npipeline: [no-such-step]\n").unwrap();
    let server = Server::start(&[&pipeline("scores"), wrong]);
    assert_eq!(server.json("/pipelines/scores/predict", &json!({ "x": [1, 2, 3, 4] })).status, 200);
    let refused = server.json("/pipelines/wrong/predict", &json!({}));
    let said = refused.error(503);
    assert!(said.contains("ConfigurationError") && !said.contains("no-such-step"), "{said}");
    assert!(refused.header("retry-after").is_some());

    for pipelines in [&[wrong][..], &[wrong, wrong], &[&pipeline("scores"), wrong, "--require-all"]] {
        let output = gpux(&[&["serve", "--port", "0", "--engine", "embedded"], pipelines].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
}

#[test]
fn takes_host_and_port_from_a_single_pipeline() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let text = format!("name: x\nversion: 1.0.0\npipeline: [softmax]\nserving: {{ host: 127.0.0.1, port: {port} }}\n");
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    let output = gpux(&["serve", folder.path().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{said}");
    assert_eq!(output.status.code(), Some(3));
}
