//! Models of a hub: what is fetched, kept and used again; what a hostile hub, a lost connection and SIGKILL do.

use std::fs;
use std::time::Duration;

use serde_json::Value as Json;

use super::double::{Hub, check_store, hex};
use super::models::repositories;
use crate::author::stderr;
use crate::child::{StartWithLimit as _, command};
use crate::test_server::{self, Server};

const MODEL: &str = "hf:test/sentence-mean";

fn embedding(output: &std::process::Output) -> Json {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn pulls_by_commit_and_keeps_what_it_pulled() {
    let hub = Hub::start();
    let pulled = hub.gpux("", &["pull", MODEL, "--json"]).env("HF_TOKEN", "hf_secret").run();
    let report = embedding(&pulled);
    let commit = report["commit"].as_str().unwrap();
    assert_eq!(
        (report["task"].as_str(), report["license"].as_str()),
        (Some("sentence-similarity"), Some("apache-2.0"))
    );

    let folder = hub.home.path().join("sentence-mean");
    let text = fs::read_to_string(folder.join("gpux.yml")).unwrap();
    assert!(text.starts_with(&format!("# Made by `gpux pull {MODEL}`, commit {commit}.\n")), "{text}");
    let lock = fs::read_to_string(folder.join("gpux.lock")).unwrap();
    assert!(lock.contains("from = \"hf://test/sentence-mean@main\"\n"), "{lock}");
    assert!(
        lock.contains(&format!("commit = \"{commit}\"\n")) && lock.contains("path = \"onnx/model.onnx\""),
        "{lock}"
    );

    // Files are asked for by the commit; the token goes to the hub, not to where it redirects to.
    let log = hub.log();
    let files: Vec<_> = log.iter().filter(|asked| !asked["path"].as_str().unwrap().starts_with("/api/")).collect();
    assert!(files.iter().all(|asked| {
        let path = asked["path"].as_str().unwrap();
        path.contains(commit) || path.starts_with("/large/")
    }));
    assert!(log.iter().any(|asked| asked["host"].as_str().unwrap().starts_with("localhost:")));
    for asked in &log {
        let is_hub = asked["host"].as_str().unwrap().starts_with("127.0.0.1:");
        assert_eq!(asked["token"].as_str() == Some("Bearer hf_secret"), is_hub, "{asked}");
    }
    assert!(!log.iter().any(|asked| asked["path"].as_str().unwrap().ends_with("safetensors")));

    // The store has it, and the weights are fetched once.
    check_store(&hub.store());
    let run = ["run", MODEL, "--json", "--input", "text=What is deep learning?"];
    let first = embedding(&hub.gpux("offline", &run).run());
    let local = hub.gpux("", &["run", "sentence-mean", "--json", "--input", "text=What is deep learning?"]).run();
    assert_eq!(first, embedding(&local));
    let again = hub.gpux("", &["run", MODEL, "--pull", "always", "--json", "--input", "text=a"]).run();
    embedding(&again);
    let weights =
        |log: &[Json]| log.iter().filter(|asked| asked["path"].as_str().unwrap().starts_with("/large/")).count();
    assert_eq!(weights(&hub.log()), 1);
    let never = hub.gpux("", &["run", "hf:test/classifier", "--pull", "never", "--input", "text=a"]).run();
    assert_eq!(never.status.code(), Some(2));
    assert!(stderr(&never).contains("`gpux pull hf:test/classifier` does"), "{}", stderr(&never));

    // By its commit, and another name of it.
    for revision in [commit, "refs/pr/1"] {
        let pulled = hub.gpux("", &["pull", "--store-only", &format!("{MODEL}@{revision}")]).run();
        assert!(pulled.status.success(), "{}", stderr(&pulled));
    }
    assert_eq!(hub.parts(), 0);
}

/// A hub's fault, the exit code, and a part of the message.
const FAULTS: [(&str, i32, &str); 21] = [
    ("names", 1, "names a file `../../.bashrc`, which would lead out of its folder"),
    ("twice", 1, "names the file `"),
    ("digestless", 1, "it gives no size or digest for"),
    ("commit", 1, "its `sha` is no commit"),
    ("json", 1, "the hub's answer about `test/sentence-mean` is not usable"),
    ("long-answer", 1, "it is longer than 32 MiB"),
    ("digest", 1, "`onnx/model.onnx` is not what the hub announced (SHA-256 "),
    ("longer", 1, "is longer than the"),
    ("endless", 1, "is longer than the"),
    ("scheme", 1, "is redirected to what is no address"),
    ("circle", 1, "redirected more than 5 times"),
    ("forbidden", 1, "answers `onnx/model.onnx` with 403"),
    ("always-cut", 1, "the same command goes on from there"),
    ("renamed", 2, "is now `somebody/sentence-mean`: if that is who you mean, write `hf:somebody/sentence-mean`"),
    ("disabled", 2, "the hub has disabled `test/sentence-mean`"),
    ("gated", 3, "is gated: accept its terms at"),
    ("private", 2, "or it is private: set HF_TOKEN"),
    ("offline", 3, "cannot reach `127.0.0.1`"),
    ("", 2, "`test/sentence-mean` has no revision `v9`"),
    ("", 2, "the hub has no model `test/nothing`"),
    ("", 2, "of `--max-size` that are left"),
];

#[test]
fn refuses_hostile_hubs() {
    let hub = Hub::start();
    for (fault, code, message) in FAULTS {
        let arguments: &[&str] = match message {
            message if message.contains("revision") => &["pull", "hf:test/sentence-mean@v9"],
            message if message.contains("test/nothing") => &["pull", "hf:test/nothing"],
            message if message.contains("--max-size") => &["pull", MODEL, "--max-size", "1000"],
            _ => &["pull", MODEL],
        };
        let pulled = hub.gpux(fault, arguments).run();
        assert_eq!(pulled.status.code(), Some(code), "{fault}: {}", stderr(&pulled));
        assert!(stderr(&pulled).contains(message), "{fault}: {}", stderr(&pulled));
        assert!(!hub.home.path().join("sentence-mean").exists(), "{fault}");
        check_store(&hub.store());
    }
    let mut bad = hub.gpux("token", &["pull", MODEL]);
    let refused = bad.env("HF_TOKEN", "hf_wrong").run();
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("the hub refuses the token"), "{}", stderr(&refused));
    assert!(!stderr(&refused).contains("hf_wrong"));
    let index: Json = serde_json::from_slice(&fs::read(hub.store().join("index.json")).unwrap()).unwrap();
    assert_eq!(index["manifests"].as_array().unwrap().len(), 0);
}

