#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Write as _;

use super::package::PackageClient;
use super::*;

struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _: &str) {}
    fn bytes(&mut self, _: u64, _: u64) {}
}

/// A wheel in the folder of downloads, and its digest.
fn wheel(cache: &CacheDir, name: &str, entries: &[(&str, &[u8])]) -> String {
    let path = cache.folder(CacheFolder::Downloads).unwrap().join(name);
    let mut writer = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    for (entry, content) in entries {
        if entry.ends_with('/') {
            writer.add_directory(*entry, zip::write::SimpleFileOptions::default()).unwrap();
            continue;
        }
        writer.start_file(*entry, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap();
    digest(&path).unwrap()
}

fn package(archive: &str, sha256: impl Into<String>, files: &[&str]) -> Package {
    let own = |text: &str| text.to_owned();
    Package {
        name: own("pack"),
        version: own("1"),
        platform: own("any"),
        archive: own(archive),
        sha256: sha256.into(),
        size: 1,
        folder: own("capi/"),
        files: files.iter().map(|file| own(file)).collect(),
    }
}

/// A package of npm's, which is read without its digest.
fn tarball(files: &[&str]) -> Package {
    Package { folder: "package/bin/".to_owned(), ..package("package.tgz", "", files) }
}

fn bundle(packages: Vec<Package>) -> Bundle {
    Bundle {
        build: LibraryBuild::Cuda,
        plugin: false,
        os: "any".to_owned(),
        arch: "any".to_owned(),
        client: PackageClient::Pip,
        version: "1.31.1".to_owned(),
        library: "lib.so".to_owned(),
        packages,
    }
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn installs_several_packages_atomically() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path());
    let request = InstallRequest { cache: cache.clone(), build: LibraryBuild::Cuda, offline: true, whole: false };
    let first = wheel(&cache, "a.whl", &[("capi/lib.so", b"the library"), ("capi/other.py", b"x")]);
    let second = wheel(&cache, "b.whl", &[("capi/cudart.so", b"cuda"), ("capi/cudnn.so", b"cudnn")]);
    let bundle =
        bundle(vec![package("a.whl", first, &["lib.so"]), package("b.whl", second, &["cudart.so", "cudnn.so"])]);
    let installed = install_one_of(&[&bundle], &request, &mut Silent).unwrap();
    assert!(!installed.already && installed.path.ends_with("engines/onnxruntime-1.31.1-cuda/lib.so"));
    assert_eq!(names(installed.path.parent().unwrap()), ["cudart.so", "cudnn.so", "lib.so"]);
    assert!(names(&folder.path().join("downloads")).is_empty(), "what is installed is not kept twice");
    assert!(install_one_of(&[&bundle], &request, &mut Silent).unwrap().already);
}

#[test]
fn rejects_packages_with_wrong_digest() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path());
    let request = InstallRequest { cache: cache.clone(), build: LibraryBuild::Cuda, offline: true, whole: false };
    let right = wheel(&cache, "a.whl", &[("capi/lib.so", b"the library")]);
    wheel(&cache, "b.whl", &[("capi/cudart.so", b"something else")]);
    let known = "6a1fbcd2f3a9a2cd69b1fd1a4a8d2bca5a46b6a0b8d2bf0b87a8ef1d0f9b7f1c";
    let bundle = bundle(vec![package("a.whl", right, &["lib.so"]), package("b.whl", known, &["cudart.so"])]);
    let error = install_one_of(&[&bundle], &request, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("is not the one that gpux knows") && error.contains("nothing was installed"), "{error}");
    assert!(names(&folder.path().join("engines")).is_empty());
    assert_eq!(names(&folder.path().join("downloads")), ["a.whl"]);

    let error = install_one_of(&[&bundle], &request, &mut Silent).unwrap_err();
    assert!(matches!(error, InstallError::Offline { ref missing, .. } if missing == "b.whl"), "{error}");
}

#[test]
fn rejects_packages_without_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path());
    let request = InstallRequest { cache: cache.clone(), build: LibraryBuild::Cuda, offline: true, whole: false };
    let sha256 = wheel(&cache, "a.whl", &[("capi/lib.so", b"the library")]);
    let bundle = bundle(vec![package("a.whl", sha256, &["lib.so", "none.so"])]);
    let error = install_one_of(&[&bundle], &request, &mut Silent).unwrap_err();
    assert!(matches!(&error, InstallError::Archive { reason, .. } if reason.contains("capi/none.so")), "{error}");
    assert!(names(&folder.path().join("engines")).is_empty());
}

