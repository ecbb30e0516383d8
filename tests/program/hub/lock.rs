//! `gpux.lock`: what puts files back, what reports them, and what changes the lock.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value as Json;

use super::double::{Hub, check_store};
use crate::author::{json, stderr};
use crate::child::StartWithLimit as _;

const MODEL: &str = "hf:test/sentence-mean";

/// A pulled folder, and the hub that it came from.
struct Pulled {
    hub: Hub,
    folder: PathBuf,
}

impl Pulled {
    fn new() -> Self {
        let hub = Hub::start();
        let pulled = hub.gpux("", &["pull", MODEL]).run();
        assert!(pulled.status.success(), "{}", stderr(&pulled));
        Self { folder: hub.home.path().join("sentence-mean"), hub }
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.folder.join(file)).unwrap()
    }

    fn lock(&self) -> String {
        String::from_utf8(self.read("gpux.lock")).unwrap()
    }

    fn pull(&self, fault: &str, arguments: &[&str]) -> Output {
        let output = self.hub.gpux(fault, &[&["pull"], arguments].concat()).run();
        check_store(&self.hub.store());
        // Nothing half is left.
        let hidden = |name: &str| name.starts_with('.');
        let names = self.folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| hidden(name)).count(), 0);
        output
    }

    fn pulls(&self, fault: &str, arguments: &[&str]) -> Json {
        let output = self.pull(fault, &[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        json(&output)
    }

    fn fails(&self, fault: &str, arguments: &[&str], code: i32, message: &str) {
        let output = self.pull(fault, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
    }

    fn forget_store(&self) {
        fs::remove_dir_all(self.hub.store()).unwrap();
    }
}

#[test]
fn restores_what_the_lock_names() {
    let pulled = Pulled::new();
    let (lock, weights, asked) = (pulled.lock(), pulled.read("model.onnx"), pulled.hub.log().len());
    assert!(lock.contains("path = \"onnx/model.onnx\", target = \"model.onnx\""), "{lock}");

    // All is there: nobody is asked.
    assert_eq!(pulled.pulls("", &["sentence-mean", "--locked"])["restored"], serde_json::json!([]));
    assert_eq!(pulled.hub.log().len(), asked);
    // From the store, then from the hub: as after `git clone` of what has no weights in it.
    for forgets in [false, true] {
        fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
        fs::remove_file(pulled.folder.join("tokenizer.json")).unwrap();
        if forgets {
            pulled.forget_store();
        }
        let report = pulled.pulls("", &["sentence-mean", "--locked"]);
        assert_eq!(report["restored"], serde_json::json!(["model.onnx", "tokenizer.json"]));
        assert_eq!(pulled.read("model.onnx"), weights);
        assert_eq!(pulled.hub.log().len() > asked, forgets);
    }
    let tested = pulled.hub.gpux("", &["test", "sentence-mean"]).run();
    assert!(tested.status.success(), "{}", stderr(&tested));

    // In the folder itself, without a name; and by the model's name.
    fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
    let mut here = pulled.hub.gpux("", &["pull"]);
    let here = here.current_dir(&pulled.folder).run();
    assert!(here.status.success() && pulled.read("model.onnx") == weights, "{}", stderr(&here));
    fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
    assert_eq!(pulled.pulls("", &[MODEL])["restored"], serde_json::json!(["model.onnx"]));

    // What was changed is reported, and the rest is restored.
    fs::write(pulled.folder.join("tokenizer.json"), "{}").unwrap();
    fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
    fs::write(pulled.folder.join("README.md"), "mine").unwrap();
    pulled.fails("", &["sentence-mean"], 1, "`tokenizer.json` is not what gpux.lock says: --force replaces it");
    assert_eq!((pulled.read("tokenizer.json"), pulled.read("model.onnx")), (b"{}".to_vec(), weights));
    assert_eq!(pulled.pulls("", &["sentence-mean", "--force"])["restored"], serde_json::json!(["tokenizer.json"]));
    assert_eq!(pulled.read("README.md"), b"mine");
    // Whatever was done, the lock has the same bytes.
    assert_eq!(pulled.lock(), lock);
    let again = pulled.hub.gpux("", &["pull", MODEL, "--output", "sentence-mean", "--force"]).run();
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(pulled.lock(), lock);

    for arguments in [&["--locked"][..], &["sentence-mean/tests"]] {
        let output = pulled.hub.gpux("", &[&["pull"], arguments].concat()).run();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
    pulled.fails("", &["sentence-mean", "--image-backend", "pillow"], 2, "whose files are fetched into it");
    pulled.fails("", &["hf:test/classifier", "--locked"], 2, "`classifier` has no gpux.lock yet");
    pulled.fails("", &["sentence-mean", "--output", "other"], 2, "whose files are fetched into it");
}

#[test]
fn restores_nothing_that_is_damaged() {
    let pulled = Pulled::new();
    let weights = pulled.folder.join("model.onnx");
    let blob = pulled.hub.store().join("blobs/sha256").join(gpux_store::file_digest(&weights).unwrap());
    let mut damaged = pulled.read("model.onnx");
    damaged[100] ^= 1;
    fs::remove_file(&blob).unwrap();
    fs::write(&blob, damaged).unwrap();
    fs::remove_file(&weights).unwrap();
    for arguments in [&["pull", "sentence-mean", "--locked"][..], &["pull", MODEL, "--output", "other"]] {
        let output = pulled.hub.gpux("", arguments).run();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("is damaged: its digest is another than its name"), "{}", stderr(&output));
    }
    assert!(!weights.exists());
    assert_eq!(pulled.hub.gpux("", &["store", "check"]).run().status.code(), Some(1));
    pulled.pulls("", &["sentence-mean", "--locked"]);
    assert_eq!(gpux_store::file_digest(&weights).unwrap(), blob.file_name().unwrap().to_str().unwrap());
}

#[test]
fn tells_where_a_branch_was() {
    let pulled = Pulled::new();
    let lock = pulled.lock();
    pulled.fails("moved", &[MODEL], 2, "main: was ");
    pulled.fails("moved", &[MODEL, "--locked"], 2, "`sentence-mean` is left as it is");
    assert_eq!(pulled.lock(), lock);
    // By its lock, the folder does not care.
    pulled.forget_store();
    fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
    pulled.pulls("moved", &["sentence-mean", "--locked"]);
    assert_eq!(pulled.lock(), lock);
    // The commit is gone.
    pulled.forget_store();
    fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
    pulled.fails("gone", &["sentence-mean"], 2, "no longer has the commit");
    let moved = pulled.pull("moved", &[MODEL, "--force"]);
    assert!(moved.status.success() && stderr(&moved).contains("main: was "), "{}", stderr(&moved));
    assert_ne!(pulled.lock(), lock);
    let text = String::from_utf8(pulled.read("gpux.yml")).unwrap();
    let commit = pulled.lock().lines().find_map(|line| Some(line.strip_prefix("commit = \"")?[..40].to_owned()));
    assert!(text.contains(&commit.unwrap()), "{text}");
    let tested = pulled.hub.gpux("", &["test", "sentence-mean"]).run();
    assert!(tested.status.success(), "{}", stderr(&tested));

    pulled.fails(
        "",
        &["hf:test/classifier", "--output", "sentence-mean"],
        2,
        "is a pipeline of hf://test/sentence-mean",
    );
}

#[test]
fn follows_renamed_repositories_on_demand() {
    let pulled = Pulled::new();
    let lock = pulled.lock();
    pulled.forget_store();
    fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
    pulled.fails("renamed", &["sentence-mean"], 2, "or pull it with --follow-rename");
    pulled.fails("renamed", &["sentence-mean", "--follow-rename", "--locked"], 2, "so gpux.lock would change");
    assert_eq!(pulled.lock(), lock);
    pulled.pulls("renamed", &["sentence-mean", "--follow-rename"]);
    let renamed = lock.replace("hf://test/", "hf://somebody/");
    assert_eq!(pulled.lock(), renamed);

    // A new folder: all that is written has the new name.
    let new = pulled.pull("renamed", &[MODEL, "--follow-rename", "--output", "new"]);
    assert!(new.status.success(), "{}", stderr(&new));
    assert!(stderr(&new).contains("`test/sentence-mean` is now `somebody/sentence-mean`"), "{}", stderr(&new));
    let new = pulled.hub.home.path().join("new");
    assert_eq!(fs::read_to_string(new.join("gpux.lock")).unwrap(), renamed);
    assert!(fs::read_to_string(new.join("gpux.yml")).unwrap().starts_with("# Made by `gpux pull hf:somebody/"));
    let run = pulled.hub.gpux("", &["run", "hf:somebody/sentence-mean", "--pull", "never", "--input", "text=a"]).run();
    assert!(run.status.success(), "{}", stderr(&run));
}

#[test]
fn refuses_edited_locks() {
    let pulled = Pulled::new();
    let lock = pulled.lock();
    let with = |text: &str, message: &str| {
        fs::write(pulled.folder.join("gpux.lock"), text).unwrap();
        for model in ["sentence-mean", MODEL] {
            pulled.fails("", &[model], 2, message);
        }
    };
    with(&lock.replace("version = 1", "version = 2"), "is of version 2, and this gpux reads version 1");
    with(&lock[..lock.len() / 2], "is not what gpux writes (line ");
    with("version = 1\n<<<<<<< HEAD\n", "is not what gpux writes (line 2: ");
    with(&lock.replace("\"model.onnx\"", "\"../../model.onnx\""), "no file of a model lies at `../../model.onnx`");
    with(&lock.replace("\"model.onnx\"", "\".git/hooks/post-merge\""), "no file of a model lies at");
    with(&"#".repeat(5 << 20), "has more than 4 MiB");

    // A digest that the commit does not have.
    let before = "target = \"model.onnx\", digest = \"sha256:";
    let at = lock.find(before).unwrap() + before.len();
    let digit = if &lock[at..=at] == "0" { "1" } else { "0" };
    fs::write(pulled.folder.join("gpux.lock"), format!("{}{digit}{}", &lock[..at], &lock[at + 1..])).unwrap();
    fs::remove_file(pulled.folder.join("model.onnx")).unwrap();
    pulled.fails("", &["sentence-mean"], 2, "has another digest or size for `onnx/model.onnx`");
    assert!(!pulled.folder.join("model.onnx").exists());

    // A folder of somebody else's, whose link leads out of it.
    #[cfg(unix)]
    {
        let text = lock.replace("target = \"model.onnx\"", "target = \"weights/model.onnx\"");
        fs::write(pulled.folder.join("gpux.lock"), text).unwrap();
        let outside = pulled.hub.home.path().join("outside");
        fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, pulled.folder.join("weights")).unwrap();
        pulled.fails("", &["sentence-mean"], 2, "is no folder but a link or a file");
        assert_eq!(outside.read_dir().unwrap().count(), 0);
    }

    // A broken lock does not keep the folder from being made anew.
    fs::write(pulled.folder.join("gpux.lock"), "?").unwrap();
    pulled.pulls("", &[MODEL, "--force"]);
    assert_eq!(pulled.lock(), lock);
}
