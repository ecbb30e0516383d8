//! Bundles that are right, that are wrong in one way each, and a thousand that are damaged at random.

mod bad_bundles;
mod mutated_bundles;

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use tar::{EntryType, Header};
use tempfile::TempDir;

use crate::digest::sha256;
use crate::manifest::BundleInfo;
use crate::{BundleFile, BundlePlan, FileRole, FileSource, Store, StoreError, StoredPipeline, is_bundle, peek};

const PIPELINE: &[u8] = b"name: digits\nversion: 1.0.0\nmodel: { source: m/digits.onnx }\n";

/// Files of a pipeline, two of them with one content.
fn files() -> Vec<BundleFile> {
    let model: Vec<u8> = (0..3000_u32).map(|index| (index * 7) as u8).collect();
    let files = [
        ("gpux.yml", PIPELINE),
        ("m/digits.onnx", &model),
        ("m/labels.txt", b"zero\none\n"),
        ("copy.onnx", &model),
        ("README.md", b""),
    ];
    let file = |(path, bytes): (&str, &[u8])| BundleFile {
        path: path.to_owned(),
        role: FileRole::of(path),
        source: FileSource::Bytes(bytes.to_owned()),
    };
    files.map(file).into()
}

fn info() -> BundleInfo {
    let annotations = [("dev.example.note".to_owned(), "kept".to_owned())].into();
    let (version, licenses) = (Some("1.0.0".to_owned()), Some("Apache-2.0".to_owned()));
    BundleInfo { name: "digits".to_owned(), version, licenses, annotations, ..BundleInfo::default() }
}

fn plan() -> BundlePlan {
    BundlePlan::new(files(), info()).unwrap()
}

fn archive_of(plan: &BundlePlan) -> (Vec<u8>, StoredPipeline) {
    let mut file = tempfile::tempfile().unwrap();
    let written = plan.write_archive(&mut file, Path::new("x.tar"), &mut |_| {}).unwrap();
    let mut bytes = Vec::new();
    std::io::Seek::rewind(&mut file).unwrap();
    std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
    (bytes, written)
}

fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    (folder, store)
}

/// Reads bytes as a bundle, into a store of its own.
fn add(bytes: &[u8]) -> Result<StoredPipeline, StoreError> {
    let (folder, store) = store();
    let path = folder.path().join("bundle.tar");
    std::fs::write(&path, bytes).unwrap();
    let added = store.add_bundle(&path, Some("x"), &mut |_| {});
    if added.is_err() {
        assert_eq!(store.resolve("x").unwrap(), None, "a name means a whole pipeline");
    }
    check_store(&store);
    added
}

/// Every file of the store is what its name says, and nothing half done is left.
fn check_store(store: &Store) {
    for entry in store.root().join("blobs/sha256").read_dir().unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), sha256(&std::fs::read(&path).unwrap()));
    }
    assert_eq!(store.root().join("ingest").read_dir().unwrap().count(), 0);
}

/// An entry of an archive.
fn entry(name: &str, kind: EntryType, bytes: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o600);
    header.set_mtime(1_700_000_000);
    header.set_size(bytes.len() as u64);
    header.set_cksum();
    let mut entry = header.as_bytes().to_vec();
    entry.extend(bytes);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

/// A bundle made of parts, each of which a test can change.
struct Parts {
    manifest: Json,
    index: Json,
    blobs: Vec<Vec<u8>>,
    /// entries before all others
    before: Vec<u8>,
}

impl Parts {
    fn new() -> Self {
        let blobs = vec![PIPELINE.to_owned(), b"weights".to_vec(), b"{}".to_vec()];
        let layer = |path: &str, kind: &str, bytes: &[u8]| {
            json!({
                "mediaType": format!("application/vnd.cncf.model.{kind}.v1.raw"),
                "digest": format!("sha256:{}", sha256(bytes)),
                "size": bytes.len(),
                "annotations": { "org.cncf.model.filepath": path },
            })
        };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.cncf.model.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.cncf.model.config.v1+json",
                "digest": format!("sha256:{}", sha256(b"{}")),
                "size": 2,
            },
            "layers": [layer("gpux.yml", "code", PIPELINE), layer("model.onnx", "weight", b"weights")],
            "annotations": { "dev.gpux.bundle": "1" },
        });
        let index = json!({ "schemaVersion": 2, "manifests": [] });
        Self { manifest, index, blobs, before: Vec::new() }
    }

    /// A manifest as an index refers to it.
    fn entry_of(manifest: &[u8]) -> Json {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{}", sha256(manifest)),
            "size": manifest.len(),
        })
    }

    /// The archive, with the manifest as the only one of the index unless that has some already.
    fn pack(&self) -> Vec<u8> {
        self.pack_with(&serde_json::to_vec(&self.manifest).unwrap())
    }

    fn pack_with(&self, manifest: &[u8]) -> Vec<u8> {
        let mut index = self.index.clone();
        let entries = index["manifests"].as_array_mut();
        if let Some(entries) = entries.filter(|entries| entries.is_empty()) {
            entries.push(Self::entry_of(manifest));
        }
        self.pack_documents(&serde_json::to_vec(&index).unwrap(), manifest)
    }

    fn pack_documents(&self, index: &[u8], manifest: &[u8]) -> Vec<u8> {
        let mut archive = self.before.clone();
        archive.extend(entry("oci-layout", EntryType::Regular, b"{\"imageLayoutVersion\":\"1.0.0\"}"));
        archive.extend(entry("index.json", EntryType::Regular, index));
        for bytes in self.blobs.iter().map(Vec::as_slice).chain([manifest]) {
            archive.extend(entry(&format!("blobs/sha256/{}", sha256(bytes)), EntryType::Regular, bytes));
        }
        archive.extend([0; 1024]);
        archive
    }
}

