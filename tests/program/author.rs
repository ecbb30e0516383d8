//! `gpux new`, and the cases of `gpux test`: `--bless`, `--record`, `--replay`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::child::{StartWithLimit as _, program};
use crate::digits::{root, stdout};

const CENTER_INK: &str = "guest-examples/rust/center-ink.wasm";
const SEVEN: &str = "models/samples/seven.png";

/// The program in a folder of its own.
pub(crate) fn gpux_in(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program();
    command
        .args(arguments)
        .current_dir(folder)
        .env("GPUX_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/author-cache"));
    command
}

pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    gpux_in(folder, arguments).run()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn json(output: &Output) -> Json {
    assert!(!output.stdout.is_empty(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The digits pipeline in a folder where nothing else is.
fn digits() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["gpux.yml", CENTER_INK, SEVEN, "models/digits.onnx", "models/digits.labels.txt"] {
        let to = folder.path().join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root().join(file), to).unwrap();
    }
    folder
}

#[test]
fn new_pipelines_around_models_pass_their_tests() {
    let folder = tempfile::tempdir().unwrap();
    for (model, task, steps) in [
        ("models/digits.onnx", "image", &["channels: gray", "size: [8, 8]", "top-k"][..]),
        ("examples/image-classification/model.onnx", "image", &["imagenet", "top-k"]),
        ("examples/detection/discs.onnx", "image", &["letterbox", "nms"]),
        ("examples/text-classification/model.onnx", "text", &["./tokenizer.json", "softmax", "top-k"]),
        ("examples/sentence-embedding/model.onnx", "text", &["mean-pool", "l2-normalize"]),
        ("examples/speech/encoder.onnx", "audio", &["decode-audio", "n_mels: 80, chunk_length: 2"]),
        ("tests/models/external.onnx", "table", &[]),
        ("tests/models/face.onnx", "image", &["- top-k: { in: softmax_1, k: 2 }"]),
        ("tests/models/ultralytics.onnx", "image", &["letterbox: { size: [64, 96]", "nms", "labels: ./labels.txt"]),
        ("tests/models/voice.onnx", "audio", &["expand: { axes: 0, out: input }"]),
        ("tests/models/flip-int64.onnx", "tensor", &[]),
    ] {
        let name = format!("around-{}", model.replace(['/', '.', '_'], "-"));
        let path = root().join(model).display().to_string();
        let made = run(folder.path(), &["new", "pipeline", &name, "--model", &path, "--task", task, "--json"]);
        assert!(made.status.success(), "{model}: {}", stderr(&made));
        let project = folder.path().join(&name);
        let text = read(project.join("gpux.yml"));
        for step in steps {
            assert!(text.contains(step), "{model}: no {step} in\n{text}");
        }
        let tested = run(&project, &["test"]);
        assert!(tested.status.success() && stdout(&tested).contains("passed  sample"), "{model}: {}", stderr(&tested));
    }
}

#[test]
fn new_pipelines_guess_what_a_model_takes() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, model: &str, more: &[&str]| {
        let path = root().join(model).display().to_string();
        run(folder.path(), &[&["new", "pipeline", name, "--model", &path, "--json"], more].concat())
    };
    let labels = root().join("models/digits.labels.txt").display().to_string();
    let digits = make("digits", "models/digits.onnx", &["--labels", &labels]);
    assert_eq!(json(&digits)["task"], "image");
    assert!(read(folder.path().join("digits/gpux.yml")).contains("labels: ./labels.txt"));
    let result = run(&folder.path().join("digits"), &["run", root().join(SEVEN).to_str().unwrap(), "--json"]);
    assert!(json(&result).to_string().contains("\"label\""), "{}", stderr(&result));

    for (model, task) in [
        ("tests/models/words.onnx", "tensor"),
        ("tests/models/loop.onnx", "tensor"),
        ("tests/models/voice.onnx", "audio"),
        ("tests/models/ultralytics.onnx", "image"),
        ("tests/models/kinds.onnx", "table"),
    ] {
        let made = make(Path::new(model).file_stem().unwrap().to_str().unwrap(), model, &[]);
        assert_eq!(json(&made)["task"], task, "{model}: {}", stderr(&made));
    }
    assert_eq!(read(folder.path().join("ultralytics/labels.txt")), "cat\ndriver's seat\n");

    // The names of a table's classes are used, or refused.
    let names = folder.path().join("names.txt");
    std::fs::write(&names, "asks\ncancels\nstays\n").unwrap();
    let named = |name: &str, model: &str| make(name, model, &["--labels", names.to_str().unwrap()]);
    let table = named("table", "tests/models/kinds.onnx");
    assert!(table.status.success(), "{}", stderr(&table));
    let text = read(folder.path().join("table/gpux.yml"));
    assert!(text.contains("- top-k: { in: probabilities, k: 3, labels: ./labels.txt }"), "{text}");
    let unused = named("unused", "tests/models/external.onnx");
    let told = stderr(&unused);
    assert!(
        unused.status.code() == Some(2) && told.contains("nothing that the 3 labels of --labels could name"),
        "{told}"
    );
    assert!(!folder.path().join("unused").exists());

    for (model, message) in [
        ("tests/models/embedding.onnx", "needs its tokenizer"),
        ("README.md", "not a valid ONNX model"),
        ("none.onnx", "none.onnx"),
    ] {
        let refused = make("refused", model, &[]);
        assert!(!refused.status.success() && stderr(&refused).contains(message), "{model}: {}", stderr(&refused));
        assert!(!folder.path().join("refused").exists(), "{model}");
    }
    assert!(make("digits", "models/digits.onnx", &[]).stdout.is_empty(), "the folder is there already");

    // Weights would lie where the test does.
    let weights = folder.path().join("weights");
    std::fs::create_dir_all(weights.join("tests")).unwrap();
    std::fs::copy(root().join("tests/models/weights.bin"), weights.join("tests/a.bin")).unwrap();
    let mut model = std::fs::read(root().join("tests/models/external.onnx")).unwrap();
    let name = model.windows(11).position(|part| part == b"weights.bin").unwrap();
    model[name..name + 11].copy_from_slice(b"tests/a.bin");
    std::fs::write(weights.join("external.onnx"), model).unwrap();
    let refused = make("refused", weights.join("external.onnx").to_str().unwrap(), &["--task", "table"]);
    assert!(stderr(&refused).contains("give them another name"), "{}", stderr(&refused));
    // A wrong guess leaves the folder, and says what to change.
    let wrong = make("wrong", "models/digits.onnx", &["--task", "audio"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("its test does not run yet"), "{}", stderr(&wrong));
    assert!(!stderr(&wrong).contains(".gpux-new-") && folder.path().join("wrong/gpux.yml").is_file());
    let change = "change wrong/gpux.yml, or the sample in wrong/tests/sample; then `gpux test wrong --bless`";
    assert!(stderr(&wrong).contains(change), "{}", stderr(&wrong));
}

#[test]
fn new_pipeline_runs_and_passes_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    let made = stdout(&run(folder.path(), &["new", "pipeline", "my-photos"]));
    assert!(made.contains("my-photos/gpux.yml") && made.contains("gpux test my-photos"), "{made}");
    let inside = folder.path().join("my-photos");
    let tested = stdout(&run(folder.path(), &["test", "my-photos"]));
    assert!(tested.ends_with("2 passed\n"), "{tested}");
    stdout(&run(&inside, &["test"]));
    stdout(&run(&inside, &["build"]));
    let ran = run(&inside, &["run", ".", "--file", "tests/sample/sample.png"]);
    assert_eq!(json(&ran)["tensor"].as_array().unwrap().len(), 32);
    // The steps that the file shows in a comment are real: only the model is missing.
    let text = read(inside.join("gpux.yml")).replace("  # - ", "  - ");
    std::fs::write(inside.join("gpux.yml"), text).unwrap();
    let without = stderr(&run(&inside, &["build"]));
    assert!(without.contains("this step runs the model, but there is none"), "{without}");
}

