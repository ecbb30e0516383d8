//! `gpux bundle`, from outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::child::{StartWithLimit as _, command, program};
use crate::digits::{gpux, onnxruntime_is_there, root, stdout};

const PIPELINE: &str = "name: scores\nversion: 1.2.0\ndescription: Makes scores of numbers\n\
    metadata: { license: Apache-2.0 }\ninputs: { x: { type: float32, shape: [3] } }\npipeline: [softmax]\n\
    outputs: { scores: { type: float32, labels: ./data/labels.txt } }\n";
const CASE: &str = "inputs: { x: { file: ../shared/x.npy } }\noutputs: { scores: [0.09, 0.24, 0.66] }\n";

/// A folder with a pipeline in `p`, and more.
fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("p/gpux.yml", PIPELINE),
        ("p/data/labels.txt", "one\ntwo\nthree\n"),
        ("p/data/other.txt", "not named"),
        ("p/README.md", "# Scores\n"),
        ("p/LICENSE-APACHE", "licence"),
        ("p/gpux.lock", "version = 1\n"),
        ("p/tests/first/case.yml", CASE),
        ("p/tests/first/photo.bin", "with the case"),
        ("p/tests/first/.DS_Store", "of a desktop"),
        ("p/tests/shared/x.npy", "an array"),
        ("p/tests/shared/unused.npy", "another"),
        ("p/train.py", "print()"),
        ("p/target/debug/deps/a.rlib", "a library"),
        ("p/target/b", "b"),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn in_folder(folder: &Path, arguments: &[&str]) -> Output {
    program().args(arguments).current_dir(folder).run()
}

fn bundle(folder: &Path, arguments: &[&str]) -> Json {
    serde_json::from_str(&stdout(&in_folder(folder, &[&["bundle", "--json"], arguments].concat()))).unwrap()
}

/// The error of a bundle that is not made, with exit code 2.
fn error(folder: &Path, arguments: &[&str]) -> String {
    let output = in_folder(folder, &[&["bundle"], arguments].concat());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    text
}

fn paths(bundle: &Json) -> BTreeMap<&str, &str> {
    let files = bundle["files"].as_array().unwrap().iter();
    files.map(|file| (file["path"].as_str().unwrap(), file["role"].as_str().unwrap())).collect()
}

/// Puts the files of a bundle that is a folder into another one.
fn unpack(layout: &Path, folder: &Path) {
    let read = |digest: &Json| {
        let digest = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
        std::fs::read(layout.join("blobs/sha256").join(digest)).unwrap()
    };
    let index: Json = serde_json::from_slice(&std::fs::read(layout.join("index.json")).unwrap()).unwrap();
    let manifest: Json = serde_json::from_slice(&read(&index["manifests"][0]["digest"])).unwrap();
    for layer in manifest["layers"].as_array().unwrap() {
        let path = folder.join(layer["annotations"]["org.cncf.model.filepath"].as_str().unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, read(&layer["digest"])).unwrap();
    }
}

#[test]
fn takes_what_the_pipeline_names_and_nothing_else() {
    let folder = project();
    let made = bundle(folder.path(), &["p"]);
    let expected = [
        ("LICENSE-APACHE", "doc"),
        ("README.md", "doc"),
        ("data/labels.txt", "weight.config"),
        ("gpux.lock", "code"),
        ("gpux.yml", "code"),
        ("tests/first/case.yml", "dataset"),
        ("tests/first/photo.bin", "dataset"),
        ("tests/shared/x.npy", "dataset"),
    ];
    assert_eq!(paths(&made), expected.into());
    assert_eq!((&made["name"], &made["version"]), (&json!("scores"), &json!("1.2.0")));
    assert_eq!(made["file"], "scores-1.2.0.tar");
    assert_eq!(made["annotations"]["org.opencontainers.image.licenses"], "Apache-2.0");
    assert_eq!(made["left_out"]["files"], 6);
    let left_out = made["left_out"]["largest"].as_array().unwrap();
    let left_out: Vec<_> = left_out.iter().map(|group| group["path"].as_str().unwrap()).collect();
    assert_eq!(left_out, ["tests/first/.DS_Store", "target/", "data/other.txt", "tests/shared/unused.npy", "train.py"]);
    assert!(folder.path().join("scores-1.2.0.tar").is_file());

    let layout = bundle(folder.path(), &["p/gpux.yml", "-o", "layout/"]);
    assert_eq!(layout["digest"], made["digest"]);
    let other = folder.path().join("other");
    unpack(&folder.path().join("layout"), &other);
    assert_eq!(std::fs::read_to_string(other.join("gpux.yml")).unwrap(), PIPELINE);
    assert_eq!(bundle(&other, &["--dry-run"])["digest"], made["digest"], "a bundle's files make the same bundle");
}

