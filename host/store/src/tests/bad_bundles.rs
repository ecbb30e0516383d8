//! A bundle for each thing that can be wrong with one.

use serde_json::json;
use tar::EntryType;

use super::{PIPELINE, Parts, add, archive_of, entry, plan};
use crate::digest::sha256;
use crate::{BundleFault, StoreError};

fn fault(bytes: &[u8]) -> BundleFault {
    match add(bytes) {
        Err(StoreError::Bundle { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

/// The fault of parts that were changed.
fn with(change: impl FnOnce(&mut Parts)) -> BundleFault {
    let mut parts = Parts::new();
    change(&mut parts);
    fault(&parts.pack())
}

fn paths(first: &str, second: &str) -> BundleFault {
    with(|parts| {
        for (layer, path) in [(0, first), (1, second)] {
            parts.manifest["layers"][layer]["annotations"]["org.cncf.model.filepath"] = path.into();
        }
    })
}

#[test]
fn what_the_parts_make_is_right() {
    assert_eq!(add(&Parts::new().pack()).unwrap().files.len(), 2);
}

#[test]
fn refuses_what_is_no_archive() {
    assert_eq!(fault(b"name: x\n"), BundleFault::NotAnArchive);
    assert_eq!(fault(b"\x1f\x8b\x08\0"), BundleFault::Compressed("gzip"));
    assert_eq!(fault(&entry("a", EntryType::Regular, b"")), BundleFault::Truncated { at: 512 });
    let mut other = entry("gpux.yml", EntryType::Regular, PIPELINE);
    other.extend([0; 1024]);
    assert_eq!(fault(&other), BundleFault::NotALayout { missing: "oci-layout" });
}

#[test]
fn refuses_archives_that_are_cut_off_or_go_on() {
    let (bytes, _) = archive_of(&plan());
    for end in [513, 1024, bytes.len() / 2, bytes.len() - 1024, bytes.len() - 512] {
        assert_eq!(fault(&bytes[..end]), BundleFault::Truncated { at: end as u64 }, "{end}");
    }
    let mut longer = bytes.clone();
    longer.extend(&bytes);
    assert_eq!(fault(&longer), BundleFault::TrailingBytes, "a second archive");
    longer.truncate(bytes.len());
    longer.resize(longer.len() + (5 << 20), 0);
    assert_eq!(fault(&longer), BundleFault::TrailingBytes, "more than any program adds");
    longer.truncate(bytes.len() + 9 * 1024);
    add(&longer).unwrap();
}

#[test]
fn refuses_entries_that_are_no_plain_files() {
    for (kind, words) in [
        (EntryType::Symlink, "a symbolic link"),
        (EntryType::Link, "a hard link"),
        (EntryType::Char, "a device"),
        (EntryType::Fifo, "a pipe"),
        (EntryType::GNUSparse, "a sparse file"),
        (EntryType::GNULongName, "a name in a block of its own"),
        (EntryType::GNULongLink, "a name in a block of its own"),
        (EntryType::Continuous, "of a kind that is not known"),
        (EntryType::new(b'!'), "of a kind that is not known"),
    ] {
        let found = with(|parts| parts.before = entry("blobs/x", kind, b""));
        assert_eq!(found, BundleFault::EntryKind { name: "blobs/x".to_owned(), kind: words });
    }
    add(&{
        let mut parts = Parts::new();
        let comment = entry("pax_global_header", EntryType::XGlobalHeader, b"16 comment=text\n");
        let folders = [entry("./", EntryType::Directory, b""), entry("blobs/", EntryType::Directory, b"")].concat();
        parts.before = [comment, folders].concat();
        parts.pack()
    })
    .unwrap();
    let found = with(|parts| parts.before = entry("x", EntryType::XGlobalHeader, b"10 size=1\n"));
    assert!(
        matches!(found, BundleFault::EntryKind { kind: "a header that gives all entries a size", .. }),
        "{found:?}"
    );
}

#[test]
fn refuses_entries_whose_names_lead_elsewhere() {
    for name in ["../x", "/etc/passwd", "blobs/../../x", "a//b", "a/./b", "c:x", "a\\b", "a\x01b", "", "./"] {
        let found = with(|parts| parts.before = entry(name, EntryType::Regular, b"x"));
        let is_expected = match &found {
            BundleFault::EntryName { name: shown } => shown == name,
            BundleFault::DuplicateEntry { .. } => name == "./",
            _ => false,
        };
        assert!(is_expected, "{name:?}: {found:?}");
    }
    let twice = with(|parts| parts.before = entry("./index.json", EntryType::Regular, b"{}"));
    assert_eq!(twice, BundleFault::DuplicateEntry { name: "index.json".to_owned() });
}

#[test]
fn refuses_extended_headers_that_change_names_or_kinds() {
    let extended = |records: &[u8]| {
        with(|parts| {
            parts.before =
                [entry("pax", EntryType::XHeader, records), entry("blobs/x", EntryType::Regular, b"")].concat();
        })
    };
    let hidden = format!("a\n{}", record("x", "y"));
    for (records, words) in [
        (record("path", "evil"), "changes more"),
        (record("linkpath", "/etc"), "changes more"),
        (record("GNU.sparse.major", "1.0"), "a sparse file"),
        (record("hdrcharset", "BINARY"), "changes more"),
        (record("size", "-1"), "no number"),
        (record("size", "1") + &record("size", "2"), "changes more"),
        ("12 linkpath\n".to_owned(), "cannot be read"),
        ("99 mtime=1\n".to_owned(), "cannot be read"),
        ("0 \n".to_owned(), "cannot be read"),
        ("3 \n".to_owned(), "cannot be read"),
        ("\0\0\0".to_owned(), "cannot be read"),
        // Behind a value of two lines.
        (record("SCHILY.xattr.user.x", &hidden) + &record("path", "evil"), "changes more"),
    ] {
        let found = extended(records.as_bytes()).to_string();
        assert!(found.contains(words), "{records}: {found}");
    }
    let large = extended(&vec![b' '; (64 << 10) + 1]);
    assert!(matches!(large, BundleFault::TooLarge { what: "an extended header", .. }), "{large:?}");
    assert!(matches!(extended(record("size", "99999999999").as_bytes()), BundleFault::Truncated { .. }));
    let mut parts = Parts::new();
    let records = record("mtime", "1.123456789") + &record("SCHILY.xattr.user.x", &hidden) + &record("size", "3");
    let mut file = entry("blobs/x", EntryType::Regular, b"abc");
    let mut header = tar::Header::from_byte_slice(&file[..512]).clone();
    header.set_size(0);
    header.set_cksum();
    file[..512].copy_from_slice(header.as_bytes());
    parts.before = [entry("p", EntryType::XHeader, records.as_bytes()), file].concat();
    add(&parts.pack()).unwrap();
}

/// A record of an extended header.
fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let digits = |length: usize| length.to_string().len();
    let length = rest + digits(rest + digits(rest));
    format!("{length} {key}={value}\n")
}

#[test]
fn refuses_sizes_that_lie() {
    let packed = Parts::new().pack();
    // The size of the first entry: in octal, and in the notation for large files.
    for size in [
        &b"77777777777\0"[..],
        b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut bytes = packed.clone();
        bytes[124..136].copy_from_slice(size);
        let mut header = tar::Header::from_byte_slice(&bytes[..512]).clone();
        header.set_cksum();
        bytes[..512].copy_from_slice(header.as_bytes());
        assert!(matches!(fault(&bytes), BundleFault::Truncated { .. }), "{size:?}");
    }
    let shorter = with(|parts| parts.manifest["layers"][1]["size"] = 6.into());
    assert_eq!(shorter, BundleFault::WrongSize { path: "model.onnx".to_owned(), found: 7, expected: 6 });
    let longer = with(|parts| parts.manifest["layers"][1]["size"] = 999_999.into());
    assert_eq!(longer, BundleFault::WrongSize { path: "model.onnx".to_owned(), found: 7, expected: 999_999 });
    let huge = with(|parts| {
        for layer in [0, 1] {
            parts.manifest["layers"][layer]["size"] = u64::MAX.into();
        }
    });
    assert!(matches!(huge, BundleFault::TooLarge { what: "all files together", .. }), "{huge:?}");
    let negative = with(|parts| parts.manifest["layers"][1]["size"] = (-1).into());
    assert!(matches!(negative, BundleFault::Json { what: "its manifest", .. }), "{negative:?}");
    let config = with(|parts| parts.manifest["config"]["size"] = (2 << 20).into());
    assert!(matches!(config, BundleFault::TooLarge { what: "its configuration", .. }), "{config:?}");
}

#[test]
fn refuses_documents_that_are_too_large() {
    let parts = Parts::new();
    let mut index = serde_json::to_vec(&parts.index).unwrap();
    index.resize(5 << 20, b' ');
    let found = fault(&parts.pack_documents(&index, b"{ }"));
    assert!(matches!(found, BundleFault::TooLarge { what: "index.json", .. }), "{found:?}");
    let mut manifest = serde_json::to_vec(&parts.manifest).unwrap();
    manifest.resize(5 << 20, b' ');
    let found = fault(&parts.pack_with(&manifest));
    assert!(matches!(found, BundleFault::TooLarge { what: "its manifest", .. }), "{found:?}");
    let many = with(|parts| {
        let layer = parts.manifest["layers"][1].clone();
        let named = (0..4096).map(|index| {
            let mut layer = layer.clone();
            layer["annotations"]["org.cncf.model.filepath"] = format!("{index}.onnx").into();
            layer
        });
        parts.manifest["layers"].as_array_mut().unwrap().extend(named);
    });
    assert_eq!(many, BundleFault::TooManyFiles { files: 4098, limit: 4096 });
    let deep = with(|parts| {
        parts.manifest["other"] = (0..40).fold(json!(1), |inner, _| json!([inner]));
    });
    assert!(matches!(&deep, BundleFault::Json { reason, .. } if reason.contains("deeper")), "{deep:?}");
}

#[test]
fn refuses_too_many_entries() {
    let empty: Vec<u8> =
        (0..13_000).flat_map(|index| entry(&format!("blobs/{index}"), EntryType::Regular, b"")).collect();
    assert_eq!(with(|parts| parts.before = empty), BundleFault::TooManyEntries { limit: 12_288 });
}

#[test]
fn reads_documents_in_one_way_only() {
    // GHSA-mc8v-mgrf-8f4m: a document that is a manifest to one program and an index to another.
    let both = with(|parts| parts.manifest["manifests"] = json!([]));
    assert_eq!(both, BundleFault::Ambiguous { what: "its manifest" });
    assert_eq!(with(|parts| parts.index["layers"] = json!([])), BundleFault::Ambiguous { what: "index.json" });
    let parts = Parts::new();
    let text = serde_json::to_string(&parts.manifest).unwrap();
    let twice = text.replacen("\"layers\":", "\"layers\":[],\"layers\":", 1);
    let found = fault(&parts.pack_with(twice.as_bytes()));
    assert!(matches!(&found, BundleFault::Json { reason, .. } if reason.contains("duplicate field")), "{found:?}");
    let twice = text.replacen("\"dev.gpux.bundle\":", "\"dev.gpux.bundle\":\"2\",\"dev.gpux.bundle\":", 1);
    assert!(matches!(fault(&parts.pack_with(twice.as_bytes())), BundleFault::Json { .. }));
    assert!(matches!(fault(&parts.pack_with(b"\xff{}")), BundleFault::Json { .. }));
    let no_type = with(|parts| {
        parts.manifest.as_object_mut().unwrap().remove("mediaType");
    });
    assert!(matches!(&no_type, BundleFault::Type { found, .. } if found.is_empty()), "{no_type:?}");
    let docker = "application/vnd.docker.distribution.manifest.v2+json";
    let found = with(|parts| parts.manifest["mediaType"] = docker.into());
    assert!(matches!(&found, BundleFault::Type { found, .. } if found == docker), "{found:?}");
    let first = with(|parts| parts.manifest["schemaVersion"] = 1.into());
    assert!(matches!(&first, BundleFault::Type { found, .. } if found == "schemaVersion 1"), "{first:?}");
    let layout = {
        let mut parts = Parts::new();
        parts.before = entry("oci-layout", EntryType::Regular, b"{\"imageLayoutVersion\":\"2.0\"}");
        let packed = parts.pack();
        // Without the one that follows.
        [&packed[..1024], &packed[2048..]].concat()
    };
    assert_eq!(fault(&layout), BundleFault::LayoutVersion { found: "2.0".to_owned() });
}

#[test]
fn refuses_paths_that_lead_elsewhere() {
    // CVE-2026-50163 and its kin: names that leave the folder, by whatever way.
    for path in [
        "../../.ssh/authorized_keys",
        "/etc/passwd",
        "a/../../x",
        "a\\..\\x",
        "c:/x",
        "a//b",
        "",
        "a/\u{202e}x",
        "nul",
        "x ",
    ] {
        let found = paths("gpux.yml", path);
        assert!(matches!(&found, BundleFault::Path { path: shown, .. } if shown == path), "{path}: {found:?}");
    }
    assert!(matches!(paths("gpux.yml", &"d/".repeat(40)), BundleFault::Path { .. }));
    assert_eq!(paths("gpux.yml", "gpux.yml"), BundleFault::SamePath { path: "gpux.yml".to_owned() });
    assert!(matches!(paths("gpux.yml", "Gpux.yml"), BundleFault::Case { .. }));
    assert!(matches!(paths("gpux.yml", "gpux.yml/x"), BundleFault::FileAsFolder { .. }));
    let unnamed = with(|parts| {
        parts.manifest["layers"][1].as_object_mut().unwrap().remove("annotations");
    });
    assert!(matches!(&unnamed, BundleFault::Path { reason, .. } if reason.contains("without a path")), "{unnamed:?}");
}

#[test]
fn refuses_digests_that_are_none() {
    // CVE-2024-37032 and CVE-2026-7020: a digest that became a path.
    let correct = sha256(b"weights");
    for digest in
        ["sha256:../../../etc/passwd", "sha512:00", "", &correct, &format!("sha256:{}", correct.to_uppercase())]
    {
        let found = with(|parts| parts.manifest["layers"][1]["digest"] = digest.into());
        assert_eq!(found, BundleFault::NoSha256 { found: digest.to_owned() });
    }
    let other = sha256(b"others");
    let found = with(|parts| parts.manifest["layers"][1]["digest"] = format!("sha256:{other}").into());
    assert_eq!(found, BundleFault::MissingFile { path: "model.onnx".to_owned(), digest: other });
    let packed = Parts::new().pack();
    let place = packed.windows(7).position(|bytes| bytes == b"weights").unwrap();
    let mut damaged = packed;
    damaged[place] ^= 1;
    assert_eq!(fault(&damaged), BundleFault::WrongDigest { path: "model.onnx".to_owned(), digest: correct });
}

#[test]
fn refuses_what_is_no_pipeline_or_a_newer_one() {
    let image = with(|parts| {
        parts.manifest.as_object_mut().unwrap().remove("artifactType");
        parts.manifest["config"]["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
    });
    let found = "application/vnd.oci.image.config.v1+json".to_owned();
    assert_eq!(image, BundleFault::NotAPipeline { found });
    assert_eq!(paths("model.bin", "model.onnx"), BundleFault::ModelAlone);
    let annotated = |key: &str, value: &str| with(|parts| parts.manifest["annotations"][key] = value.into());
    for (key, value, words) in [
        ("dev.gpux.bundle", "2", "newer format of bundles: 2, and this is 1"),
        ("dev.gpux.bundle", "0", "newer format"),
        ("dev.gpux.contract", "gpux:pipeline@0.2.0", "newer contract with components: gpux:pipeline@0.2.0"),
        ("dev.gpux.contract", "wasi:http@0.1.0", "newer contract"),
        ("dev.gpux.requires", "99.0", "newer gpux: 99.0"),
    ] {
        let found = annotated(key, value).to_string();
        assert!(found.contains(words), "{key}={value}: {found}");
    }
    let tar =
        with(|parts| parts.manifest["layers"][1]["mediaType"] = "application/vnd.cncf.model.weight.v1.tar+gzip".into());
    assert!(matches!(&tar, BundleFault::FileType { path, .. } if path == "model.onnx"), "{tar:?}");
}

#[test]
fn refuses_code_for_machines_and_pickles() {
    for (path, bytes, words) in [
        ("model.onnx", &b"\x7fELF\x02\x01\x01"[..], "ELF"),
        ("step.wasm", b"\xcf\xfa\xed\xfe\0\0\0\0", "Mach-O"),
        ("x.cwasm", b"weights", "compiled component"),
        ("m.ort", b"\x18\0\0\0ORTM", "ONNX Runtime's own format"),
        ("weights.bin", b"\x80\x02}q\x00.", "pickle"),
    ] {
        let found = with(|parts| {
            parts.blobs[1] = bytes.to_owned();
            let layer = &mut parts.manifest["layers"][1];
            layer["digest"] = format!("sha256:{}", sha256(bytes)).into();
            layer["size"] = bytes.len().into();
            layer["annotations"]["org.cncf.model.filepath"] = path.into();
        });
        assert!(matches!(&found, BundleFault::Forbidden { what, .. } if what.contains(words)), "{path}: {found:?}");
    }
}

#[test]
fn takes_the_one_pipeline_among_others() {
    let other = |text: &str| text.as_bytes().to_vec();
    let image = other(
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":{\"mediaType\":\"c\",\"digest\":\"d\",\"size\":1},\"layers\":[]}",
    );
    let mut parts = Parts::new();
    let own = serde_json::to_vec(&parts.manifest).unwrap();
    parts.blobs.push(image.clone());
    parts.index["manifests"] = json!([Parts::entry_of(&image), Parts::entry_of(&own), Parts::entry_of(&own)]);
    assert_eq!(add(&parts.pack()).unwrap().files.len(), 2);

    parts.index["manifests"] = json!([Parts::entry_of(&image), Parts::entry_of(&image)]);
    assert!(matches!(fault(&parts.pack()), BundleFault::NoPipeline { .. }));
    parts.manifest["annotations"]["x"] = "y".into();
    let second = serde_json::to_vec(&parts.manifest).unwrap();
    parts.blobs.push(own.clone());
    parts.index["manifests"] = json!([Parts::entry_of(&own), Parts::entry_of(&second)]);
    assert!(matches!(fault(&parts.pack()), BundleFault::SeveralPipelines { .. }));

    // One that cannot be read is not passed over.
    parts.manifest["annotations"]["dev.gpux.bundle"] = "9".into();
    let newer = serde_json::to_vec(&parts.manifest).unwrap();
    parts.blobs.push(second.clone());
    parts.index["manifests"] = json!([Parts::entry_of(&newer), Parts::entry_of(&own)]);
    assert!(matches!(fault(&parts.pack()), BundleFault::Newer { .. }));
    parts.index["manifests"] = json!(vec![Parts::entry_of(&image); 65]);
    assert!(matches!(fault(&parts.pack()), BundleFault::TooManyManifests { .. }));

    let mut parts = Parts::new();
    parts.index["manifests"] =
        json!([{ "mediaType": "application/vnd.oci.image.index.v1+json", "digest": "sha256:0", "size": 1 }]);
    assert!(matches!(fault(&parts.pack()), BundleFault::NoPipeline { .. }), "an index without our entry");
    let empty = Parts::new();
    let found = fault(&empty.pack_documents(b"{\"schemaVersion\":2,\"manifests\":[]}", b"{ }"));
    assert_eq!(found, BundleFault::NoPipeline { found: "its index.json is empty".to_owned() });
}

#[test]
fn refuses_a_configuration_that_is_no_document() {
    let found = with(|parts| {
        let code = b"\x7fELF\x02\x01\x01".to_vec();
        parts.manifest["config"]["digest"] = format!("sha256:{}", sha256(&code)).into();
        parts.manifest["config"]["size"] = code.len().into();
        parts.blobs[2] = code;
    });
    assert!(matches!(found, BundleFault::Json { what: "its configuration", .. }), "{found:?}");
}
