//! From scaffold to running step: `gpux new`, `gpux build`, `gpux test`, `--record`, `--replay`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::digits::{root, stdout};

const CENTER_INK: &str = "guest-examples/rust/center-ink.wasm";
const SEVEN: &str = "models/samples/seven.png";

/// The program in a folder of its own.
fn gpux_in(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpux"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("GPUX_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/author-cache"));
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    gpux_in(folder, arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Json {
    assert!(!output.stdout.is_empty(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
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

    for (model, message) in [
        ("tests/models/words.onnx", "say it with --task"),
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

/// A step's own commands make the module; gpux wraps, strips, checks and writes it.
#[cfg(unix)]
#[test]
fn builds_a_step_with_custom_commands() {
    let folder = tempfile::tempdir().unwrap();
    let module = root().join("guest-examples/hostile/hostile.wasm");
    std::fs::copy(&module, folder.path().join("module.wasm")).unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("step.yml"), text).unwrap();
    write("name: attacks\nlanguage: rust\noutput: out/attacks.wasm\nbuild: ['cp module.wasm \"$GPUX_OUTPUT\"']\n");
    let built = json(&run(folder.path(), &["build", "--json"]));
    assert_eq!((&built["name"], &built["written"]), (&"attacks".into(), &"out/attacks.wasm".into()));
    assert!(built["bytes"].as_u64() < built["bytes_before"].as_u64(), "{built}");
    let component = std::fs::read(folder.path().join("out/attacks.wasm")).unwrap();
    assert_eq!(component.len() as u64, built["bytes"].as_u64().unwrap());
    let kept = json(&run(folder.path(), &["build", "--json", "--no-strip"]));
    assert_eq!(kept["bytes"], built["bytes_before"]);

    // A failed build keeps the existing component, and shows the compiler's output.
    write("name: attacks\nlanguage: rust\noutput: out/attacks.wasm\nbuild: ['echo no luck >&2; exit 7']\n");
    let failed = run(folder.path(), &["build"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("exit status: 7") && stderr(&failed).contains("no luck"), "{}", stderr(&failed));
    assert!(folder.path().join("out/attacks.wasm").is_file());
    write("name: attacks\nlanguage: rust\nbuild: ['echo nothing > \"$GPUX_OUTPUT\"']\n");
    let failed = run(folder.path(), &["build"]);
    assert!(stderr(&failed).contains("what was built is no step"), "{}", stderr(&failed));

    write("name: attacks\nlanguage: rust\n");
    let without = gpux_in(folder.path(), &["build"]).env("PATH", folder.path()).output().unwrap();
    assert_eq!(without.status.code(), Some(3));
    assert!(stderr(&without).contains("install Rust as https://rustup.rs says"), "{}", stderr(&without));
}

/// A step in C, with a `zig` that counts its calls and gives a module.
#[cfg(unix)]
#[test]
fn builds_a_step_again_only_if_something_changed() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    stdout(&run(folder.path(), &["new", "step", "--lang", "c", "attacks"]));
    let (step, tools) = (folder.path().join("attacks"), folder.path().join("tools"));
    std::fs::create_dir(&tools).unwrap();
    let zig = |version: &str| {
        let module = root().join("guest-examples/hostile/hostile.wasm");
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = version ]; then echo {version}; exit; fi\necho once >> {}/count\n\
             for last; do :; done\ncp {} \"$last\"\n",
            folder.path().display(),
            module.display()
        );
        std::fs::write(tools.join("zig"), text).unwrap();
        std::fs::set_permissions(tools.join("zig"), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    zig("1");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let build = |more: &[&str]| {
        let output = gpux_in(&step, &[&["build", "--json"], more].concat()).env("PATH", &path).output().unwrap();
        let fresh = json(&output)["fresh"].as_bool().unwrap();
        let count = read(folder.path().join("count")).lines().count();
        assert!(step.join("attacks.wasm").is_file());
        (fresh, count)
    };
    assert_eq!(build(&[]), (false, 1));
    assert_eq!(build(&[]), (true, 1));
    let source = step.join("src/step.c");
    std::fs::write(&source, read(&source) + "\n").unwrap();
    // Another source, the same module: that is known from then on.
    assert_eq!(build(&[]), (true, 2));
    assert_eq!(build(&[]), (true, 2));
    assert_eq!(build(&["--force"]), (false, 3));
    assert_eq!(build(&[]), (true, 3));
    assert_eq!(build(&["--no-strip"]), (false, 4));
    assert_eq!(build(&[]), (false, 5));
    // A case is no source; a component that somebody else wrote is not the one that was built.
    std::fs::write(step.join("tests/half/case.yml"), "inputs: {}\n").unwrap();
    assert_eq!(build(&[]), (true, 5));
    std::fs::write(step.join("attacks.wasm"), "mine").unwrap();
    assert_eq!(build(&[]), (false, 6));
    std::fs::remove_file(step.join("attacks.wasm")).unwrap();
    assert_eq!(build(&[]), (false, 7));
    zig("2");
    assert_eq!(build(&[]), (true, 8));
    let text = stdout(&gpux_in(&step, &["build"]).env("PATH", &path).output().unwrap());
    assert!(text.contains("nothing has changed"), "{text}");
}

/// Reads the lines of a running program's pipe until one has this text.
#[cfg(unix)]
fn read_until(lines: &mut impl Iterator<Item = std::io::Result<String>>, text: &str) {
    let mut seen = Vec::new();
    for line in lines {
        seen.push(line.unwrap());
        if seen.last().unwrap().contains(text) {
            return;
        }
    }
    panic!("no `{text}` in {seen:#?}");
}

#[cfg(unix)]
#[test]
fn watches_sources_and_cases() {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    stdout(&run(folder.path(), &["new", "pipeline", "photos"]));
    let at = |path: &str| folder.path().join("photos").join(path);
    let mut gpux = gpux_in(folder.path(), &["test", "photos", "--watch"]);
    let mut gpux = gpux.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(gpux.stdout.take().unwrap()).lines();
    let mut notes = std::io::BufReader::new(gpux.stderr.take().unwrap()).lines();
    read_until(&mut lines, "2 passed");
    read_until(&mut notes, "waiting for a change");
    let source = read(at("gpux.yml"));
    std::fs::write(at("gpux.yml"), source.replace("[32, 32]", "[16, 16]")).unwrap();
    read_until(&mut notes, "gpux.yml has changed");
    read_until(&mut lines, "1 passed, 1 failed");
    // A mistake is shown, and waited on.
    std::fs::write(at("gpux.yml"), "name: [").unwrap();
    read_until(&mut notes, "gpux.yml:1");
    std::fs::write(at("gpux.yml"), source).unwrap();
    read_until(&mut lines, "2 passed");
    std::fs::remove_dir_all(at("tests/not-an-image")).unwrap();
    read_until(&mut lines, "1 passed");
    let interrupted = Command::new("kill").args(["-INT", &gpux.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert!(!gpux.wait().unwrap().success());
}

/// A build that writes into its folder, and is held up until there is a file `go`.
#[cfg(unix)]
#[test]
fn watch_tells_edits_from_build_outputs() {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let write = |path: &str, text: &str| std::fs::write(at(path), text).unwrap();
    std::fs::create_dir_all(at("step/tests/case")).unwrap();
    std::fs::copy(root().join("guest-examples/hostile/hostile.wasm"), at("step/module.wasm")).unwrap();
    let commands = "echo once >> ../count; echo once >> a.o; while [ ! -e ../go ]; do sleep 0.1; done";
    write("step/step.yml", &format!("name: x\nbuild: ['{commands}; cp module.wasm \"$GPUX_OUTPUT\"']\n"));
    write("step/tests/case/case.yml", "inputs: { in: x }\n");
    write("go", "");
    let mut gpux = gpux_in(folder.path(), &["test", "step", "--watch"]);
    let mut gpux = gpux.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufReader::new(gpux.stderr.take().unwrap()).lines();
    let told = ["waiting for", "has changed"];
    let mut notes = lines.map(Result::unwrap).filter(|line| told.iter().any(|part| line.contains(part)));
    let waiting = "waiting for a change; ctrl-C ends this";
    assert_eq!(notes.next().unwrap(), waiting);
    // Noticed while it waits, and while a build runs.
    std::fs::remove_file(at("go")).unwrap();
    write("step/source", "1");
    assert_eq!(notes.next().unwrap(), "step/source has changed");
    while read(at("count")).lines().count() < 2 {
        std::thread::yield_now();
    }
    write("step/source", "12");
    write("go", "");
    assert_eq!(notes.next().unwrap(), "step/source has changed");
    assert_eq!(notes.next().unwrap(), waiting);
    assert_eq!(read(at("count")).lines().count(), 3);
    gpux.kill().unwrap();
    gpux.wait().unwrap();
}

#[test]
fn watch_needs_an_existing_folder() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["test", "nosuch", "--watch"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("nosuch") && !stderr(&output).contains("waiting"), "{}", stderr(&output));
}

/// On a terminal a line says what goes on; in a pipe, and with `--json`, none.
#[cfg(target_os = "linux")]
#[test]
fn shows_progress_on_a_terminal_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("guest-examples/hostile/hostile.wasm"), folder.path().join("module.wasm")).unwrap();
    let build = "build: ['sleep 2; cp module.wasm \"$GPUX_OUTPUT\"']\n";
    std::fs::write(folder.path().join("step.yml"), format!("name: attacks\n{build}")).unwrap();
    let on_terminal = |arguments: &str, kind: &str| {
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_gpux"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(folder.path()).stdin(std::process::Stdio::null());
        script.env("GPUX_CACHE_DIR", folder.path().join("cache")).env("TERM", kind);
        let output = script.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).ok()
    };
    let Some(shown) = on_terminal("build .", "xterm") else {
        eprintln!("skipped: there is no `script`, which brings a terminal");
        return;
    };
    assert!(shown.contains("building attacks … 1 s "), "{shown:?}");
    let (_, result) = shown.rsplit_once("\x1b[2K").unwrap();
    assert!(result.starts_with("attacks: "), "{shown:?}");
    for (arguments, kind) in
        [("build . --json --force", "xterm"), ("build . --force", "dumb"), ("cache list --json", "xterm")]
    {
        let shown = on_terminal(arguments, kind).unwrap();
        assert!(!shown.contains(['\x1b', '…']), "{shown:?}");
    }
    let piped = run(folder.path(), &["build", "--force"]);
    assert_eq!((stderr(&piped).as_str(), piped.status.code()), ("", Some(0)));
}

/// A `python3` that makes environments, and a tool in them: installed once, in the cache, however many builds there are.
#[cfg(unix)]
#[test]
fn installs_missing_tools_in_its_own_environment() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir(at("bin")).unwrap();
    let module = root().join("guest-examples/hostile/hostile.wasm");
    // `-m venv FOLDER` makes a Python whose `-m pip install ziglang` makes a `python-zig`.
    let zig = format!("[ $1 = version ] && echo 0 && exit\nfor last; do :; done\ncp {} $last", module.display());
    let pip = format!(
        "echo \"$@\" >> {count}\nsleep 1\nprintf '#!/bin/sh\\n%s\\n' '{zig}' > ${{0%/*}}/python-zig\nchmod +x ${{0%/*}}/python-zig",
        count = at("count").display()
    );
    std::fs::write(at("pip"), format!("#!/bin/sh\n[ $1 = -m ] || exit 1\n{pip}\n")).unwrap();
    let python = format!(
        "#!/bin/sh\n[ $2 = venv ] && mkdir -p $3/bin && cp {} $3/bin/python && chmod +x $3/bin/python && exit\n\
         case \"$2\" in *version_info*) exit 0;; esac\nexit 1\n",
        at("pip").display()
    );
    std::fs::write(at("bin/python3"), python).unwrap();
    std::fs::set_permissions(at("bin/python3"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", at("bin").display());
    let build = |step: &str| {
        let mut command = gpux_in(folder.path(), &["build", step, "--json"]);
        command.env("PATH", &path).env("GPUX_CACHE_DIR", at("cache")).env("VIRTUAL_ENV", "/mine");
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    for step in ["one", "two"] {
        stdout(&run(folder.path(), &["new", "step", "--lang", "c", step]));
    }
    let builds = [build("one"), build("two")];
    for build in builds {
        let output = build.wait_with_output().unwrap();
        assert_eq!(json(&output)["fresh"], false, "{}", stderr(&output));
    }
    assert_eq!(read(at("count")), "-m pip install --quiet --disable-pip-version-check --no-input ziglang==0.17.0\n");
    assert_eq!(json(&build("one").wait_with_output().unwrap())["fresh"], true);
    // An environment that does not work any more is made again, once.
    let tool = at("cache/tools/ziglang-0.17.0/bin/python-zig");
    std::fs::write(&tool, "#!/no/such/python\n").unwrap();
    let builds = [build("one"), build("two")];
    for build in builds {
        let output = build.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert!(read(&tool).starts_with("#!/bin/sh"));
    assert_eq!(read(at("count")).lines().count(), 2);
    // A broken installation is not taken for one, and the user is told what to do.
    std::fs::remove_dir_all(at("cache/tools")).unwrap();
    std::fs::write(at("pip"), "#!/bin/sh\necho no network >&2; exit 1\n").unwrap();
    let mut failing = gpux_in(folder.path(), &["build", "one", "--force"]);
    let failed = failing.env("PATH", &path).env("GPUX_CACHE_DIR", at("cache")).output().unwrap();
    let told = stderr(&failed);
    assert_eq!(failed.status.code(), Some(3), "{told}");
    assert!(told.contains("installing ziglang==0.17.0 with python3 for gpux alone"), "{told}");
    assert!(told.contains("no network\nis there a network?"), "{told}");
    assert!(told.contains("https://ziglang.org"), "{told}");
    assert!(!at("cache/tools/ziglang-0.17.0/gpux-complete").exists());
}

/// The whole way of a Rust author. Slow the first time: the SDK is compiled.
#[test]
fn new_rust_step_builds_and_passes_its_tests() {
    let target =
        Command::new("rustc").args(["--target", "wasm32-unknown-unknown", "--print", "target-libdir"]).output();
    let there = target.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "run `rustup target add wasm32-unknown-unknown`");
        eprintln!("skipped: run `rustup target add wasm32-unknown-unknown`");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    stdout(&run(folder.path(), &["new", "step", "--lang", "rust", "my-step"]));
    let step = folder.path().join("my-step");
    let shared = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rust-step");
    let cargo = |arguments: &[&str]| gpux_in(&step, arguments).env("CARGO_TARGET_DIR", &shared).output().unwrap();
    let tested = stdout(&cargo(&["test"]));
    assert!(tested.ends_with("3 passed\n"), "{tested}");
    let told = stdout(&run(&step, &["inspect", "my-step.wasm"]));
    assert!(told.contains("what every number is multiplied by"), "{told}");
    assert!(told.contains("It cannot: read files"), "{told}");

    // Its unit tests need no WebAssembly.
    let mut native = Command::new("cargo");
    native.args(["test", "--quiet"]).current_dir(&step).env("CARGO_TARGET_DIR", &shared);
    let native = native.output().unwrap();
    assert!(native.status.success(), "{}", stderr(&native));
    assert!(String::from_utf8_lossy(&native.stdout).contains("2 passed"), "{native:?}");

    // A mistake in the source is shown as the compiler says it.
    let source = read(step.join("src/lib.rs"));
    std::fs::write(step.join("src/lib.rs"), source.replace("number * self", "numbr * self")).unwrap();
    let failed = cargo(&["build"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("cannot find value `numbr`"), "{}", stderr(&failed));

    // A step that does something else fails its cases.
    std::fs::write(step.join("src/lib.rs"), source.replace("factor: 2.0", "factor: 3.0")).unwrap();
    let failed = cargo(&["test"]);
    assert_eq!(failed.status.code(), Some(1));
    let told = String::from_utf8(failed.stdout).unwrap();
    assert!(told.contains("4 of 4 elements differ; the first at [0, 0]: expected 2.0, but it is 3.0"), "{told}");
}