#[test]
fn says_what_is_left_out_and_prints_the_digest_last() {
    let folder = project();
    let output = in_folder(folder.path(), &["bundle", "p", "--dry-run"]);
    let shown = stdout(&output);
    let digest = shown.lines().last().unwrap();
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{shown}");
    assert!(shown.contains("scores 1.2.0: 8 files") && shown.contains("not written"), "{shown}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("left out: 6 files") && notes.contains("target/ (10 B, 2 files)"), "{notes}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written");
}

#[cfg(unix)]
#[test]
fn the_same_files_give_the_same_bundle_whoever_makes_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = project();
    let first = bundle(folder.path(), &["p", "-o", "first.tar"]);
    let copy = folder.path().join("elsewhere/deeper/q");
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    std::fs::rename(folder.path().join("p"), &copy).unwrap();
    for path in ["gpux.yml", "data/labels.txt"] {
        let file = std::fs::File::options().write(true).open(copy.join(path)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let script = format!(
        "umask 077; TZ=Asia/Tokyo LANG=tr_TR.UTF-8 exec {} bundle -o ../second.tar --json",
        env!("CARGO_BIN_EXE_gpux")
    );
    let second = command("sh").args(["-c", &script]).current_dir(&copy).run();
    let second: Json = serde_json::from_str(&stdout(&second)).unwrap();
    assert_eq!(second["digest"], first["digest"]);
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let (first, second) = (folder.path().join("first.tar"), copy.parent().unwrap().join("second.tar"));
    assert!(read(first) == read(second.clone()), "the archives differ");
    assert_eq!(second.metadata().unwrap().permissions().mode() & 0o777, 0o600, "the user's own umask holds");
}

#[test]
fn replaces_no_file_unless_forced() {
    let folder = project();
    std::fs::write(folder.path().join("x.tar"), "mine").unwrap();
    assert!(error(folder.path(), &["p", "-o", "x.tar"]).contains("`x.tar` exists; `--force` replaces it"));
    assert_eq!(std::fs::read_to_string(folder.path().join("x.tar")).unwrap(), "mine");
    bundle(folder.path(), &["p", "-o", "x.tar", "--force"]);
    assert!(folder.path().join("x.tar").metadata().unwrap().len() > 4);
    assert!(error(folder.path(), &["p", "-o", "p", "--force"]).contains("the folder `p` is not empty"));
    assert!(error(folder.path(), &["p", "-o", "-"]).contains("a bundle is written to a file"));
    let nowhere = in_folder(folder.path(), &["bundle", "p", "-o", "none/x.tar"]);
    assert_eq!(nowhere.status.code(), Some(1));
    let entries = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(entries.count(), 2, "nothing half written is left");
}

#[test]
fn refuses_what_cannot_travel() {
    let folder = project();
    let write = |path: &str, bytes: &[u8]| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("p/tests/first/helper", b"\x7fELF\x02\x01\x01");
    assert!(error(folder.path(), &["p"]).contains("`tests/first/helper` is machine code (ELF)"));
    std::fs::remove_file(folder.path().join("p/tests/first/helper")).unwrap();
    write("p/tests/first/nul.txt", b"");
    assert!(error(folder.path(), &["p"]).contains("is that of a device on Windows"));
    std::fs::remove_file(folder.path().join("p/tests/first/nul.txt")).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("p/tests/first/link")).unwrap();
        assert!(error(folder.path(), &["p"]).contains("is a link that leads out of the pipeline's folder"));
        std::fs::remove_file(folder.path().join("p/tests/first/link")).unwrap();
    }
    let grant = |dirs: &str| {
        let step = format!("pipeline: [{{ wasm: {{ component: ./step.wasm, grant: {{ dirs: [{dirs}] }} }} }}]\n");
        write("p/step.wasm", b"\0asm\x0d\0\x01\0");
        write("p/gpux.yml", format!("name: g\nversion: 1.0.0\ninputs: {{ x: text }}\n{step}").as_bytes());
    };
    grant("\"./data:rw\"");
    assert!(error(folder.path(), &["p"]).contains("grants a component to write to the folder `./data`"));
    std::fs::create_dir(folder.path().join("p/empty")).unwrap();
    grant("./empty");
    assert!(error(folder.path(), &["p"]).contains("the folder `empty`, which is empty"));
    grant("./data");
    let granted = bundle(folder.path(), &["p", "--dry-run"]);
    assert_eq!(paths(&granted)["data/other.txt"], "code");
    assert_eq!(paths(&granted)["step.wasm"], "code");
    write("p/gpux.yml", PIPELINE.replace("labels.txt", "lables.txt").as_bytes());
    assert!(error(folder.path(), &["p"]).contains("did you mean `./data/labels.txt`?"));
    write("model.onnx", b"?");
    assert!(error(folder.path(), &["model.onnx"]).contains("has no gpux.yml, which a bundle needs"));
}

