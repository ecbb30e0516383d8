//! Pipelines in processes of their own: what native code does there costs nobody else anything.

#![allow(clippy::float_cmp, reason = "metrics that are whole numbers")]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use crate::child::{StartWithLimit as _, program};
use crate::digits::{onnxruntime_is_there, root};
use crate::test_server::{Server, until};

/// `y = a / b` on int64, which ends the process by SIGFPE for the least number divided by -1.
const DIVIDE: &str = "tests/models/divide.onnx";
const GOOD: &str = r#"{"a": [6], "b": [3]}"#;
const FATAL: &str = r#"{"a": [-9223372036854775808], "b": [-1]}"#;

/// On ONNX Runtime, whose kernels crash, where it is there.
fn start(more: &[&str]) -> Server {
    let mut command = serve(&[DIVIDE, "gpux.yml"]);
    command
        .args(more)
        .envs(["NOT_FOR_MODELS", "GPUX_NOT_FOR_MODELS", "NVIDIA_NOT_FOR_MODELS_KEY"].map(|name| (name, "secret")));
    Server::of(command)
}

fn serve(arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]).args(arguments);
    if !arguments.contains(&"--isolation") {
        command.args(["--isolation", "pipeline"]);
    }
    command.current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Status and body.
fn ask(server: &Server, pipeline: &str, body: &str) -> (u16, Json) {
    let path = format!("/pipelines/{pipeline}/predict");
    let answer = server.ask("POST", &path, &["content-type: application/json"], body.as_bytes());
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

fn seven(server: &Server) -> u16 {
    let photo = std::fs::read(root().join("models/samples/seven.png")).unwrap();
    server.ask("POST", "/pipelines/digits/predict", &["content-type: image/png"], &photo).status
}

/// The processes of pipelines that this server started.
fn workers(server: &Server) -> Vec<u32> {
    let (templates, others): (Vec<_>, Vec<_>) = children(server.process()).into_iter().partition(|id| is_template(*id));
    others.into_iter().chain(templates.into_iter().flat_map(children)).collect()
}

/// The processes that run pipelines: where the system gives namespaces, each is a child of one that was started for it.
fn running_workers(server: &Server) -> Vec<u32> {
    let running = |worker: u32| children(worker).first().copied().unwrap_or(worker);
    workers(server).into_iter().map(running).collect()
}

/// The processes that those of pipelines are copied from.
fn templates(server: &Server) -> Vec<u32> {
    children(server.process()).into_iter().filter(|id| is_template(*id)).collect()
}

fn is_template(id: u32) -> bool {
    let words = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    words.split('\0').nth(1) == Some("__template")
}

fn children(id: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    // A thread may have ended since.
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).ok());
    children.collect::<String>().split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn signal(signal: &str, processes: &[u32]) {
    for id in processes {
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    }
}

#[test]
fn a_crash_costs_one_request() {
    if !onnxruntime_is_there() {
        return;
    }
    let server = start(&[]);
    assert_eq!(ask(&server, "divide", GOOD), (200, json!({ "y": [2] })));
    let neighbour = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| (0..40).map(|_| seven(&server)).collect::<Vec<_>>());
        for _ in 0..3 {
            let (status, error) = ask(&server, "divide", FATAL);
            assert_eq!((status, &error["error"]), (500, &json!("ModelCrashError")), "{error}");
            assert_eq!((&error["details"]["step"], &error["details"]["name"]), (&json!(1), &json!("model")));
            assert!(error["message"].as_str().unwrap().contains("signal 8 (arithmetic error)"), "{error}");
            // It waits for the new process.
            assert_eq!(ask(&server, "divide", GOOD).0, 200);
        }
        neighbour.join().unwrap()
    });
    assert!(neighbour.iter().all(|status| *status == 200), "{neighbour:?}");
    let metrics = server.ask("GET", "/metrics", &["accept: text/plain"], b"");
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("gpux_pipeline_crashes_total{pipeline=\"divide\"} 3"), "{metrics}");
    assert!(server.line("answers again").contains("divide"));
}

