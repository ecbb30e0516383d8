//! Commands that take names of the store.

use serde_json::json;

use super::Home;
use crate::author::stderr;
use crate::child::StartWithLimit as _;
use crate::digits::root;

const TWO: &str = "x=[1, 2]";

#[test]
fn runs_what_a_name_means() {
    let home = Home::new();
    let one = home.add("1.0.0", 2.0, &[]);
    for name in ["scaling", "scaling:1.0.0", &one, &one[..19]] {
        let result = home.json(&["run", name, "--input", TWO, "--json"]);
        assert_eq!(
            result["tensor"]["values"].as_array().or(result["tensor"].as_array()),
            Some(&vec![json!(2.0), json!(4.0)]),
            "{name}: {result}"
        );
        assert_eq!(home.json(&["inspect", name, "--json"])["digest"], json!(one));
    }
    let two = home.add("2.0.0", 3.0, &[]);
    assert_ne!(one, two);
    let message = home.error(&["run", "scaling", "--input", TWO], 2);
    assert!(message.contains("`scaling` may be `scaling:1.0.0` or `scaling:2.0.0` in the store"), "{message}");

    // What lies in the folder comes first.
    let folder = home.path().join("empty/scaling:1.0.0");
    std::fs::create_dir(&folder).unwrap();
    let message = home.error(&["inspect", "scaling:1.0.0"], 2);
    assert!(message.contains(&format!("Did you mean `{one}`?")), "{message}");
    std::fs::copy(home.path().join("scaling-2.0.0/gpux.yml"), folder.join("gpux.yml")).unwrap();
    std::fs::write(folder.join("labels.txt"), "cat\ndog\n").unwrap();
    assert_eq!(home.json(&["inspect", "scaling:1.0.0", "--json"])["digest"], json!(null));
    std::fs::remove_dir_all(folder).unwrap();

    let message = home.error(&["run", "scalin", "--input", TWO], 2);
    assert!(message.contains("`scalin` in the store. Did you mean `scaling`?"), "{message}");
    let message = home.error(&["run", "sha256:0123", "--input", TWO], 2);
    assert!(message.contains("at least 12 digits"), "{message}");
    home.error(&["store", "add", &home.scaling("1.0.0", 2.0), "--name", "../x"], 2);
    home.error(&["store", "show", "nothing"], 2);
    home.error(&["store", "rm", "nothing"], 2);
}

