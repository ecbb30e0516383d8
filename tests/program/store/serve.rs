//! Servers of pipelines that are named in the store.

use std::process::Command;

use serde_json::{Value as Json, json};

use super::Home;
use crate::test_server::{self, Server, until};

pub(super) fn command(home: &Home, arguments: &[&str]) -> Command {
    let mut command = test_server::command(arguments);
    command.env("GPUX_STORE", home.store()).current_dir(home.path().join("empty"));
    command
}

fn scaled(server: &Server, path: &str) -> Json {
    server.post(path, "", "{\"x\": [1, 2]}").with_status(200)["tensor"][0].clone()
}

fn reloads(isolation: &str) {
    let home = Home::new();
    let one = home.add("1.0.0", 2.0, &["--name", "live"]);
    drop(home.run(&["store", "list"]));
    let server = Server::of(command(&home, &["live", "--reload", "--isolation", isolation]));
    assert_eq!(scaled(&server, "/predict"), json!(2.0));
    assert_eq!(server.get("/info").with_status(200)["digest"], json!(one));
    // Fails if there is none.
    server.metric(&format!("gpux_pipeline_info{{pipeline=\"scaling\",version=\"1.0.0\",digest=\"{one}\"}}"));

    let two = home.add("1.1.0", 3.0, &["--name", "live"]);
    let line = server.line("scaling was loaded again");
    assert!(line.contains(&two), "{line}");
    assert_eq!(scaled(&server, "/predict"), json!(3.0));
    assert_eq!(server.get("/info").with_status(200)["digest"], json!(two));

    // Nothing means it any more: the old one answers, and its files stay.
    home.json(&["store", "rm", "live", "--json"]);
    server.line("scaling could not be loaded again; the one before answers");
    // What is not served any more is let go of, once its last request and its process have ended.
    let keeps = |running: &Json| home.json(&["store", "prune", "--json"])["running"] == *running;
    until("only the new pipeline is held", || keeps(&json!([two])));
    assert_eq!(scaled(&server, "/predict"), json!(3.0));
    assert_eq!(server.get("/info").with_status(200)["digest"], json!(two));

    assert_eq!(home.add("1.0.0", 2.0, &["--name", "live"]), one);
    server.line("scaling was loaded again");
    assert_eq!(scaled(&server, "/predict"), json!(2.0));
    until("the old pipeline is let go of", || keeps(&json!([])));
}

#[test]
fn reloads_when_a_name_means_another_digest() {
    reloads("none");
}

#[cfg(target_os = "linux")]
#[test]
fn reloads_isolated_pipelines_when_a_name_means_another_digest() {
    reloads("pipeline");
}

#[test]
fn serves_names_beside_folders() {
    let home = Home::new();
    let digest = home.add("1.0.0", 2.0, &[]);
    let other = home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let text = "name: other\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [2] } }\n\
        pipeline: [{ scale: { factor: 5 } }]\n";
    std::fs::write(other.join("gpux.yml"), text).unwrap();
    let server = Server::of(command(&home, &["scaling", other.to_str().unwrap()]));
    assert_eq!(scaled(&server, "/pipelines/scaling/predict"), json!(2.0));
    assert_eq!(scaled(&server, "/pipelines/other/predict"), json!(5.0));
    assert_eq!(server.get("/pipelines/scaling/info").with_status(200)["digest"], json!(digest));
    assert_eq!(server.get("/pipelines/other/info").with_status(200)["digest"], json!(null));
}