#[test]
fn reads_npm_archives() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("package.tgz");
    let gzip = flate2::write::GzEncoder::new(fs::File::create(&archive).unwrap(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gzip);
    for (path, content) in [("package/bin/lib.so", "four"), ("package/LICENSE", "free")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap();
    archive::extract(&archive, &tarball(&["lib.so"]), folder.path()).unwrap();
    assert_eq!(fs::read(folder.path().join("lib.so")).unwrap(), b"four");
    assert_eq!(fs::read(folder.path().join("licenses/package/LICENSE")).unwrap(), b"free");
    let error = archive::extract(&archive, &tarball(&["other.so"]), folder.path()).unwrap_err();
    assert!(error.to_string().contains("it holds no `package/bin/other.so`"), "{error}");
}

#[test]
fn installs_licences_and_notices() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path());
    let request = InstallRequest { cache: cache.clone(), build: LibraryBuild::Cuda, offline: true, whole: false };
    let entries: [(&str, &[u8]); 8] = [
        ("pack/LICENSE", b"free"),
        ("pack/ThirdPartyNotices.txt", b"thanks"),
        ("pack-1.dist-info/licenses/", b""),
        ("pack-1.dist-info/licenses/onednn_third-party-programs.txt", b"and to these"),
        ("capi/lib.so", b"the library"),
        ("capi/license_check.py", b"code"),
        ("../LICENSE", b"outside"),
        ("/LICENSE", b"outside"),
    ];
    let sha256 = wheel(&cache, "a.whl", &entries);
    let installed =
        install_one_of(&[&bundle(vec![package("a.whl", sha256, &["lib.so"])])], &request, &mut Silent).unwrap();
    let engine = installed.path.parent().unwrap();
    assert_eq!(names(engine), ["lib.so", "licenses"]);
    assert_eq!(names(&engine.join("licenses")), ["pack", "pack-1.dist-info"]);
    assert_eq!(names(&engine.join("licenses/pack")), ["LICENSE", "ThirdPartyNotices.txt"]);
    assert_eq!(names(&engine.join("licenses/pack-1.dist-info/licenses")), ["onednn_third-party-programs.txt"]);
    assert_eq!(names(&folder.path().join("engines")), ["onnxruntime-1.31.1-cuda"]);
}

#[test]
fn reports_platforms_without_build() {
    let folder = tempfile::tempdir().unwrap();
    let request = InstallRequest {
        cache: CacheDir::at(folder.path()),
        build: LibraryBuild::DirectMl,
        offline: false,
        whole: false,
    };
    let error = install_one_of(&[], &request, &mut Silent).unwrap_err();
    assert!(error.to_string().contains("of the kind `directml` for "), "{error}");
    assert!(error.to_string().contains("gpux engine install cpu"), "{error}");
}

#[test]
fn updates_and_removes_what_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path());
    let pinned = Bundle::for_this_machine(LibraryBuild::Cpu, false);
    let Some(pinned) = pinned.first().map(|bundle| bundle.folder()) else { return };
    for name in [pinned.as_str(), "onnxruntime-1.24.0-cpu", "onnxruntime-1.20.0-cuda", "onnxruntime-ep-webgpu-0.1.0"] {
        fs::create_dir_all(folder.path().join("engines").join(name)).unwrap();
    }
    let plugin = installed(&cache).into_iter().find(|installed| installed.plugin).unwrap();
    assert_eq!(plugin.build, LibraryBuild::WebGpu);
    assert_eq!(remove_outdated(&cache).unwrap(), [folder.path().join("engines/onnxruntime-1.24.0-cpu")]);
    assert_eq!(remove(&cache, LibraryBuild::WebGpu).unwrap(), [plugin.folder]);
    assert_eq!(remove(&cache, LibraryBuild::WebGpu).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(names(&folder.path().join("engines")), ["onnxruntime-1.20.0-cuda", pinned.as_str()]);
}