#[test]
fn an_archive_carries_a_pipeline_from_store_to_store() {
    let (bytes, written) = archive_of(&plan());
    let added = add(&bytes).unwrap();
    assert_eq!(added, written);
    assert_eq!((added.name(), added.version()), (Some("digits"), Some("1.0.0")));
    assert_eq!(added.annotations["dev.example.note"], "kept");
    assert_eq!(added.annotations["org.opencontainers.image.licenses"], "Apache-2.0");
    let paths: Vec<_> = added.files.iter().map(|file| (file.path.as_str(), file.role.name(), file.size)).collect();
    let expected = [
        ("README.md", "doc", 0),
        ("copy.onnx", "weight", 3000),
        ("gpux.yml", "code", 61),
        ("m/digits.onnx", "weight", 3000),
        ("m/labels.txt", "weight.config", 9),
    ];
    assert_eq!(paths, expected);
    assert_eq!(added.size(), 3070);
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let (bytes, written) = archive_of(&plan());
    let mut reversed = files();
    reversed.reverse();
    assert_eq!(archive_of(&BundlePlan::new(reversed, info()).unwrap()).0, bytes);
    assert_eq!(plan().digest(&mut |_| {}).unwrap(), written);
    let (_folder, store) = store();
    assert_eq!(store.add_files(&plan(), None, &mut |_| {}).unwrap(), written);
    // As this version has always written it: a change here changes the digest of every bundle.
    assert_eq!(written.manifest, "14920a102d3daf39124e32854a4a015ce12a00c5af2d40b4771cb43889180b85");
    assert_eq!(sha256(&bytes), "b3dc16b7491fb12196def66e8015f3a4a3d7378202790fbb011aec83cb83ebcf");
}

#[test]
fn a_folder_is_a_bundle_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let written = plan().write_folder(folder.path(), &mut |_| {}).unwrap();
    assert!(is_bundle(folder.path()));
    assert_eq!(peek(folder.path()).unwrap(), written);
    let (_store_folder, store) = store();
    assert_eq!(store.add_bundle(folder.path(), Some("digits:1.0.0"), &mut |_| {}).unwrap(), written);
    assert_eq!(store.resolve("digits:1.0.0").unwrap(), Some(written));
    // The store itself is such a folder.
    assert_eq!(peek(store.root()).unwrap().name(), Some("digits"));
    check_store(&store);
}

#[test]
fn only_archives_and_layouts_are_bundles() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(is_bundle(&path("a", &archive_of(&plan()).0)));
    assert!(is_bundle(&path("b", b"\x1f\x8b\x08")), "what is compressed gets an error that says so");
    for bytes in [&b""[..], b"name: x\n", b"\x08\x08", &[0; 1024]] {
        assert!(!is_bundle(&path("c", bytes)));
    }
    assert!(!is_bundle(folder.path()) && !is_bundle(&folder.path().join("none")));
}

#[test]
fn a_file_that_the_store_has_is_not_copied_again() {
    let (folder, store) = store();
    let path = folder.path().join("bundle.tar");
    let (bytes, written) = archive_of(&plan());
    std::fs::write(&path, &bytes).unwrap();
    let mut copied = 0;
    store.add_bundle(&path, None, &mut |bytes| copied += bytes).unwrap();
    assert_eq!(copied, 3070, "two paths of one content are copied once");
    assert_eq!(store.resolve("digits").unwrap(), None);
    let model = store.blob(&written.files.iter().find(|file| file.path == "copy.onnx").unwrap().sha256);
    let made = model.metadata().unwrap().modified().unwrap();
    let mut read = 0;
    assert_eq!(store.add_bundle(&path, Some("digits"), &mut |bytes| read += bytes).unwrap(), written);
    assert_eq!((read, model.metadata().unwrap().modified().unwrap()), (3070, made));
    assert_eq!(store.resolve("digits").unwrap(), Some(written));
}