#[test]
fn goes_on_after_lost_connections() {
    for fault in ["cut", "no-range", "wrong-range", "busy", "expired"] {
        let hub = Hub::start();
        let pulled = hub.gpux(fault, &["pull", MODEL]).run();
        assert!(pulled.status.success(), "{fault}: {}", stderr(&pulled));
        check_store(&hub.store());
        assert_eq!(hub.parts(), 0, "{fault}");
        let ranges = hub.log().iter().filter(|asked| asked["range"].is_string()).count();
        assert_eq!(ranges > 0, fault.contains("range") || fault == "cut", "{fault}");
    }
    // With the terms accepted, a gated model is one like any other.
    let hub = Hub::start();
    let pulled = hub.gpux("gated", &["pull", MODEL]).env("HF_TOKEN", "hf_right").run();
    assert!(pulled.status.success(), "{}", stderr(&pulled));
}

#[test]
fn fetches_several_files_at_a_time() {
    let hub = Hub::start();
    let pulled = hub.gpux("", &["pull", "hf:test/sentence-shards", "--jobs", "3"]).run();
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    check_store(&hub.store());
    let lock = fs::read_to_string(hub.home.path().join("sentence-shards/gpux.lock")).unwrap();
    for shard in 0..6 {
        assert!(
            lock.contains(&format!("path = \"onnx/model.onnx_data_{shard}\", target = \"model.onnx_data_{shard}\""))
        );
        fs::remove_file(hub.home.path().join(format!("sentence-shards/model.onnx_data_{shard}"))).unwrap();
    }
    // Connections that are lost while others go on, and one file that is wrong.
    for (fault, succeeds) in [("digest", false), ("cut", true)] {
        fs::remove_dir_all(hub.store()).unwrap();
        let restored = hub.gpux(fault, &["pull", "sentence-shards"]).run();
        assert_eq!(restored.status.success(), succeeds, "{fault}: {}", stderr(&restored));
        assert_eq!(stderr(&restored).contains("is not what the hub announced"), !succeeds, "{}", stderr(&restored));
        check_store(&hub.store());
    }
    assert_eq!(hub.parts(), 0);
    let tested = hub.gpux("", &["test", "sentence-shards"]).run();
    assert!(tested.status.success(), "{}", stderr(&tested));
}