#[test]
fn names_are_taken_away_and_what_they_held_is_freed() {
    let home = Home::new();
    let list = home.json(&["store", "list", "--json"]);
    assert_eq!(list["pipelines"], json!([]));
    assert!(!home.store().exists(), "a look makes no store");

    let one = home.add("1.0.0", 2.0, &[]);
    assert_eq!(home.add("1.0.0", 2.0, &["--name", "live"]), one);
    let two = home.add("1.0.0", 3.0, &["--name", "live"]);
    let expected = [("live".to_owned(), two.clone()), ("scaling:1.0.0".to_owned(), one.clone())];
    assert_eq!(home.names(), expected);
    // What it named before stays, and can get another name.
    home.json(&["store", "add", &one, "--name", "before", "--json"]);
    let shown = home.json(&["store", "show", "before", "--json"]);
    assert_eq!((&shown["digest"], &shown["names"]), (&json!(one), &json!(["before", "scaling:1.0.0"])));
    let files: Vec<_> = shown["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(files, ["gpux.yml", "labels.txt"]);

    let message = home.error(&["store", "rm", &one], 2);
    assert!(message.contains("may be `before` or `scaling:1.0.0` in the store"), "{message}");
    home.json(&["store", "rm", "before", "scaling:1.0.0", "--json"]);
    let message = home.error(&["store", "rm", &one], 2);
    assert!(message.contains("has no name; `gpux store prune` removes it"), "{message}");
    let counted = home.json(&["store", "prune", "--dry-run", "--json"]);
    let freed = home.json(&["store", "prune", "--json"]);
    assert_eq!((&counted["bytes"], &counted["files"]), (&freed["bytes"], &freed["files"]));
    assert!(freed["bytes"].as_u64().unwrap() > 0);
    assert_eq!(home.names(), [("live".to_owned(), two)]);
    let checked = home.json(&["store", "check", "--json"]);
    assert_eq!((&checked["damaged"], &checked["pipelines"]), (&json!([]), &json!({})));
    let message = home.error(&["run", &one, "--input", TWO], 2);
    assert!(message.contains("no pipeline at"), "{message}");
}

#[test]
fn says_what_is_damaged_and_heals_it() {
    let home = Home::new();
    let digest = home.add("1.0.0", 2.0, &[]);
    home.json(&["run", "scaling", "--input", TWO, "--json"]);
    let files = home.json(&["store", "show", "scaling", "--json"])["files"].clone();
    let labels = files[1]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let blob = home.store().join("blobs/sha256").join(labels);
    // The same file, so that its links have it, too.
    let mut permissions = blob.metadata().unwrap().permissions();
    #[expect(clippy::permissions_set_readonly_false, reason = "a file of this test")]
    permissions.set_readonly(false);
    std::fs::set_permissions(&blob, permissions).unwrap();
    std::fs::write(&blob, "cat\nDog\n").unwrap();

    let output = home.run(&["store", "check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["damaged"], json!([blob.display().to_string()]));
    assert!(report["pipelines"]["scaling:1.0.0"].as_str().unwrap().contains("`labels.txt`"), "{report}");
    let message = home.error(&["run", "scaling", "--input", TWO], 1);
    assert!(message.contains("`labels.txt` of the pipeline is not in the store"), "{message}");

    assert_eq!(home.add("1.0.0", 2.0, &[]), digest);
    home.json(&["store", "check", "--json"]);
    home.json(&["run", "scaling", "--input", TWO, "--json"]);
}

#[test]
fn says_why_there_is_no_store() {
    let home = Home::new();
    let folder = home.scaling("1.0.0", 2.0);
    // A home that is none.
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut program = home.gpux(&["store", "add", &folder]);
    let output = program.env_remove("GPUX_STORE").env_remove("XDG_DATA_HOME").env("HOME", &file).run();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(stderr(&output).contains("GPUX_STORE moves the store"), "{output:?}");
    // A file where the folder should be.
    std::fs::write(home.store(), "").unwrap();
    let message = home.error(&["store", "add", &folder], 3);
    assert!(message.contains("GPUX_STORE moves the store"), "{message}");
    // What needs no store does not look for it.
    home.json(&["run", &folder, "--input", TWO, "--json"]);
    home.error(&["run", "nothing"], 2);
}

#[test]
fn runs_and_builds_what_a_name_means() {
    let home = Home::new();
    let root = root();
    let added = home.json(&["store", "add", root.to_str().unwrap(), "--json"]);
    let before = listing(&home);
    let photo = root.join("models/samples/seven.png");
    let run = ["run", "digits", "--file", photo.to_str().unwrap(), "--engine", "embedded", "--json"];
    assert_eq!(home.json(&run)["top"][0]["label"], json!("seven"));
    let built = home.json(&["build", "digits", "--engine", "embedded", "--json"]);
    assert_eq!(built["digest"], added["digest"]);
    assert_eq!(listing(&home), before, "its folder holds what it held");
}

/// The files of the folders that pipelines are run from, with their times.
fn listing(home: &Home) -> Vec<(std::path::PathBuf, std::time::SystemTime)> {
    let mut files = Vec::new();
    let mut folders = vec![home.store().join("blobs")];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                files.push((entry.path(), metadata.modified().unwrap()));
            }
        }
    }
    files.sort();
    files
}