#[test]
fn a_pipeline_that_crashes_again_and_again_is_not_ready() {
    if !onnxruntime_is_there() {
        return;
    }
    let server = start(&[]);
    until("it is not ready", || {
        ask(&server, "divide", FATAL);
        server.get("/v2/models/divide/ready").status != 200
    });
    let (status, error) = ask(&server, "divide", GOOD);
    assert_eq!((status, &error["error"]), (503, &json!("NotReadyError")), "{error}");
    let listed = server.ask("GET", "/pipelines", &[], b"");
    let listed: Json = serde_json::from_slice(&listed.body).unwrap();
    let divide = listed["pipelines"].as_array().unwrap().iter().find(|listed| listed["name"] == "divide").unwrap();
    assert_eq!(divide["state"], "crashed");
    assert!(divide["reason"].as_str().unwrap().contains("arithmetic error"), "{divide}");
    // The server still is, for the other pipeline.
    assert_eq!(server.ask("GET", "/health/ready", &[], b"").status, 200);
    assert_eq!(seven(&server), 200);
}

#[test]
fn processes_end_with_the_server() {
    let mut server = start(&[]);
    let workers = [workers(&server), running_workers(&server)].concat();
    assert!(workers.len() >= 4, "{workers:?}");
    // One that is stopped sees nothing of it, and ends all the same.
    signal("-STOP", &workers);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let runs = |id: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        status.contains("gpux") && !status.contains("State:\tZ")
    };
    until("no process runs", || !workers.iter().any(runs));
}

#[test]
fn a_killed_process_is_started_again() {
    let server = start(&[]);
    for workers in [workers, running_workers] {
        signal("-KILL", &workers(&server));
        server.line("answers again");
        server.line("answers again");
    }
    assert_eq!(ask(&server, "divide", GOOD).0, 200);
    assert_eq!(seven(&server), 200);
}

#[test]
fn a_process_that_ignores_deadlines_is_killed() {
    let server = start(&["--kill-after", "200ms"]);
    signal("-STOP", &running_workers(&server));
    let head = ["content-type: application/json"];
    let answer = server.ask("POST", "/pipelines/divide/predict?timeout=0.3", &head, GOOD.as_bytes());
    assert_eq!(answer.status, 504, "{}", String::from_utf8_lossy(&answer.body));
    // No step is to blame, since the process has not taken the request.
    assert!(server.line("its process ended").contains("left a request waiting for more than 2s"));
    assert_eq!(ask(&server, "divide", GOOD).0, 200);
}

/// The pipeline `fatal` in a folder, whose process ends while it is loaded; without `warmup`, it does not.
fn write_fatal(folder: &Path, warmup: &str) {
    std::fs::copy(root().join(DIVIDE), folder.join("divide.onnx")).unwrap();
    let file =
        format!("name: fatal\nversion: 1\nmodel: {{ source: divide.onnx }}\nserving: {{ warmup: [{warmup}] }}\n");
    std::fs::write(folder.join("gpux.yml"), file).unwrap();
}

#[test]
fn a_pipeline_that_cannot_be_loaded_costs_nobody_else_anything() {
    if !onnxruntime_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_fatal(folder.path(), FATAL);
    let path = folder.path().to_str().unwrap();
    let mut server = Server::spawn(serve(&[path, "gpux.yml"]));
    let line = server.line("fatal cannot be loaded");
    assert!(line.contains("signal 8 (arithmetic error)") && line.contains("tried again in"), "{line}");
    server.wait_until_ready();
    assert_eq!(seven(&server), 200);
    let (status, error) = ask(&server, "fatal", GOOD);
    assert_eq!((status, &error["error"]), (503, &json!("NotReadyError")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("its process ended while it was loaded"), "{error}");
    assert_eq!(server.get("/v2/models/fatal/ready").status, 503);
    assert_eq!(server.get("/v2/models/digits/ready").status, 200);
    let health = server.get("/health").with_status(200);
    assert!(health["failed"]["fatal"].is_string() && health["not_reloaded"].is_null(), "{health}");
    let listed = server.get("/pipelines").read();
    assert_eq!(listed["pipelines"][1]["state"], "failed", "{listed}");
    let index = server.post("/v2/repository/index", "", "{}").read();
    assert_eq!((&index[1]["state"], &index[1]["name"]), (&json!("UNAVAILABLE"), &json!("fatal")));
    assert_eq!(server.metric("gpux_pipeline_ready{pipeline=\"fatal\"}"), 0.0);
    assert_eq!(server.metric("gpux_reload_failing{pipeline=\"fatal\"}"), 1.0);
    // It is tried again.
    write_fatal(folder.path(), GOOD);
    server.line("fatal 1 on");
    assert_eq!(ask(&server, "fatal", GOOD), (200, json!({ "y": [2] })));

    write_fatal(folder.path(), FATAL);
    let ended = serve(&[path, "gpux.yml", "--require-all"]).run();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && error.contains("signal 8"), "{error}");
}

