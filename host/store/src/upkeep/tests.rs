use super::*;
use crate::StoredPipeline;

/// A store, and a folder whose name is a pipeline's with a model of its own and a file that all have.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    (folder, store)
}

fn add(folder: &Path, store: &Store, name: &str, model: &str) -> StoredPipeline {
    try_add(folder, store, name, model).unwrap()
}

fn try_add(folder: &Path, store: &Store, name: &str, model: &str) -> Result<StoredPipeline, StoreError> {
    fs::write(folder.join("gpux.yml"), "name: p\n").unwrap();
    fs::write(folder.join("model.onnx"), model).unwrap();
    store.add_folder(folder, &["gpux.yml".to_owned(), "model.onnx".to_owned()], name, "p")
}

fn prune(store: &Store) -> PruneReport {
    store.prune(PruneMode::Remove, || panic!("nobody else uses the store")).unwrap()
}

fn check(store: &Store) -> CheckReport {
    store.check(|| panic!("nobody else uses the store"), |_| {}).unwrap()
}

#[test]
fn a_name_without_version_means_the_only_version() {
    let (folder, store) = store();
    let one = add(folder.path(), &store, "p:1.0.0", "one").manifest;
    assert_eq!(store.resolve("p").unwrap().unwrap().manifest, one);
    let two = add(folder.path(), &store, "p:2.0.0", "two").manifest;
    let ambiguous = store.resolve("p").unwrap_err();
    assert_eq!(ambiguous.to_string(), "`p` may be `p:1.0.0` or `p:2.0.0` in the store: say which");
    assert_eq!(store.resolve("p:2.0.0").unwrap().unwrap().manifest, two);
    for unknown in ["q", "p:3.0.0", "p:", "", "sha256:000000000000"] {
        assert_eq!(store.resolve(unknown).unwrap(), None, "{unknown}");
    }
    assert_eq!(store.resolve(&format!("sha256:{}", &two[..12])).unwrap().unwrap().manifest, two);
    assert!(store.resolve(&format!("sha256:{}", &two[..11])).unwrap_err().to_string().contains("at least 12"));

    assert_eq!(store.add_name("p:2.0.0", &one).unwrap(), Some(two));
    assert_eq!(store.resolve("p:2.0.0").unwrap().unwrap().manifest, one);
    assert!(store.add_name("../p", &one).unwrap_err().is_about_name());
    let unknown = store.remove_names(&["p:1.0.0".to_owned(), "p:2.0".to_owned()]).unwrap_err();
    assert_eq!(unknown.to_string(), "the store has no `p:2.0`. Did you mean `p:2.0.0`?");
    assert_eq!(store.named_digests().unwrap().len(), 2, "all or nothing");
}

#[test]
fn prune_keeps_what_names_and_processes_hold() {
    let (folder, store) = store();
    let (one, two) = (add(folder.path(), &store, "one", "1 of 5"), add(folder.path(), &store, "two", "2 of 5"));
    let shared = store.entries().unwrap().iter().map(|entry| (entry.size, entry.shared)).collect::<Vec<_>>();
    assert_eq!(shared, [(14, 8), (14, 8)]);
    let running = store.lay_out(&one).unwrap();
    drop(store.lay_out(&two).unwrap());
    assert_eq!(prune(&store), PruneReport::default(), "both have names");

    store.remove_names(&["one".to_owned(), "two".to_owned()]).unwrap();
    let unnamed: Vec<_> = store.entries().unwrap().into_iter().map(|entry| (entry.name, entry.is_used)).collect();
    assert_eq!(unnamed.len(), 2);
    assert!(unnamed.contains(&(None, true)) && unnamed.contains(&(None, false)));
    let counted = store.prune(PruneMode::Count, || ()).unwrap();
    assert_eq!(prune(&store), counted);
    // The model, the manifest and the configuration of the second.
    assert_eq!((counted.blobs, counted.folders, counted.used), (3, 1, vec![one.manifest.clone()]));
    assert_eq!(fs::read_to_string(running.path().join("model.onnx")).unwrap(), "1 of 5");
    assert!(check(&store).is_clean());

    drop(running);
    assert_eq!((prune(&store).blobs, prune(&store)), (4, PruneReport::default()));
    for empty in ["blobs/sha256", "pipelines", "ingest"] {
        assert_eq!(store.root().join(empty).read_dir().unwrap().count(), 0, "{empty}");
    }
}

#[test]
fn prune_removes_nothing_beside_a_manifest_that_cannot_be_read() {
    let (folder, store) = store();
    let kept = add(folder.path(), &store, "p", "model");
    fs::write(store.blobs().join("0".repeat(64)), "no name needs it").unwrap();
    fs::remove_file(store.blob(&kept.manifest)).unwrap();
    let refused = store.prune(PruneMode::Remove, || ()).unwrap_err();
    assert!(matches!(&refused, StoreError::Missing { file, .. } if file == "manifest"), "{refused:?}");
    assert_eq!(store.blobs().read_dir().unwrap().count(), 4);
}