#[test]
fn files_from_outside_come_along_if_asked() {
    let folder = project();
    let text = PIPELINE.replace("./data/labels.txt", "\"../shared labels.txt\"") + "# ../shared labels.txt\n";
    std::fs::write(folder.path().join("p/gpux.yml"), &text).unwrap();
    std::fs::rename(folder.path().join("p/data/labels.txt"), folder.path().join("shared labels.txt")).unwrap();
    assert!(error(folder.path(), &["p"]).contains("pass `--allow-outside`"));
    let refused = error(folder.path(), &["p", "--allow-outside"]);
    assert!(refused.contains("outside of its folder: `../shared labels.txt`; `--vendor`"), "{refused}");
    let made = bundle(folder.path(), &["p", "--vendor", "-o", "layout/"]);
    assert_eq!(paths(&made)["vendor/shared labels.txt"], "weight.config");
    unpack(&folder.path().join("layout"), &folder.path().join("other"));
    let rewritten = std::fs::read_to_string(folder.path().join("other/gpux.yml")).unwrap();
    assert_eq!(rewritten, text.replacen("../shared labels.txt", "vendor/shared labels.txt", 1));
    assert!(in_folder(folder.path(), &["inspect", "other"]).status.success());

    // A file of its own lies where copies go; a description is only read.
    let text = text.replace("Makes scores of numbers", "\"../shared labels.txt\"");
    let own = folder.path().join("p/vendor/shared labels.txt");
    std::fs::create_dir(own.parent().unwrap()).unwrap();
    std::fs::write(own, "three\ntwo\none\n").unwrap();
    let step = "{ top-k: { k: 1, labels: ./vendor/shared labels.txt } }";
    let text = text.replace("[softmax]", &format!("[softmax, {step}]"));
    std::fs::write(folder.path().join("p/gpux.yml"), &text).unwrap();
    let made = bundle(folder.path(), &["p", "--vendor", "-o", "second/"]);
    assert!(paths(&made).contains_key("vendor/shared labels.txt"), "{made}");
    unpack(&folder.path().join("second"), &folder.path().join("third"));
    let read = |path: &str| std::fs::read_to_string(folder.path().join("third").join(path)).unwrap();
    assert_eq!(read("vendor/shared labels.txt"), "three\ntwo\none\n");
    assert_eq!(read("vendor-2/shared labels.txt"), "one\ntwo\nthree\n");
    assert!(read("gpux.yml").contains("description: \"../shared labels.txt\""), "{}", read("gpux.yml"));
}