#[test]
fn creates_folders_atomically() {
    let folder = tempfile::tempdir().unwrap();
    let again = ["new", "step", "--lang", "rust", "blur"];
    stdout(&run(folder.path(), &again));
    std::fs::write(folder.path().join("blur/mine.txt"), "mine").unwrap();
    let output = run(folder.path(), &again);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(read(folder.path().join("blur/mine.txt")), "mine");
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        symlink(folder.path().join("elsewhere"), folder.path().join("link")).unwrap();
        let output = run(folder.path(), &["new", "pipeline", "link"]);
        assert!(stderr(&output).contains("is a link"), "{}", stderr(&output));
        // As any folder that the user makes, not as a temporary one.
        std::fs::create_dir(folder.path().join("ordinary")).unwrap();
        let mode = |name: &str| folder.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode("blur"), mode("ordinary"));
    }
    let left: Vec<_> = names(folder.path()).into_iter().filter(|name| name.starts_with('.')).collect();
    assert_eq!(left, Vec::<String>::new());
}

/// The results become the expectation, and nothing else in the file changes.
#[test]
fn bless_rewrites_only_the_expectation() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("tests/blank");
    std::fs::create_dir_all(&case).unwrap();
    std::fs::copy(root().join(CENTER_INK), folder.path().join("ink.wasm")).unwrap();
    let test = |more: &[&str]| run(folder.path(), &[&["test", "--component", "ink.wasm", "tests"], more].concat());
    let write = |text: &str| std::fs::write(case.join("case.yml"), text).unwrap();

    let blank = "inputs:\n  image: { type: uint8, shape: [2, 2, 1], data: [9, 9, 9, 9] }\n";
    write(&format!(
        "# Blank paper.\n{blank}outputs: {{ image: {{ data: [[[1]]] }} }}\n# Kept.\ntolerance: {{ absolute: 1 }}\n"
    ));
    let failed = test(&[]);
    assert_eq!(failed.status.code(), Some(1));
    let told = String::from_utf8(failed.stdout).unwrap();
    assert!(told.contains("error (invalid-input): no ink found"), "{told}");
    // A failing step is not blessed, unless the case expects an error.
    for expected in ["outputs: { image: { data: [[[1]]] } }", ""] {
        let before = format!("# Blank paper.\n{blank}{expected}\n# Kept.\ntolerance: {{ absolute: 1 }}\n");
        write(&before);
        let refused = test(&["--bless"]);
        let told = String::from_utf8(refused.stdout).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains("FAILED  blank") && told.contains("write `error: { kind: invalid-input }`"), "{told}");
        assert_eq!(read(case.join("case.yml")), before);
    }
    write(&format!("# Blank paper.\n{blank}error: {{ kind: failed }}\n# Kept.\ntolerance: {{ absolute: 1 }}\n"));
    let told = stdout(&test(&["--bless"]));
    assert!(told.contains("blessed blank") && told.contains("expected an error of kind failed"), "{told}");
    assert!(told.contains("        error: { kind: invalid-input, contains: \"no ink found"), "{told}");
    let blessed = read(case.join("case.yml"));
    assert!(blessed.starts_with("# Blank paper.\ninputs:"), "{blessed}");
    assert!(blessed.contains("error: { kind: invalid-input, contains: \"no ink found"), "{blessed}");
    assert!(blessed.ends_with("# Kept.\ntolerance: { absolute: 1 }\n"), "{blessed}");
    stdout(&test(&[]));

    // A photo gives an image, which goes into a file of its own.
    std::fs::copy(root().join(SEVEN), case.join("seven.png")).unwrap();
    write("inputs: { image: { image: seven.png, channels: gray } }\noutputs:\n  image:\n    file: ink.npy\n# Kept.\n");
    let told = stdout(&test(&["--bless"]));
    assert!(told.contains("          image: { file: ink.npy"), "what came out is shown: {told}");
    assert_eq!(names(&case), ["case.yml", "ink.npy", "seven.png"]);
    assert!(
        read(case.join("case.yml")).ends_with("{ file: ink.npy, metadata: { layout: HWC, color: gray } }\n# Kept.\n")
    );
    stdout(&test(&[]));

    // One number of it is changed: that is found, and named.
    let mut npy = std::fs::read(case.join("ink.npy")).unwrap();
    let last = npy.len() - 1;
    npy[last] ^= 0x40;
    std::fs::write(case.join("ink.npy"), npy).unwrap();
    let told = String::from_utf8(test(&[]).stdout).unwrap();
    assert!(told.contains("`image`: 1 of "), "{told}");
    // Metadata that the case states counts.
    stdout(&test(&["--bless"]));
    write(&read(case.join("case.yml")).replace("color: gray", "color: rgb"));
    assert!(String::from_utf8(test(&[]).stdout).unwrap().contains("expected the metadata"));
}