#[test]
fn a_process_is_confined() {
    let server = start(&[]);
    let has_seccomp = Path::new("/proc/sys/kernel/seccomp").exists();
    for id in running_workers(&server) {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap();
        let status = read("status");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        assert_eq!(status.contains("Seccomp:\t2"), has_seccomp, "{status}");
        let environment = read("environ");
        assert!(!environment.contains("NOT_FOR_MODELS"), "{environment}");
        // Settings come over the socket.
        let words = read("cmdline");
        assert!(words.split('\0').nth(1) == Some("__worker") && !words.contains("--"), "{words:?}");
    }
}

#[test]
fn templates_hold_nothing_of_pipelines_and_are_replaced() {
    if !onnxruntime_is_there() {
        return;
    }
    let server = start(&[]);
    let before = templates(&server);
    assert!(!before.is_empty());
    for id in &before {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        assert!(status.contains("Threads:\t1\n"), "{status}");
        let environment = std::fs::read_to_string(format!("/proc/{id}/environ")).unwrap();
        assert!(!environment.contains("NOT_FOR_MODELS") && !environment.contains("GPUX_"), "{environment}");
    }
    // Its workers end with it, and new ones are copied from another.
    signal("-KILL", &before);
    until("a template takes the place of the one that ended", || {
        templates(&server).iter().any(|id| !before.contains(id))
    });
    assert_eq!((ask(&server, "divide", GOOD).0, seven(&server)), (200, 200));

    // With an address layout each, there is none.
    let server = start(&["--isolation-strict"]);
    assert!(templates(&server).is_empty());
}

