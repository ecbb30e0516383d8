//! Pipelines in folders that others provide: in another process's mount namespace, as KServe's modelcars do, and on
//! a read-only mount of another user, as Kubernetes mounts an image.

use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::child::{StartWithLimit as _, command, program};
use crate::digits::{onnxruntime_is_there, root, stdout};
use crate::test_server::Server;

/// In a cluster, users are numbers without names.
const USER: u32 = 65532;
const OTHER_USER: u32 = 1010;

const PHOTO: &str = "models/samples/seven.png";
const EXTERNAL: &str = "name: external
version: 1.0.0
model: { source: ./external.onnx }
inputs: { x: { type: float32, shape: [4] } }
pipeline: [model]
";
const WORDS: &str = "name: words
version: 1.0.0
inputs: { text: { type: string } }
pipeline:
  - tokenize: { tokenizer: ./tokenizer.json }
";
const WORDS_CASE: &str = "inputs: { text: a }
outputs:
  input_ids: { type: int64, shape: [1, 3], data: [2, 30, 3] }
  attention_mask: { type: int64, shape: [1, 3], data: [1, 1, 1] }
  token_type_ids: { type: int64, shape: [1, 3], data: [0, 0, 0] }
";

/// Makes `$1` the `/models` of a root at `$2`, and stays there as the user `$3` until its input ends.
const MODELCAR: &str = r#"
set -e
mount -t tmpfs tmpfs "$2"
mkdir "$2/models" "$2/usr" "$2/proc" "$2/old"
mount --bind /usr "$2/usr"
mount --bind /proc "$2/proc"
mount --bind "$1" "$2/models"
mount --bind /proc "$2/models/proc"
for name in bin lib lib64; do ln -s "usr/$name" "$2/$name"; done
cd "$2"
pivot_root . old
exec setpriv --reuid "$3" --regid "$3" --clear-groups sh -c "echo ready; read -r end"
"#;

/// Runs the command as the user `$2`, where `$1` is a mount that cannot be written.
const READ_ONLY: &str = r#"
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
user=$2
shift 2
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
"#;

/// A process with the pipelines in its own mount namespace, and a link to them.
struct Modelcar {
    process: Child,
    folder: TempDir,
}

impl Modelcar {
    fn start(models: &Path, user: u32) -> Self {
        let folder = public_folder();
        let new_root = folder.path().join("root");
        std::fs::create_dir(&new_root).unwrap();
        let mut start = in_mount_namespace(MODELCAR);
        let mut process = start.arg(models).arg(new_root).arg(user.to_string()).stdin(Stdio::piped()).start();
        let mut said = [0; 6];
        process.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        symlink(format!("/proc/{}/root/models", process.id()), folder.path().join("models")).unwrap();
        Self { process, folder }
    }

    fn path(&self, name: &str) -> String {
        let models = self.folder.path().join("models");
        if name.is_empty() { models } else { models.join(name) }.to_str().unwrap().to_owned()
    }
}

