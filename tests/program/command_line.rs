//! What is generated from the command line's own description: completions and manual pages; and `gpux cache`.

use serde_json::Value as Json;

use crate::child::{StartWithLimit as _, program};
use crate::digits::{gpux, root, stdout};

#[test]
fn completions_have_the_commands_of_users_alone() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&gpux(&["completions", shell]));
        assert!(script.contains("verify") && script.contains("engine-library"), "{shell}");
        assert!(!script.contains("__vet-model") && !script.contains("vet__model"), "{shell}");
    }
}

#[test]
fn suggests_commands_for_swapped_letters() {
    for (written, meant) in [("rnu", "run"), ("srve", "serve"), ("isnpect", "inspect")] {
        let told = String::from_utf8_lossy(&gpux(&[written]).stderr).into_owned();
        assert!(told.contains(&format!("'{meant}'")), "{written}: {told}");
    }
    let told = String::from_utf8_lossy(&gpux(&["vet-model"]).stderr).into_owned();
    assert!(!told.contains("similar"), "{told}");
}

#[test]
fn inputs_may_have_names_with_an_equals_sign() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpux.yml");
    let text = "name: t\nversion: 1\ninputs: { \"a\": { type: float32, shape: [1] }, \"a=b\": { type: float32, shape: [1] } }\n\
        pipeline:\n  - concat: { in: [a, \"a=b\"], axis: 0 }\n";
    std::fs::write(&path, text).unwrap();
    let run = ["run", path.to_str().unwrap(), "--input", "a=[1]", "--input", "a=b=[2]", "--format", "json"];
    let ran = stdout(&gpux(&run));
    assert!(ran.contains("[1.0, 2.0]") || ran.contains("[1.0,2.0]"), "{ran}");
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert!(gpux(&["man", pages.to_str().unwrap()]).status.success());
    let page = |name: &str| std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
    assert!(page("gpux").contains("gpux\\-serve(1)"));
    assert!(page("gpux-serve").contains("max\\-queue"));
    assert!(page("gpux-engine-install").contains("gpux\\-engine\\-install"));
    let names = std::fs::read_dir(&pages).unwrap().map(|page| page.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("__")));
}

#[test]
fn shows_and_removes_what_is_cached() {
    let parent = tempfile::tempdir().unwrap();
    let cache = parent.path().join("cache");
    let gpux = |arguments: &[&str]| {
        let mut command = program();
        command.args(arguments).current_dir(root()).env("GPUX_CACHE_DIR", &cache).run()
    };
    let folder = |name: &str| -> Json {
        let listed: Json = serde_json::from_str(&stdout(&gpux(&["cache", "list", "--json"]))).unwrap();
        listed["folders"].as_array().unwrap().iter().find(|folder| folder["name"] == name).unwrap().clone()
    };
    assert_eq!(folder("steps")["entries"], 0, "a cache that is not there is empty");
    let run = || assert!(gpux(&["run", "models/samples/seven.png", "--engine", "embedded"]).status.success());
    run();
    assert!(folder("steps")["bytes"].as_u64().unwrap() > 4096 && folder("verified")["entries"] == 1);
    assert!(stdout(&gpux(&["cache", "list"])).contains("compiled components"));

    // A stranger's model is tried in a process of its own first.
    let made = parent.path().join("made");
    assert!(gpux(&["new", "pipeline", made.to_str().unwrap(), "--model", "tests/models/conv.onnx"]).status.success());
    assert_eq!(folder("verified")["entries"], 2);

    let engine = cache.join("engines/onnxruntime-9.9.9-cpu");
    std::fs::create_dir_all(&engine).unwrap();
    assert!(stdout(&gpux(&["cache", "prune"])).contains("removed 0 entries"), "all is new");
    assert!(gpux(&["cache", "prune", "--older-than", "0"]).status.success());
    assert_eq!((folder("steps")["entries"].clone(), engine.exists()), (0.into(), true));
    run();
    assert!(gpux(&["cache", "clean", "verified"]).status.success());
    assert!(folder("verified")["entries"] == 0 && folder("steps")["entries"] != 0);
    assert!(gpux(&["cache", "clean"]).status.success());
    assert!(folder("steps")["entries"] == 0 && engine.exists());
    assert!(gpux(&["cache", "clean", "--all"]).status.success() && !engine.exists());

    std::fs::remove_file(cache.join("CACHEDIR.TAG")).unwrap();
    std::fs::write(cache.join("steps/mine"), "x").unwrap();
    let refused = gpux(&["cache", "clean"]);
    assert!(refused.status.code() == Some(2) && cache.join("steps/mine").exists(), "{refused:?}");
}