#[test]
fn memory_is_bounded() {
    if !onnxruntime_is_there() {
        return;
    }
    let mut command = program();
    command.args(["serve", DIVIDE, "gpux.yml", "tests/models/fill.onnx", "--host", "127.0.0.1", "--port", "0"]);
    command.args(["--isolation", "pipeline", "--worker-memory", "300MiB"]);
    command.current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = Server::spawn(command);
    server.line("with at most 300 MiB of memory");
    server.wait_until_ready();
    assert_eq!(ask(&server, "fill", r#"{"shape": [2, 2]}"#).0, 200);
    let (status, error) = ask(&server, "fill", r#"{"shape": [15000, 15000]}"#);
    assert_eq!((status, &error["error"]), (500, &json!("ModelCrashError")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("more than 300 MiB of memory"), "{error}");
    assert_eq!(ask(&server, "fill", r#"{"shape": [2, 2]}"#).0, 200);
    assert_eq!((ask(&server, "divide", GOOD).0, seven(&server)), (200, 200));
}

#[test]
fn a_pipeline_can_ask_for_isolation() {
    let folder = tempfile::tempdir().unwrap();
    let model = root().join(DIVIDE);
    std::fs::copy(model, folder.path().join("divide.onnx")).unwrap();
    let file = "name: alone\nversion: 1\nmodel: { source: divide.onnx }\nserving: { isolation: pipeline }\n";
    std::fs::write(folder.path().join("gpux.yml"), file).unwrap();
    let server = Server::start(&[folder.path().to_str().unwrap(), DIVIDE, "--isolation", "none"]);
    assert_eq!(workers(&server).len(), 1);
    assert_eq!((ask(&server, "alone", GOOD).0, ask(&server, "divide", GOOD).0), (200, 200));
}

#[test]
fn temporary_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["serve", "gpux.yml", "--host", "127.0.0.1", "--port", "0", "--isolation", "pipeline"]);
    command.current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null()).env("TMPDIR", folder.path());
    let mut server = Server::of(command);
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(entries(), 1);
    signal("-TERM", &[server.child.id()]);
    server.child.wait().unwrap();
    assert_eq!(entries(), 0);
}

#[test]
fn commands_say_how_native_code_ended() {
    if !onnxruntime_is_there() {
        return;
    }
    let run = |command: &str, more: &[&str]| {
        let mut gpux = program();
        gpux.args([command, DIVIDE, "--input", FATAL]).args(more).current_dir(root());
        let output = gpux.run();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = run("run", &[]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("the process of the pipeline ended: it was ended by signal 8"), "{error}");
    let (code, error) = run("run", &["--json"]);
    assert_eq!(serde_json::from_str::<Json>(&error).unwrap()["error"], "ModelCrashError");
    assert_eq!(code, Some(1));
    let (code, error) = run("verify", &["--on", "cpu", "--on", "embedded"]);
    assert!(code == Some(1) && error.contains("signal 8"), "{code:?} {error}");
}

#[test]
fn links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["blobs", "pipeline/..settings"] {
        std::fs::create_dir_all(path(name)).unwrap();
    }
    let model = root().join(DIVIDE);
    std::fs::copy(&model, path("blobs/4f2a")).unwrap();
    std::fs::copy(&model, path("pipeline/divide.onnx")).unwrap();
    std::fs::write(path("pipeline/..settings/gpux.yml"), "name: linked\nversion: 1\nmodel: { source: divide.onnx }\n")
        .unwrap();
    std::os::unix::fs::symlink("..settings/gpux.yml", path("pipeline/gpux.yml")).unwrap();
    std::os::unix::fs::symlink("blobs/4f2a", path("alone.onnx")).unwrap();
    let (pipeline, alone) = (path("pipeline"), path("alone.onnx"));
    let mut command = program();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0", "--isolation", "pipeline", "--engine", "embedded"]);
    command.args([pipeline, alone]).current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null());
    let server = Server::of(command);
    assert_eq!((ask(&server, "linked", GOOD).0, ask(&server, "alone", GOOD).0), (200, 200));
}

#[test]
fn the_operators_cache_gives_a_pipeline_what_building_it_made() {
    let cache = tempfile::tempdir().unwrap();
    let mut build = program();
    build.args(["build", "gpux.yml", "--engine", "embedded"]).current_dir(root()).env("GPUX_CACHE_DIR", cache.path());
    let built = build.run();
    assert!(built.status.success(), "{built:?}");
    let mut command = serve(&["gpux.yml", "--engine", "embedded"]);
    command.env("GPUX_CACHE_DIR", cache.path());
    let server = Server::of(command);
    assert_eq!(seven(&server), 200);
    let entries = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
    let own = std::fs::read_dir(cache.path().join("pipelines")).unwrap().next().unwrap().unwrap().path();
    assert!(entries(&cache.path().join("steps")) > 0);
    assert_eq!(entries(&own.join("steps")), 0, "the component was compiled again");
}

#[test]
fn tokenizers_of_the_hugging_face_cache_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["pipeline", "hub/models--some--bert/blobs", "hub/models--some--bert/snapshots/1"] {
        std::fs::create_dir_all(path(name)).unwrap();
    }
    let blob = path("hub/models--some--bert/blobs/9c1e");
    std::fs::copy(root().join("tests/reference/builtin/tokenize/wordpiece.json"), blob).unwrap();
    let link = path("hub/models--some--bert/snapshots/1/tokenizer.json");
    std::os::unix::fs::symlink("../../blobs/9c1e", link).unwrap();
    let file = "name: tokens\nversion: 1\ninputs: { text: text }\npipeline:\n  - tokenize: { tokenizer: some/bert }\n";
    std::fs::write(path("pipeline/gpux.yml"), file).unwrap();
    let mut command = program();
    command.args(["serve", "pipeline", "--host", "127.0.0.1", "--port", "0", "--isolation", "pipeline"]);
    command.current_dir(folder.path()).env("HF_HUB_CACHE", path("hub")).stdin(Stdio::null()).stdout(Stdio::null());
    let server = Server::of(command);
    assert_eq!(ask(&server, "tokens", r#"{"text": "the fox"}"#).0, 200);
}

#[test]
fn shapes_other_than_declared_are_answered() {
    if !onnxruntime_is_there() {
        return;
    }
    for isolation in ["pipeline", "none"] {
        let mut server = Server::spawn(serve(&["tests/models/misdeclared.onnx", "--isolation", isolation]));
        let (first, second) = (server.line("misdeclared: "), server.line("misdeclared: "));
        assert!(first.contains("`label` is declared as tensor int64[1], but axis 0 is 2, not 1"), "{first}");
        assert!(second.contains("`scores` is declared as tensor float32[rows], but it has 2 axes, not 1"), "{second}");
        server.wait_until_ready();
        let (status, answer) = ask(&server, "misdeclared", r#"{"x": [[0, 1], [2, 0]]}"#);
        assert_eq!((status, answer), (200, json!({ "label": [1, 0], "scores": [[0.0, 1.0], [2.0, 0.0]] })));
    }
}
