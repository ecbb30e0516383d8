//! Examples as bundles on a machine that has nothing else of them.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::Home;
use super::serve::command;
use crate::author::{self, stderr};
use crate::child::StartWithLimit as _;
use crate::digits::{onnxruntime_is_there, root, stdout};
use crate::examples::has_models;
use crate::test_server::Server;

/// The bundle of an example, in the home.
fn bundle(home: &Home, example: &str) -> PathBuf {
    let file = home.path().join(format!("{example}.tar"));
    let folder = root().join("examples").join(example);
    let output = home.run(&["bundle", folder.to_str().unwrap(), "--vendor", "-o", file.to_str().unwrap()]);
    assert!(output.status.success(), "{example}: {}", stderr(&output));
    file
}

#[test]
fn examples_give_the_same_answers_from_their_bundles() {
    let home = Home::new();
    let mut served = Vec::new();
    let examples =
        ["image-classification", "question-answering", "sentence-embedding", "speech", "text-classification"];
    for example in examples {
        let file = bundle(&home, example).display().to_string();
        let folder = root().join("examples").join(example);
        let cases = std::fs::read(folder.join("expected.json")).unwrap();
        let cases: Vec<Json> = serde_json::from_slice(&cases).unwrap();
        for case in &cases {
            let mut words: Vec<_> =
                case["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
            if let Some(at) = words.iter().position(|word| word == "--file") {
                words[at + 1] = folder.join(&words[at + 1]).display().to_string();
            }
            let run = |pipeline: &str, allowed: &[&str]| {
                let given = words.iter().map(String::as_str).filter(|word| *word != "--allow-outside");
                let options = ["--json", "--engine", "embedded"].into_iter().chain(allowed.iter().copied());
                let arguments: Vec<_> = ["run", pipeline].into_iter().chain(given).chain(options).collect();
                let mut command = home.gpux(&arguments);
                // Nothing of this machine but the program.
                author::json(&command.env("GPUX_CACHE_DIR", home.path().join("cache")).env("HOME", home.path()).run())
            };
            let expected = run(folder.to_str().unwrap(), &["--allow-outside"]);
            assert_eq!(run(&file, &[]), expected, "{example}: {words:?}");
            if let [flag, input] = words.as_slice()
                && flag == "--input"
            {
                served.push((example, input.clone(), expected));
            }
        }
    }
    // Half of them by name, half as files, in one server.
    let mut sources = Vec::new();
    for (index, example) in examples.iter().enumerate() {
        let file = home.path().join(format!("{example}.tar")).display().to_string();
        if index % 2 == 0 {
            home.json(&["store", "add", &file, "--name", example, "--json"]);
            std::fs::remove_file(&file).unwrap();
        }
        sources.push(if index % 2 == 0 { (*example).to_owned() } else { file });
    }
    let server = Server::of(command(&home, &sources.iter().map(String::as_str).collect::<Vec<_>>()));
    for (example, input, expected) in served {
        let answer = server.post(&format!("/pipelines/{example}/predict"), "content-type: application/json", &input);
        assert_eq!(answer.with_status(200), expected, "{example}: {input}");
    }
    for example in examples {
        let digest = server.get(&format!("/pipelines/{example}/info")).with_status(200)["digest"].clone();
        assert!(digest.as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{example}: {digest}");
    }
}

#[test]
fn examples_pass_their_cases_from_their_bundles() {
    if !onnxruntime_is_there() {
        return;
    }
    let home = Home::new();
    let examples = ["faces", "music-notes", "ocr", "page-layout", "search", "speech-quality"];
    for example in examples.into_iter().filter(|example| has_models(example)) {
        let file = bundle(&home, example);
        let tested = home.gpux(&["test", file.to_str().unwrap()]).run();
        assert!(tested.status.success(), "{example}: {}{}", stdout(&tested), stderr(&tested));
    }
}

#[test]
fn a_bundle_is_read_once_and_goes_when_nothing_names_it() {
    let home = Home::new();
    let folder = home.scaling("1.0.0", 2.0);
    let file = home.path().join("scaling.tar").display().to_string();
    let written = home.json(&["bundle", &folder, "-o", &file, "--json"]);
    let run = ["run", &file, "--input", "x=[1, 2]", "--json"];
    let first = home.json(&run);
    // The store has what the rest of the file holds.
    let bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(8).position(|window| window == b"cat\ndog\n").unwrap();
    let mut changed = bytes.clone();
    changed[at] = b'C';
    std::fs::write(&file, &changed).unwrap();
    assert_eq!(home.json(&run), first);

    let list = home.json(&["store", "list", "--json"]);
    assert_eq!((&list["pipelines"][0]["name"], &list["pipelines"][0]["digest"]), (&Json::Null, &written["digest"]));
    home.json(&["store", "prune", "--json"]);
    assert_eq!(home.json(&["store", "list", "--json"])["pipelines"], json!([]));
    // Now the whole file is read, and it is not what its manifest says.
    let message = home.error(&run, 2);
    assert!(message.contains("`labels.txt`"), "{message}");
    std::fs::write(&file, &bytes).unwrap();
    home.json(&["store", "add", &file, "--json"]);
    home.json(&["store", "prune", "--json"]);
    assert_eq!(home.names(), [("scaling:1.0.0".to_owned(), written["digest"].as_str().unwrap().to_owned())]);
    home.json(&["store", "check", "--json"]);

    for (bytes, said) in [(&bytes[..3000], "it is cut off"), (&b"\x1f\x8b\x08\0\0"[..], "unpack it first")] {
        std::fs::write(&file, bytes).unwrap();
        let message = home.error(&["inspect", &file], 2);
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn a_bundle_that_is_replaced_is_served_anew() {
    let home = Home::new();
    let file = home.path().join("scaling.tar").display().to_string();
    let write = |version: &str, factor: f64| {
        let folder = home.scaling(version, factor);
        home.json(&["bundle", &folder, "-o", &file, "--force", "--json"])["digest"].clone()
    };
    let one = write("1.0.0", 2.0);
    let server = Server::of(command(&home, &[&file, "--reload"]));
    assert_eq!(server.get("/info").with_status(200)["digest"], one);
    let two = write("1.1.0", 3.0);
    server.line("scaling was loaded again");
    assert_eq!(server.get("/info").with_status(200)["digest"], two);
    std::fs::write(&file, "no bundle").unwrap();
    server.line("scaling could not be loaded again; the one before answers");
    assert_eq!(server.get("/info").with_status(200)["digest"], two);
}

#[test]
fn files_of_the_store_are_not_written_over() {
    let home = Home::new();
    let digits = root();
    home.json(&["store", "add", digits.to_str().unwrap(), "--json"]);
    let message = home.error(&["build", "digits", "--precision", "fp16", "--engine", "embedded"], 2);
    assert!(message.contains("the pipeline is in the store, where files do not change"), "{message}");
    let folder = home.path().join("p").display().to_string();
    assert!(home.run(&["new", "pipeline", &folder]).status.success());
    home.json(&["store", "add", &folder, "--name", "p", "--json"]);
    assert!(home.run(&["test", "p"]).status.success());
    assert!(home.error(&["test", "p", "--bless"], 2).contains("files in the store do not change"));
    home.add("1.0.0", 2.0, &[]);
    assert!(home.error(&["test", "scaling"], 2).contains("the pipeline has no cases (sha256:"));
    home.json(&["store", "check", "--json"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_missing_engine_is_said_with_what_the_author_had() {
    if !onnxruntime_is_there() {
        return;
    }
    let home = Home::new();
    let file = home.path().join("digits.tar").display().to_string();
    let folder = root().display().to_string();
    let made = home.json(&["bundle", &folder, "-o", &file, "--with-engine", "--engine", "onnxruntime", "--json"]);
    let photo = root().join("models/samples/seven.png").display().to_string();
    let run = |engine: &str| {
        let mut command = home.gpux(&["run", &file, "--file", &photo, "--engine", engine]);
        // Nothing of this machine but the program.
        for variable in ["GPUX_CACHE_DIR", "HOME", "PATH"] {
            command.env(variable, home.path());
        }
        command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX").env_remove("ORT_DYLIB_PATH").run()
    };
    let missing = run("onnxruntime");
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let said = stderr(&missing);
    assert!(
        said.contains("its author tried it with ONNX Runtime 1.") && said.contains("run `gpux engine install`"),
        "{said}"
    );
    let embedded = run("auto");
    assert!(stdout(&embedded).contains("seven"), "{}", stderr(&embedded));
    let again = home.json(&["bundle", &file, "--dry-run", "--json"]);
    assert_eq!(again["digest"], made["digest"], "{again}");
}