/// The recorded inputs of a production run are a golden test, once the folder is copied.
#[test]
fn replays_and_tests_recorded_cases() {
    let folder = digits();
    let at = |path: &str| folder.path().join(path);
    let embedded = |arguments: &[&str]| run(folder.path(), &[&["run", "--engine", "embedded"], arguments].concat());
    let recorded = embedded(&["--file", SEVEN, "--record", "records", "--trace"]);
    assert!(json(&recorded)["top"].is_array());
    assert!(stderr(&recorded).contains("center-ink.wasm"), "{}", stderr(&recorded));
    assert!(stderr(&recorded).contains("recorded 1 case in records"), "{}", stderr(&recorded));
    let case = at("records/000001-2-center-ink");
    assert_eq!(names(&case), ["case.yml", "input-image.npy", "output-image.npy"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(at("records").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    let replayed = embedded(&["--replay", "records", "--step", "center-ink.wasm", "--json"]);
    assert_eq!(json(&replayed)["passed"], 1);
    // With other options the same input gives something else.
    let yml = read(at("gpux.yml")).replace("margin: 0.15", "margin: 0.5");
    std::fs::write(at("gpux.yml"), yml).unwrap();
    let replayed = embedded(&["--replay", "records"]);
    assert_eq!(replayed.status.code(), Some(1));
    let told = String::from_utf8(replayed.stdout).unwrap();
    assert!(told.contains("`image`: expected a tensor uint8["), "{told}");
    // The case itself still says with which options it was made.
    let tested = stdout(&run(folder.path(), &["test", "--component", CENTER_INK, "records"]));
    assert!(tested.ends_with("1 passed\n"), "{tested}");

    // Nothing is overwritten, and no more is kept than may be.
    let before = read(case.join("case.yml"));
    let photos = [SEVEN; 3];
    let limited = embedded(&[&["--record", "records", "--record-limit", "2", "--file"], &photos[..]].concat());
    assert!(stderr(&limited).contains("recorded 2 cases"), "{}", stderr(&limited));
    assert!(stderr(&limited).contains("`--record-limit` raises that"), "{}", stderr(&limited));
    let all = ["000001-2-center-ink", "000002-2-center-ink", "000003-2-center-ink"];
    assert_eq!(names(&at("records")), all);
    assert_eq!(read(case.join("case.yml")), before);
}

#[test]
fn rejects_ambiguous_step_names() {
    let folder = digits();
    let yml = read(folder.path().join("gpux.yml"));
    let step = yml.lines().position(|line| line.trim_start().starts_with("- wasm:")).unwrap();
    let mut lines: Vec<_> = yml.lines().collect();
    lines.insert(step, "  - wasm: ./guest-examples/rust/center-ink.wasm");
    std::fs::write(folder.path().join("gpux.yml"), lines.join("\n")).unwrap();
    let record = |step: &str| {
        run(folder.path(), &["run", "--engine", "embedded", "--file", SEVEN, "--record", "records", "--step", step])
    };
    let told = record("center-ink.wasm");
    assert_eq!(told.status.code(), Some(2), "{}", stderr(&told));
    let expected = "several component steps are called `center-ink.wasm`: say which by its number, 2 or 3";
    assert!(stderr(&told).contains(expected), "{}", stderr(&told));
    stdout(&record("3"));
    assert_eq!(names(&folder.path().join("records")), ["000001-3-center-ink"]);
    let replayed =
        run(folder.path(), &["run", "--engine", "embedded", "--replay", "records", "--step", "center-ink.wasm"]);
    assert!(stderr(&replayed).contains(expected), "{}", stderr(&replayed));
}

/// A link in the folder of records leads nowhere that is written to.
#[cfg(unix)]
#[test]
fn recorder_follows_no_symlinks() {
    let folder = digits();
    let (records, elsewhere) = (folder.path().join("records"), folder.path().join("elsewhere"));
    std::fs::create_dir(&records).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, records.join("000000-2-center-ink")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, records.join("000001-2-center-ink")).unwrap();
    let output = run(folder.path(), &["run", "--engine", "embedded", "--file", SEVEN, "--record", "records"]);
    stdout(&output);
    assert_eq!(names(&elsewhere), Vec::<String>::new());
    assert!(records.join("000002-2-center-ink/case.yml").is_file());
}

#[test]
fn records_errors_as_expectations() {
    let folder = digits();
    let blank = folder.path().join("gpux.yml");
    // Without ink: the pipeline takes the pixels, so that a request can be blank.
    let text = "name: ink\nversion: 1\ninputs: { image: { type: uint8, shape: [4, 4, 1] } }\npipeline:\n  - wasm: ./guest-examples/rust/center-ink.wasm\n";
    std::fs::write(&blank, text).unwrap();
    let pixels = format!("image={:?}", [9; 16]);
    let output = run(folder.path(), &["run", "--input", &pixels, "--record", "records"]);
    assert_eq!(output.status.code(), Some(1));
    let case = read(folder.path().join("records/000001-1-center-ink/case.yml"));
    assert!(case.contains("error: { kind: invalid-input, contains: \"no ink found"), "{case}");
    stdout(&run(folder.path(), &["run", "--replay", "records"]));
    stdout(&run(folder.path(), &["test", "--component", CENTER_INK, "records"]));
}

/// A case has the same step settings as a gpux.yml, under the operator's policy.
#[test]
fn cases_may_set_models_and_limits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::copy(root().join("guest-examples/hostile/drive-model.wasm"), at("step.wasm")).unwrap();
    std::fs::copy(root().join("models/digits.onnx"), at("digits.onnx")).unwrap();
    let input = "inputs: { in: x }\n";
    for (name, text) in [
        (
            "granted",
            "models: { rec: ./digits.onnx }\ngrant: { models: [rec] }\noptions: { attack: model }\nerror: { kind: invalid-input, contains: takes tensor }\n",
        ),
        ("not-granted", "options: { attack: model }\nerror: { kind: configuration, contains: not granted }\n"),
        (
            "no-time",
            "models: { rec: ./digits.onnx }\ngrant: { models: [rec] }\noptions: { attack: spin }\nlimits: { time: 20ms }\nerror: { kind: limit, contains: 20ms }\n",
        ),
        (
            "above-the-ceiling",
            "limits: { time: 1h }\nerror: { kind: configuration, contains: the operator's ceiling }\n",
        ),
        (
            "outside",
            "models: { rec: ../digits.onnx }\ngrant: { models: [rec] }\nerror: { kind: configuration, contains: leads out of }\n",
        ),
    ] {
        std::fs::create_dir_all(at("tests").join(name)).unwrap();
        std::fs::write(at("tests").join(name).join("case.yml"), format!("{text}{input}")).unwrap();
    }
    let tested = run(folder.path(), &["test", "--component", "step.wasm", "tests", "--engine", "embedded"]);
    assert!(stdout(&tested).ends_with("5 passed\n"));
}
