#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Write as _;

use super::*;

struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _: &str) {}
    fn bytes(&mut self, _: u64, _: u64) {}
}

fn wheel(path: &Path, entry: &str, content: &[u8]) {
    let mut writer = zip::ZipWriter::new(fs::File::create(path).unwrap());
    writer.start_file(entry, zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap();
}

#[test]
fn only_the_known_library_is_put_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path());
    let archive = folder.path().join("onnxruntime.whl");
    wheel(&archive, "capi/lib.so", b"the library");
    let known = "6a1fbcd2f3a9a2cd69b1fd1a4a8d2bca5a46b6a0b8d2bf0b87a8ef1d0f9b7f1c";
    let entry = |sha256| pinned::Entry { path: "capi/lib.so", name: "lib.so", sha256 };
    let error = unpack(&cache, Client::Pip, entry(known), &archive).unwrap_err().to_string();
    assert!(error.contains("is not the file that gpux knows") && error.contains("nothing was installed"), "{error}");
    let engines: Vec<_> = fs::read_dir(folder.path().join("engines")).unwrap().collect();
    assert!(engines.is_empty(), "{engines:?}");

    let right: &'static str = Box::leak(crate::files::digest(b"the library").into_boxed_str());
    let placed = unpack(&cache, Client::Pip, entry(right), &archive).unwrap();
    assert!(placed.ends_with("engines/onnxruntime-1.31.1-cpu/lib.so"));
    assert_eq!(fs::read(&placed).unwrap(), b"the library");
    // A second installation at the same time finds it there.
    assert_eq!(unpack(&cache, Client::Pip, entry(right), &archive).unwrap(), placed);
    let missing = pinned::Entry { path: "capi/none.so", ..entry(right) };
    assert!(matches!(unpack(&cache, Client::Pip, missing, &archive), Err(InstallError::Archive { .. })));
}

#[test]
fn npms_archive_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("package.tgz");
    let gzip = flate2::write::GzEncoder::new(fs::File::create(&archive).unwrap(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gzip);
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    header.set_cksum();
    builder.append_data(&mut header, "package/bin/lib.so", &b"four"[..]).unwrap();
    builder.into_inner().unwrap().finish().unwrap();
    let target = folder.path().join("lib.so");
    archive::extract(&archive, "package/bin/lib.so", &target).unwrap();
    assert_eq!(fs::read(target).unwrap(), b"four");
}

#[test]
fn offline_uses_what_is_there_and_fetches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(pinned) = pinned::here() else { return };
    let request = InstallRequest { cache: CacheDir::at(folder.path()), offline: true };
    let error = install(&request, &mut Silent).unwrap_err();
    assert!(matches!(error, InstallError::Offline { .. }), "{error}");
    let place = folder.path().join("engines/onnxruntime-1.31.1-cpu");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join(pinned.in_wheel.name), "x").unwrap();
    let installed = install(&request, &mut Silent).unwrap();
    assert!(installed.already && installed.found.version.as_deref() == Some("1.31.1"));
}