#[test]
fn weights_in_other_files_come_along() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for name in ["external.onnx", "weights.bin"] {
        for place in ["p/m/", "shared/"] {
            write(&format!("{place}{name}"), "");
            std::fs::copy(root().join("tests/models").join(name), folder.path().join(place).join(name)).unwrap();
        }
    }
    write("p/gpux.yml", "name: m\nversion: 1.0.0\nmodel: { source: ./m/external.onnx }\n");
    let made = bundle(folder.path(), &["p", "-o", "inside/"]);
    let expected = [("gpux.yml", "code"), ("m/external.onnx", "weight"), ("m/weights.bin", "weight")];
    assert_eq!(paths(&made), expected.into());

    // Outside, a file that is beside the model stays beside it.
    write("q/gpux.yml", "name: m\nversion: 1.0.0\nmodel: { source: '../shared/external.onnx' }\n");
    let made = bundle(folder.path(), &["q", "--vendor", "-o", "outside/"]);
    let expected = [("gpux.yml", "code"), ("vendor/external.onnx", "weight"), ("vendor/weights.bin", "weight")];
    assert_eq!(paths(&made), expected.into());
    for (layout, unpacked) in [("inside", "a"), ("outside", "b")] {
        unpack(&folder.path().join(layout), &folder.path().join(unpacked));
        let input = "x=[1, 2, 3, 4]";
        let run = |pipeline: &str| {
            stdout(&in_folder(folder.path(), &["run", pipeline, "--engine", "embedded", "--input", input]))
        };
        assert_eq!(run(unpacked), run("p"));
    }

    // As the hub's own client keeps files: links to blobs, which have other names.
    #[cfg(unix)]
    {
        let hub = folder.path().join("hub");
        let snapshot = hub.join("models--org--m/snapshots/abc");
        std::fs::create_dir_all(&snapshot).unwrap();
        write("hub/models--org--m/blobs/3", "name: m\nversion: 1.0.0\nmodel: ./external.onnx\n");
        for (blob, name) in [("1", "external.onnx"), ("2", "weights.bin"), ("3", "gpux.yml")] {
            let blobs = hub.join("models--org--m/blobs");
            if name != "gpux.yml" {
                std::fs::copy(root().join("tests/models").join(name), blobs.join(blob)).unwrap();
            }
            std::os::unix::fs::symlink(Path::new("../../blobs").join(blob), snapshot.join(name)).unwrap();
        }
        let mut command = program();
        command.args(["bundle", "--json", "--dry-run"]).arg(&snapshot).env("HF_HUB_CACHE", &hub);
        let made: Json = serde_json::from_str(&stdout(&command.run())).unwrap();
        let expected = [("external.onnx", "weight"), ("gpux.yml", "code"), ("weights.bin", "weight")];
        assert_eq!(paths(&made), expected.into());
    }
}