#[test]
fn refuses_to_bundle_what_may_not_travel() {
    let with = |path: &str, bytes: &[u8]| {
        let mut files = files();
        let source = FileSource::Bytes(bytes.to_owned());
        files.push(BundleFile { path: path.to_owned(), role: FileRole::Code, source });
        BundlePlan::new(files, info()).err().map(|error| error.to_string())
    };
    assert_eq!(with("x.txt", b"text"), None);
    for (path, bytes, words) in [
        ("x.cwasm", &b"\x7fELF"[..], "machine code (ELF)"),
        ("x.cwasm", b"?", "compiled component"),
        ("../x", b"?", "leads out of the folder"),
        ("GPUX.yml", b"?", "differ by case"),
        ("gpux.yml", b"?", "two of its files"),
        ("gpux.yml/x", b"?", "is a file, and the folder of"),
    ] {
        let error = with(path, bytes).unwrap();
        assert!(error.contains(words), "{path}: {error}");
    }
}

#[test]
fn reads_what_other_programs_write() {
    // `skopeo copy oci-archive:bundle.tar oci:layout:two`, and from there `oci-archive:skopeo.tar:two`: folders have
    // entries, times and owners are there, and the index has other fields.
    let added = add(include_bytes!("skopeo.tar")).unwrap();
    assert_eq!(added.manifest, "70e218b4a22ec46d61977446b9b7de6de8f24c6bbc4997029a96376da6194361");
    assert_eq!((added.name(), added.version()), (Some("scores"), Some("1.2.0")));

    // As modctl packs a folder: what the specification of ModelPack names, and nothing of gpux's.
    let mut parts = Parts::new();
    parts.manifest["annotations"] = json!({ "org.opencontainers.image.created": "2026-01-01T00:00:00Z" });
    parts.manifest["subject"] = json!({ "mediaType": "x", "digest": "sha256:0", "size": 1 });
    let metadata = "{\"name\":\"model.onnx\",\"mode\":420,\"uid\":0,\"gid\":0,\"size\":7,\"mtime\":\"2026-01-01T00:00:00Z\",\"typeflag\":48}";
    let layer = &mut parts.manifest["layers"][1];
    layer["annotations"]["org.cncf.model.file.metadata+json"] = metadata.into();
    layer["annotations"]["org.cncf.model.file.mediatype.untested"] = "true".into();
    layer["urls"] = json!(["https://example.com/model.onnx"]);
    let added = add(&parts.pack()).unwrap();
    assert_eq!((added.files[1].path.as_str(), added.name()), ("model.onnx", None));
}

#[test]
fn takes_a_file_by_its_bytes_not_by_its_digest() {
    let (folder, store) = store();
    let (bytes, right) = archive_of(&plan());
    let path = folder.path().join("bundle.tar");
    std::fs::write(&path, &bytes).unwrap();
    store.add_bundle(&path, Some("x"), &mut |_| {}).unwrap();
    // Who knows the digest of a file of another's gets it by that no more than by its name.
    let labels = &right.files.iter().find(|file| file.path == "m/labels.txt").unwrap().sha256;
    let at = bytes.windows(9).position(|window| window == b"zero\none\n").unwrap();
    let mut wrong = bytes.clone();
    wrong[at..at + 4].copy_from_slice(b"four");
    std::fs::write(&path, &wrong).unwrap();
    let error = store.add_bundle(&path, Some("y"), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains(&format!("its digest is not sha256:{labels}")), "{error}");
    assert_eq!(store.resolve("y").unwrap(), None);
    check_store(&store);

    store.verify(&right, &mut |_| {}).unwrap();
    let blob = store.blob(labels);
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, "four\none\n").unwrap();
    assert!(store.verify(&right, &mut |_| {}).unwrap_err().to_string().contains("it is not the file `m/labels.txt`"));
}

#[test]
#[cfg(unix)]
fn lays_no_file_over_another() {
    let (_folder, store) = store();
    let mut kept = store.add_files(&plan(), None, &mut |_| {}).unwrap();
    // As on a file system to which two spellings are one path.
    kept.files[1].path = kept.files[0].path.clone();
    let error = store.lay_out(&kept).unwrap_err().to_string();
    assert!(error.contains("File exists"), "{error}");
    check_store(&store);
}

#[test]
#[cfg(unix)]
fn reads_no_layout_through_links() {
    let (folder, store) = store();
    let layout = folder.path().join("layout");
    std::fs::create_dir(&layout).unwrap();
    plan().write_folder(&layout, &mut |_| {}).unwrap();
    std::fs::rename(layout.join("blobs"), folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", layout.join("blobs")).unwrap();
    let error = store.add_bundle(&layout, None, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("behind a symbolic link"), "{error}");
}