#[test]
fn a_digest_means_its_pipeline_until_it_is_removed() {
    let (folder, store) = store();
    let one = add(folder.path(), &store, "p:1", "one").manifest;
    assert_eq!(store.named_digest("p").unwrap(), None, "no name is a version's");
    let two = add(folder.path(), &store, "p:1", "two").manifest;
    assert_eq!(store.named_digest("p:1").unwrap(), Some(two));
    let wanted = format!("sha256:{one}");
    assert_eq!(store.resolve(&wanted).unwrap().unwrap().manifest, one);
    let refused = store.remove_names(std::slice::from_ref(&wanted)).unwrap_err();
    assert!(matches!(refused, StoreError::Unnamed(_)), "{refused:?}");
    prune(&store);
    assert_eq!(store.resolve(&wanted).unwrap(), None);
}

#[test]
fn a_damaged_index_is_set_aside_once() {
    let (folder, store) = store();
    add(folder.path(), &store, "p", "model");
    let aside = store.root().join(DAMAGED);
    for (time, text) in ["first", "second"].into_iter().enumerate() {
        fs::write(store.index(), text).unwrap();
        assert!(!check(&store).is_clean());
        let found: BTreeSet<_> = files_in(&aside).map(|(path, _)| fs::read_to_string(path).unwrap()).collect();
        assert_eq!(found.len(), time + 1);
        assert!(found.contains(text));
        add(folder.path(), &store, "p", "model");
        // Another process that saw the damage, and looks again only now.
        store.set_index_aside().unwrap();
        assert_eq!(store.named_digests().unwrap().len(), 1);
    }
}

#[test]
fn names_may_be_many() {
    let (folder, store) = store();
    let digits = add(folder.path(), &store, "p", "model").manifest;
    let mut index = store.read_index().unwrap();
    for number in 0..50_000 {
        let mut entry = index.manifests[0].clone();
        entry.annotations.insert("org.opencontainers.image.ref.name".to_owned(), format!("p:{number}"));
        index.manifests.push(entry);
    }
    store.write_index(&index).unwrap();
    assert_eq!(store.named_digest("p:49999").unwrap(), Some(digits.clone()));
    store.add_name("q", &digits).unwrap();

    let entry = index.manifests.swap_remove(0);
    index.manifests = vec![entry; 300_000];
    let refused = store.write_index(&index).unwrap_err();
    assert!(matches!(refused, StoreError::TooManyNames(300_000)), "{refused:?}");
    assert_eq!(store.named_digest("q").unwrap(), Some(digits));
}

#[test]
fn check_sets_aside_what_is_damaged_and_the_next_add_heals_it() {
    let (folder, store) = store();
    let kept = add(folder.path(), &store, "p", "model");
    add(folder.path(), &store, "other", "another model");
    drop(store.lay_out(&kept).unwrap());
    assert!(check(&store).is_clean());

    let model = store.blob(&kept.files[1].sha256);
    let change = |text: &str| {
        // As a failing disk does it: the same file, so that the link in the folder has it, too.
        let mut permissions = model.metadata().unwrap().permissions();
        #[expect(clippy::permissions_set_readonly_false, reason = "a file of this test")]
        permissions.set_readonly(false);
        fs::set_permissions(&model, permissions).unwrap();
        fs::write(&model, text).unwrap();
    };
    change("mOdel");
    let refused = try_add(folder.path(), &store, "p", "model").unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused:?}");
    let found = check(&store);
    assert_eq!(
        (found.damaged.as_slice(), found.hurt.keys().map(String::as_str).collect::<Vec<_>>()),
        ([model.clone()].as_slice(), vec!["p"])
    );
    assert!(
        store.resolve("p").unwrap_err().to_string().starts_with("`model.onnx` of the pipeline is not in the store")
    );
    assert!(!check(&store).is_clean(), "until it is healed");

    add(folder.path(), &store, "p", "model");
    assert!(check(&store).is_clean());
    let laid = store.lay_out(&kept).unwrap();
    assert_eq!(fs::read_to_string(laid.path().join("model.onnx")).unwrap(), "model");
    assert_eq!(prune(&store).blobs, 1, "what was set aside");

    // While a process runs it, its folder stays as it is, and the check says so.
    change("modEl");
    let found = check(&store);
    assert!(found.hurt[&laid.digest()].contains("which a process runs"), "{found:?}");
}

#[cfg(unix)]
#[test]
fn a_store_that_cannot_be_written_to_is_read() {
    use std::os::unix::fs::PermissionsExt as _;

    if rustix::process::geteuid().is_root() {
        return;
    }
    let (folder, store) = store();
    let kept = add(folder.path(), &store, "p", "model");
    drop(store.lay_out(&kept).unwrap());
    drop(store);
    let root = folder.path().join("store");
    let set = |mode: u32| {
        for folder in [root.clone(), root.join("ingest"), root.join("pipelines"), root.join("blobs/sha256")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        for file in ["store.lock", "index.lock"] {
            fs::set_permissions(root.join(file), fs::Permissions::from_mode(mode & 0o666)).unwrap();
        }
    };
    set(0o500);
    let store = Store::open(&root).unwrap();
    assert!(!store.is_writable());
    let laid = store.lay_out(&store.resolve("p").unwrap().unwrap()).unwrap();
    assert_eq!(laid.path().parent(), Some(root.join("pipelines").as_path()));
    assert!(matches!(store.prune(PruneMode::Remove, || ()), Err(StoreError::ReadOnly(_))));
    assert!(matches!(store.remove_names(&["p".to_owned()]), Err(StoreError::ReadOnly(_))));
    assert!(check(&store).is_clean());
    set(0o700);
}