impl Drop for Modelcar {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn in_mount_namespace(script: &str) -> Command {
    let mut command = command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    command
}

/// Whether this user makes mount namespaces, and other users can run the program.
fn can_be_tried() -> bool {
    let mut tried = in_mount_namespace(READ_ONLY);
    let folder = public_folder();
    let tried = tried.arg(folder.path()).arg(USER.to_string()).arg(program().get_program()).arg("--version").run();
    if !tried.status.success() {
        eprintln!("skipped: no mount namespace: {}", String::from_utf8_lossy(&tried.stderr).trim());
    }
    tried.status.success()
}

fn public_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

/// Pipelines with a component, labels, a tokenizer and weights beside their model, which only their owner may write.
fn pipelines() -> TempDir {
    let folder = public_folder();
    let files = [
        ("gpux.yml", "gpux.yml"),
        ("models/digits.onnx", "models/digits.onnx"),
        ("models/digits.labels.txt", "models/digits.labels.txt"),
        ("guest-examples/rust/center-ink.wasm", "guest-examples/rust/center-ink.wasm"),
        ("tests/models/external.onnx", "external/external.onnx"),
        ("tests/models/weights.bin", "external/weights.bin"),
        ("tests/cases/pipelines/files/tokenizer.json", "words/tokenizer.json"),
    ];
    for (from, to) in files {
        write(folder.path(), to, &std::fs::read(root().join(from)).unwrap());
    }
    write(folder.path(), "external/gpux.yml", EXTERNAL.as_bytes());
    write(folder.path(), "words/gpux.yml", WORDS.as_bytes());
    write(folder.path(), "words/tests/a/case.yml", WORDS_CASE.as_bytes());
    // Where a modelcar's container has its own.
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    folder
}

/// A file that everybody may read and nobody write.
fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    chown(&path, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
}

/// The program as this user, who owns nothing but its cache.
fn program_of(user: u32, cache: &TempDir) -> Command {
    chown(cache.path(), Some(user), Some(user)).unwrap();
    let mut command = command("setpriv");
    command.args(["--reuid", &user.to_string(), "--regid", &user.to_string(), "--clear-groups"]);
    command.arg(program().get_program());
    with_cache(&mut command, cache);
    command
}

fn with_cache(command: &mut Command, cache: &TempDir) {
    command.env("GPUX_CACHE_DIR", cache.path().join("gpux")).env("TMPDIR", cache.path()).env_remove("HOME");
    command.current_dir("/");
}

fn add_serve(command: &mut Command, pipelines: &[String], isolation: &str) {
    let options = ["serve", "--host", "127.0.0.1", "--port", "0", "--isolation", isolation];
    command.args(options).args(pipelines).stdout(Stdio::null());
}

fn ask(server: &Server, pipeline: &str, kind: &str, body: &[u8]) -> Json {
    let path = format!("/pipelines/{pipeline}/predict");
    let answer = server.ask("POST", &path, &[&format!("content-type: {kind}")], body);
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!(answer.status, 200, "{pipeline}: {text}");
    serde_json::from_str(&text).unwrap()
}

fn check_answers(server: &Server) {
    let photo = std::fs::read(root().join(PHOTO)).unwrap();
    assert_eq!(ask(server, "digits", "image/png", &photo)["top"][0]["label"], "seven");
    ask(server, "words", "application/json", br#"{"text": "a"}"#);
}

#[test]
fn serves_pipelines_in_another_mount_namespace() {
    if !can_be_tried() {
        return;
    }
    let (models, cache) = (pipelines(), public_folder());
    let modelcar = Modelcar::start(models.path(), USER);
    let mut pipelines = vec![modelcar.path(""), modelcar.path("words")];
    for isolation in ["none", "pipeline"] {
        let mut command = program_of(USER, &cache);
        add_serve(&mut command, &pipelines, isolation);
        check_answers(&Server::of(command));
    }

    // Engines follow the text of links: weights beside a model are given to them in another way.
    if onnxruntime_is_there() {
        pipelines.push(modelcar.path("external"));
        for isolation in ["none", "pipeline"] {
            let mut command = program();
            add_serve(&mut command, &pipelines, isolation);
            let server = Server::of(command);
            check_answers(&server);
            let answer = ask(&server, "external", "application/json", br#"{"x": [1, 2, 3, 4]}"#);
            assert_eq!(answer, json!({ "y": [2.0, 4.0, 6.0, 8.0] }));
        }
    }
}

#[test]
fn runs_tests_and_inspects_pipelines_in_another_mount_namespace() {
    if !can_be_tried() {
        return;
    }
    let (models, cache) = (pipelines(), public_folder());
    let modelcar = Modelcar::start(models.path(), USER);
    let run = |arguments: &[&str]| stdout(&program_of(USER, &cache).args(arguments).run());
    let (digits, model) = (modelcar.path(""), modelcar.path("models/digits.onnx"));
    let photo = models.path().join("seven.png");
    std::fs::copy(root().join(PHOTO), &photo).unwrap();
    let answer: Json = serde_json::from_str(&run(&["run", &digits, "--file", photo.to_str().unwrap()])).unwrap();
    assert_eq!(answer["top"][0]["label"], "seven");
    assert!(run(&["inspect", &digits]).contains("center-ink.wasm"));
    assert!(run(&["inspect", &model]).contains("digits"));
    assert!(run(&["test", &modelcar.path("words")]).contains("1 passed"));

    // The working directory has no path here.
    let within = program_of(USER, &cache).args(["inspect", "."]).current_dir(&digits).run();
    assert!(stdout(&within).contains("center-ink.wasm"));

    // Another user may not follow the link, and nobody may once its process has ended.
    let refused = program_of(OTHER_USER, &cache).args(["inspect", &digits]).run();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(
        told.contains("(Permission denied (os error 13)); that process must be running, as the same user"),
        "{told}"
    );
    drop_process(modelcar, |path| {
        let told = program_of(USER, &cache).args(["inspect", path]).run().stderr;
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains("(No such file or directory (os error 2)); that process must be running"), "{told}");
    });
}

#[test]
fn pipelines_in_another_mount_namespace_stay_in_their_folder() {
    if !can_be_tried() {
        return;
    }
    let (models, cache) = (pipelines(), public_folder());
    let modelcar = Modelcar::start(models.path(), USER);
    let process = modelcar.process.id();
    let link = |target: &str, name: &str| symlink(target, models.path().join(name)).unwrap();
    link("/etc/hostname", "absolute");
    link("/models/models/digits.labels.txt", "own-absolute");
    link("../usr/bin/env", "above");
    link("models/digits.labels.txt", "inside");
    link("/proc/self/root/etc/hostname", "through-self");
    link(&format!("/proc/{process}/root/models/models/digits.labels.txt"), "same");
    link(&format!("/proc/{process}/root/usr/bin/env"), "other");
    link(&format!("proc/{process}/root/usr/bin/env"), "below");
    let text = std::fs::read_to_string(root().join("gpux.yml")).unwrap();
    let inspect = |labels: &str| {
        let path = models.path().join("gpux.yml");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, text.replace("./models/digits.labels.txt", labels)).unwrap();
        let output = program_of(USER, &cache).args(["inspect", &modelcar.path("")]).run();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    for labels in ["./inside", "./same"] {
        let (is_allowed, told) = inspect(labels);
        assert!(is_allowed, "{labels}: {told}");
    }
    let below = format!("./proc/{process}/root/usr/bin/env");
    for labels in ["./absolute", "./above", "./through-self", "./other", "./below", &below, "../usr/bin/env"] {
        let (is_allowed, told) = inspect(labels);
        assert!(!is_allowed && told.contains("leads out of the pipeline's folder"), "{labels}: {told}");
    }
    // As the system has it: an absolute link begins in the namespace of who follows it.
    let (is_allowed, told) = inspect("./own-absolute");
    assert!(!is_allowed && told.contains("no file at `./own-absolute`"), "{told}");

    // What is bundled stays in the folder as well.
    inspect("./models/digits.labels.txt");
    let bundle = || program_of(USER, &cache).args(["bundle", &modelcar.path(""), "--dry-run"]).run();
    let output = bundle();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    link("/etc/hostname", "LICENSE");
    let output = bundle();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("LICENSE"), "{told}");
}

#[test]
fn serves_read_only_volumes_of_other_users() {
    if !can_be_tried() {
        return;
    }
    let (models, cache) = (pipelines(), public_folder());
    for isolation in ["none", "pipeline"] {
        chown(cache.path(), Some(USER), Some(USER)).unwrap();
        let mut command = in_mount_namespace(READ_ONLY);
        command.arg(models.path()).arg(USER.to_string()).arg(program().get_program());
        with_cache(&mut command, &cache);
        let path = |name: &str| models.path().join(name).to_str().unwrap().to_owned();
        add_serve(&mut command, &[path(""), path("words")], isolation);
        check_answers(&Server::of(command));
    }
}

#[test]
fn isolated_pipelines_reach_no_other_mount_namespace_by_links_in_their_folder() {
    if !can_be_tried() {
        return;
    }
    let models = pipelines();
    let modelcar = Modelcar::start(models.path(), USER);
    let folder = public_folder();
    for name in ["gpux.yml", "models", "guest-examples"] {
        let target = format!("/proc/{}/root/models/{name}", modelcar.process.id());
        symlink(target, folder.path().join(name)).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let told = String::from_utf8(program().args(["inspect", path]).run().stderr).unwrap();
    assert!(told.contains("leads out of its folder; pass `--allow-outside` to permit that"), "{told}");
    assert!(stdout(&program().args(["inspect", path, "--allow-outside"]).run()).contains("center-ink.wasm"));
    let isolated = ["serve", path, "--allow-outside", "--isolation", "pipeline", "--host", "127.0.0.1", "--port", "0"];
    let told = String::from_utf8(program().args(isolated).run().stderr).unwrap();
    assert!(told.contains("with `--isolation pipeline` only a pipeline's own folder may lie there"), "{told}");
}

/// Ends the process, and has its link looked at.
fn drop_process(mut modelcar: Modelcar, check: impl Fn(&str)) {
    modelcar.process.kill().unwrap();
    modelcar.process.wait().unwrap();
    check(&modelcar.path(""));
}