#[test]
fn a_bundle_of_an_example_gives_what_its_folder_gives() {
    if !onnxruntime_is_there() {
        eprintln!("skipped: there is no ONNX Runtime");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (example, input) in [
        ("examples/decoder", ["--input", "twinkle, "]),
        ("examples/detection", ["--file", "examples/detection/discs.png"]),
        ("examples/speech", ["--file", "examples/speech/high.wav"]),
        (
            "examples/tabular",
            ["--input", "[13.74, 1.67, 2.25, 16.4, 118, 2.6, 2.9, 0.21, 1.62, 5.85, 0.92, 3.2, 1060]"],
        ),
        ("examples/text-classification", ["--input", "A library for reading images"]),
        (".", ["--file", "models/samples/seven.png"]),
    ] {
        let output = folder.path().join("layout/");
        let output = output.to_str().unwrap();
        stdout(&gpux(&["bundle", example, "--vendor", "--with-engine", "-o", output]));
        let unpacked = folder.path().join("unpacked");
        unpack(Path::new(output), &unpacked);
        let run =
            |pipeline: &str| stdout(&gpux(&[&["run", pipeline, "--allow-outside", "--json"], &input[..]].concat()));
        assert_eq!(run(unpacked.to_str().unwrap()), run(example), "{example}");
        std::fs::remove_dir_all(output).unwrap();
        std::fs::remove_dir_all(unpacked).unwrap();
    }
}

#[test]
fn names_the_engine_if_asked() {
    if !onnxruntime_is_there() {
        eprintln!("skipped: there is no ONNX Runtime");
        return;
    }
    let made = bundle(&root(), &["--with-engine", "--dry-run", "--engine", "onnxruntime", "--provider", "cpu"]);
    let said = |key: &str| made["annotations"][format!("dev.gpux.engine{key}")].as_str().unwrap().to_owned();
    assert!(said("").starts_with("ONNX Runtime "), "{made}");
    assert!(said(".digest").starts_with("sha256:") && said(".provider") == "CPUExecutionProvider", "{made}");
    let plain = bundle(&root(), &["--dry-run"]);
    assert_eq!(plain["annotations"].get("dev.gpux.engine"), None);
    assert_ne!(plain["digest"], made["digest"]);
    let folder = project();
    assert!(error(folder.path(), &["p", "--with-engine"]).contains("the pipeline has no model"));
}

#[cfg(unix)]
#[test]
fn whatever_ends_it_there_is_a_whole_bundle_or_none() {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = project();
    // Reading zeros of a file with a hole costs nothing; writing them takes long enough to be ended.
    let large = std::fs::File::create(folder.path().join("p/tests/first/large.bin")).unwrap();
    large.set_len(3 << 30).unwrap();
    let staged = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
        entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(".gpux-bundle-"))
    };
    for (signal, is_left) in [(Signal::INT, false), (Signal::TERM, false), (Signal::KILL, true)] {
        let child = program().args(["bundle", "p", "-o", "x.tar"]).current_dir(folder.path()).start();
        let is_writing =
            || staged().is_some_and(|path| path.join("bundle").metadata().is_ok_and(|file| file.len() > 1 << 20));
        let started = std::time::Instant::now();
        while !is_writing() && started.elapsed() < std::time::Duration::from_mins(5) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait_with_output().unwrap().status.success());
        assert!(!folder.path().join("x.tar").exists(), "{signal:?}");
        assert_eq!(staged().is_some(), is_left, "{signal:?}");
    }
    // The next one removes that, once it is certain that nobody writes there.
    let left = staged().unwrap();
    let file = std::fs::File::options().write(true).open(left.join("lock")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    large.set_len(0).unwrap();
    file.lock().unwrap();
    bundle(folder.path(), &["p", "-o", "x.tar"]);
    assert_eq!(staged(), Some(left));
    file.unlock().unwrap();
    bundle(folder.path(), &["p", "-o", "x.tar", "--force"]);
    assert_eq!(staged(), None);
}