/// Lays a repository out as the hub's own client does.
#[cfg(unix)]
fn fill_hub_cache(hub: &Hub) {
    let digest = |algorithm, bytes: &[u8]| {
        let digest = ring::digest::digest(algorithm, bytes);
        hex(digest.as_ref())
    };
    let (commit, source) = ("c".repeat(40), repositories().join("sentence-mean"));
    let folder = hub.home.path().join("hub/models--test--sentence-mean");
    fs::create_dir_all(folder.join("blobs")).unwrap();
    fs::create_dir_all(folder.join("refs")).unwrap();
    fs::write(folder.join("refs/main"), &commit).unwrap();
    let mut folders = vec![source.clone()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let name = if path.extension().is_some_and(|extension| extension == "onnx") {
                digest(&ring::digest::SHA256, &bytes)
            } else {
                let header = format!("blob {}\0", bytes.len()).into_bytes();
                digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &[header, bytes.clone()].concat())
            };
            fs::write(folder.join("blobs").join(&name), bytes).unwrap();
            let link = folder.join("snapshots").join(&commit).join(path.strip_prefix(&source).unwrap());
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(folder.join("blobs").join(name), link).unwrap();
        }
    }
}

#[cfg(unix)]
#[test]
fn uses_the_cache_of_the_hubs_own_client() {
    let hub = Hub::start();
    let offline = hub.gpux("", &["pull", MODEL]).env("HF_HUB_OFFLINE", "1").run();
    assert_eq!(offline.status.code(), Some(3));
    assert!(stderr(&offline).contains("HF_HUB_OFFLINE forbids to fetch it"), "{}", stderr(&offline));

    fill_hub_cache(&hub);
    let offline = hub.gpux("", &["pull", MODEL, "--output", "offline"]).env("HF_HUB_OFFLINE", "1").run();
    assert!(offline.status.success(), "{}", stderr(&offline));
    assert_eq!(hub.log().len(), 0);
    let lock = fs::read_to_string(hub.home.path().join("offline/gpux.lock")).unwrap();
    assert!(lock.contains(&"c".repeat(40)), "{lock}");

    // Online, only the list of files is asked for.
    fs::remove_dir_all(hub.store()).unwrap();
    let pulled = hub.gpux("", &["pull", MODEL]).run();
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    assert!(hub.log().iter().all(|asked| asked["path"].as_str().unwrap().starts_with("/api/")), "{:?}", hub.log());

    // What is damaged there is fetched.
    fs::remove_dir_all(hub.store()).unwrap();
    for blob in fs::read_dir(hub.home.path().join("hub/models--test--sentence-mean/blobs")).unwrap() {
        let path = blob.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        fs::write(path, bytes).unwrap();
    }
    let pulled = hub.gpux("", &["pull", MODEL, "--output", "third"]).run();
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    check_store(&hub.store());
}

#[cfg(unix)]
#[test]
fn killed_pulls_leave_nothing_half() {
    // The same moments every time, at any speed of the machine: after so many requests of the hub.
    let hub = Hub::start();
    for round in 0..12 {
        let before = hub.log().len();
        let mut child = hub.gpux("slow", &["pull", MODEL, "--output", "killed"]).start();
        for _ in 0..600 {
            let is_there = hub.log().len() >= before + 1 + round / 2;
            if is_there || child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(7 * (round as u64 % 4)));
        child.kill().unwrap();
        child.wait().unwrap();
        check_store(&hub.store());
        if hub.home.path().join("killed").exists() {
            let run = hub.gpux("", &["test", "killed"]).run();
            assert!(run.status.success(), "{}", stderr(&run));
            fs::remove_dir_all(hub.home.path().join("killed")).unwrap();
        }
    }
    let pulled = hub.gpux("", &["pull", MODEL]).run();
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    check_store(&hub.store());
    let tested = hub.gpux("", &["test", "sentence-mean"]).run();
    assert!(tested.status.success(), "{}", stderr(&tested));

    // Nothing half is left: neither beside the folder nor in the store.
    let left = hub.home.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with(".gpux")).count(), 0);
    assert_eq!(hub.parts(), 0);
}

#[test]
fn serves_what_text_embeddings_inference_serves() {
    let hub = Hub::start();
    let mut serve = test_server::command(&[MODEL]);
    hub.surround(&mut serve, "");
    let server = Server::of(serve);
    // The command of its README, but for the port.
    let url = format!("{}/embed", server.address);
    let body = r#"{"inputs":"What is Deep Learning?"}"#;
    let mut curl = command("curl");
    let answer = curl.args([&url, "-X", "POST", "-d", body, "-H", "Content-Type: application/json"]).run();
    let answer: Json = serde_json::from_slice(&answer.stdout).unwrap();
    let run = hub.gpux("offline", &["run", MODEL, "--json", "--input", "text=What is Deep Learning?"]).run();
    let run = embedding(&run);
    let (served, alone) = (answer[0].as_array().unwrap(), run["embeddings"][0].as_array().unwrap());
    assert_eq!(served.len(), 16);
    let near = |(a, b): (&Json, &Json)| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-5;
    assert!(served.iter().zip(alone).all(near), "{answer} {run}");
}