/// Another user's store is read, by whoever may enter it, and never changed.
#[cfg(target_os = "linux")]
#[test]
fn runs_from_a_store_of_another_user() {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give folders away");
        return;
    }
    let home = Home::new();
    home.add("1.0.0", 2.0, &[]);
    home.add("2.0.0", 3.0, &[]);
    home.json(&["run", "scaling:1.0.0", "--input", TWO, "--json"]);
    let (before, folder) = (listing(&home), home.scaling("3.0.0", 4.0));
    std::fs::set_permissions(home.store(), std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(home.store(), Some(12345), None).unwrap();

    let cache = home.path().join("cache");
    for (name, parent) in [("scaling:1.0.0", home.store()), ("scaling:2.0.0", cache.clone())] {
        let inspected = home.gpux(&["inspect", name, "--json"]).env("GPUX_CACHE_DIR", &cache).run();
        let path = crate::author::json(&inspected)["path"].as_str().unwrap().to_owned();
        assert!(path.starts_with(parent.to_str().unwrap()), "{path}");
    }
    for command in [&["store", "add", &folder][..], &["store", "rm", "scaling:1.0.0"], &["store", "prune"]] {
        let message = home.error(command, 3);
        assert!(message.contains("is another user's or cannot be written to"), "{message}");
    }
    home.json(&["store", "check", "--json"]);
    assert_eq!(listing(&home), before);

    let mut serve = super::serve::command(&home, &["scaling:2.0.0"]);
    serve.env("GPUX_CACHE_DIR", &cache);
    let server = crate::test_server::Server::of(serve);
    let clean = || {
        let cleaned = home.gpux(&["cache", "clean", "unpacked", "--json"]).env("GPUX_CACHE_DIR", &cache).run();
        crate::author::json(&cleaned)["removed"].clone()
    };
    assert_eq!(clean(), json!(0), "a server runs from it");
    drop(server);
    assert_eq!(clean(), json!(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_without_room_keeps_nothing_half() {
    let home = Home::new();
    home.add("1.0.0", 2.0, &[]);
    let before = listing(&home);
    let folder = home.scaling("2.0.0", 3.0);
    std::fs::write(format!("{folder}/README.md"), "text ".repeat(1 << 16)).unwrap();
    let bundle = home.path().join("scaling.tar").display().to_string();
    home.json(&["bundle", &folder, "-o", &bundle, "--json"]);
    for pipeline in [&folder, &bundle] {
        // Files of a few KiB at most stand in for a full disk.
        let mut shell = crate::child::command("sh");
        shell.arg("-c").arg("trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\"").arg(env!("CARGO_BIN_EXE_gpux"));
        let added = shell.args(["store", "add", pipeline]).env("GPUX_STORE", home.store()).run();
        assert_eq!(added.status.code(), Some(3), "{added:?}");
        assert!(stderr(&added).contains("GPUX_STORE moves the store"), "{}", stderr(&added));
        assert_eq!(listing(&home), before);
        home.json(&["store", "check", "--json"]);
    }
    home.json(&["store", "add", &bundle, "--json"]);
}

#[test]
fn a_pipeline_passes_for_no_other() {
    let home = Home::new();
    let folder = home.scaling("1.0.0", 2.0);
    let file = std::path::Path::new(&folder).join("gpux.yml");
    let text = std::fs::read_to_string(&file).unwrap();
    for (name, version) in [("hf", "BAAI/bge-base@main"), ("bank", "1.0.0:x")] {
        let changed = text.replace("name: scaling", &format!("name: {name}")).replace("1.0.0", version);
        std::fs::write(&file, changed).unwrap();
        let message = home.error(&["store", "add", &folder], 2);
        assert!(message.contains("can be no name in the store"), "{message}");
    }
    home.error(&["store", "add", &folder, "--name", "hf:BAAI/bge-base@main"], 2);
    assert_eq!(home.names(), []);
}

#[test]
fn damage_is_not_handed_on() {
    let home = Home::new();
    let bundle = home.path().join("scaling.tar").display().to_string();
    home.json(&["bundle", &home.scaling("1.0.0", 2.0), "-o", &bundle, "--json"]);
    home.json(&["store", "add", &bundle, "--json"]);
    let blobs = home.store().join("blobs/sha256").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let labels = blobs.filter(|path| std::fs::read(path).unwrap() == b"cat\ndog\n").collect::<Vec<_>>().remove(0);
    std::fs::remove_file(&labels).unwrap();
    std::fs::write(&labels, "dog\ncat\n").unwrap();
    for arguments in
        [&["bundle", "scaling", "-o", "x.tar"][..], &["bundle", &bundle, "-o", "x.tar"], &["store", "add", &bundle]]
    {
        let output = home.run(arguments);
        assert!(stderr(&output).contains("is not the file `labels.txt`"), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(home.run(&["store", "check"]).status.code(), Some(1));
    home.json(&["store", "add", &bundle, "--json"]);
    assert_eq!(home.run(&["store", "check"]).status.code(), Some(0));
    let message = home.error(&["store", "rm", "scaling"], 2);
    assert!(message.contains("`scaling` may be `scaling:1.0.0` in the store"), "{message}");

    std::fs::write(home.store().join("index.json"), "{").unwrap();
    assert_eq!(home.run(&["store", "check"]).status.code(), Some(1));
    home.json(&["store", "add", &bundle, "--json"]);
    assert_eq!(home.names().len(), 1);
}