#[test]
#[cfg(unix)]
fn takes_nothing_through_links_that_lead_out() {
    use std::os::unix::fs::symlink;
    let folder = project();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("secret/case")).unwrap();
    std::fs::write(path("secret/case/case.yml"), CASE).unwrap();
    std::fs::write(path("secret/key"), "key").unwrap();

    symlink("../../secret/case", path("p/tests/linked")).unwrap();
    assert!(error(folder.path(), &["p"]).contains("tests/linked"));
    let output = in_folder(folder.path(), &["test", "p", "--bless"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`p/tests/linked` leads out of the pipeline's folder"), "{text}");
    assert_eq!(std::fs::read_to_string(path("secret/case/case.yml")).unwrap(), CASE);
    std::fs::remove_file(path("p/tests/linked")).unwrap();

    std::fs::copy(root().join("guest-examples/rust/center-ink.wasm"), path("p/step.wasm")).unwrap();
    let text = "name: p\nversion: 1.0.0\ninputs: { image: image }\npipeline:\n  - decode-image\n  \
        - wasm: { component: ./step.wasm, grant: { wasi: [stdio, clock, random], dirs: [./data] } }\n";
    std::fs::write(path("p/gpux.yml"), text).unwrap();
    std::fs::remove_dir_all(path("p/data")).unwrap();
    symlink("../secret", path("p/data")).unwrap();
    assert!(error(folder.path(), &["p", "--dry-run"]).contains("data/"));
    std::fs::remove_file(path("p/data")).unwrap();
    std::fs::create_dir_all(path("p/data/inner")).unwrap();
    std::fs::write(path("p/data/.env"), "hidden").unwrap();
    assert!(error(folder.path(), &["p", "--dry-run"]).contains("the folder `data/inner`, which is empty"));
    std::fs::remove_dir(path("p/data/inner")).unwrap();
    let text = String::from_utf8(in_folder(folder.path(), &["bundle", "p", "--dry-run"]).stderr).unwrap();
    assert!(text.contains("are in the bundle: `data/.env`"), "{text}");
}

/// Variables, names of tokenizers and what lies beside a model mean something else on another machine.
#[test]
fn a_bundle_does_not_depend_on_the_machine() {
    let folder = project();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let text = PIPELINE
        .replace("./data/labels.txt", "\"${GPUX_TEST_DATA:-./data}/labels.txt\"")
        .replace("Makes", "${GPUX_TEST_WORD:-Makes}");
    write("p/gpux.yml", &text);
    let plain = bundle(folder.path(), &["p", "--dry-run"]);
    let mut command = program();
    command.args(["bundle", "p", "--json", "--dry-run"]).current_dir(folder.path());
    let set = command.env("GPUX_TEST_DATA", "./tests").env("GPUX_TEST_WORD", "a secret").run();
    assert_eq!(serde_json::from_str::<Json>(&stdout(&set)).unwrap(), plain);
    write("p/gpux.yml", &text.replace(":-./data", ""));
    let refused = error(folder.path(), &["p"]);
    assert!(refused.contains("give each variable a default, as in `${GPUX_MODEL:-./model.onnx}`"), "{refused}");

    write("p/gpux.yml", &PIPELINE.replace("./data/labels", "./data/../data/labels"));
    assert!(error(folder.path(), &["p"]).contains("write the path from the folder, without `..`"));
    write("p/tokenizer.json", "{}");
    write("p/gpux.yml", "name: t\nversion: 1.0.0\npipeline: [{ tokenize: { tokenizer: bert-base-uncased } }]\n");
    assert!(error(folder.path(), &["p"]).contains("the tokenizer `bert-base-uncased` is found by its name"));

    for name in ["digits.onnx", "digits.fp16.onnx", "digits.int8.onnx"] {
        std::fs::copy(root().join("models/digits.onnx"), folder.path().join("p").join(name)).unwrap();
    }
    for (precision, expected) in [
        ("exact", &["digits.onnx"][..]),
        ("fp16", &["digits.fp16.onnx", "digits.onnx"]),
        ("auto", &["digits.fp16.onnx", "digits.int8.onnx", "digits.onnx"]),
    ] {
        write(
            "p/gpux.yml",
            &format!("name: d\nversion: 1.0.0\nmodel: {{ source: ./digits.onnx, precision: {precision} }}\n"),
        );
        let made = bundle(folder.path(), &["p", "--dry-run"]);
        let weights: Vec<_> =
            paths(&made).into_iter().filter(|(_, role)| *role == "weight").map(|(path, _)| path).collect();
        assert_eq!(weights, expected, "{precision}");
    }
}

#[test]
fn names_what_compressed_an_archive() {
    let folder = project();
    std::fs::write(folder.path().join("x.tar.zst"), b"\x28\xb5\x2f\xfd compressed").unwrap();
    for command in ["run", "inspect"] {
        let output = in_folder(folder.path(), &[command, "x.tar.zst"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("it is compressed with zstd"), "{text}");
    }
}

#[test]
fn writes_over_nothing_that_it_was_not_told_to() {
    let folder = project();
    let path = |name: &str| folder.path().join(name);
    for own in ["p/gpux.yml", "p/data/labels.txt", "p/README.md"] {
        assert!(error(folder.path(), &["p", "-o", own, "--force"]).contains("is a file of the pipeline"));
    }
    assert_eq!(std::fs::read_to_string(path("p/gpux.yml")).unwrap(), PIPELINE);
    std::fs::create_dir(path("empty")).unwrap();
    bundle(folder.path(), &["p", "-o", "empty"]);
    assert!(path("empty/index.json").is_file());
    #[cfg(unix)]
    {
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        assert!(error(folder.path(), &["p", "-o", "socket", "--force"]).contains("is no file, and is not replaced"));
        // What looks like the rest of a killed bundle, and is a link to a folder of somebody's.
        std::fs::create_dir(path("bin")).unwrap();
        std::fs::write(path("bin/bundle"), "a program").unwrap();
        let file = std::fs::File::options().write(true).open(path("bin/bundle")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        std::os::unix::fs::symlink("bin", path(".gpux-bundle-x")).unwrap();
        bundle(folder.path(), &["p"]);
        assert!(path("bin/bundle").is_file());
    }
}
