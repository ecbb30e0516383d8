#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::probe;

fn place(root: &Path, path: &str) -> PathBuf {
    let file = root.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "no library").unwrap();
    file
}

#[cfg(target_os = "linux")]
#[test]
fn searches_option_installed_python_system() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let system = place(root, "sys/libonnxruntime.so.1.30.2");
    let python = place(root, "venv/lib/python3.12/site-packages/onnxruntime/capi/libonnxruntime.so.1.29.0");
    let cache = CacheDir::at(root.join("cache"));
    cache.folder(CacheFolder::Engines).unwrap();
    let installed = place(root, "cache/engines/onnxruntime-1.32.0-cpu/libonnxruntime.so.1.32.0");
    place(root, "cache/engines/.installing-x/libonnxruntime.so.1.99.0");
    let named = place(root, "mine/libonnxruntime.so.1.28.0");
    let mut search = LibrarySearch {
        option: Some(named.clone()),
        variable: Some(root.join("gone.so")),
        cache: Some(cache),
        python: python::site_folders(&root.join("venv")),
        system: vec![root.join("sys")],
        ..LibrarySearch::default()
    };
    let chosen = |search: &LibrarySearch| search.choose().map(|choice| choice.found.map(|found| found.path));
    assert_eq!(chosen(&search).unwrap(), Some(named));
    search.option = Some(root.join("mine"));
    assert!(chosen(&search).unwrap().unwrap().ends_with("mine/libonnxruntime.so.1.28.0"));
    search.option = None;
    let error = chosen(&search).unwrap_err().to_string();
    assert!(error.starts_with("ORT_DYLIB_PATH names `") && error.ends_with("which is not a file"), "{error}");
    search.variable = None;
    assert_eq!(chosen(&search).unwrap(), Some(installed.clone()));
    assert_eq!(search.all().into_iter().map(|found| found.path).collect::<Vec<_>>(), [installed, python, system]);
    assert_eq!(chosen(&LibrarySearch::default()).unwrap(), None);
}

#[cfg(target_os = "linux")]
#[test]
fn loads_nothing_from_a_cache_where_others_may_write() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path().join("cache"));
    let engines = cache.folder(CacheFolder::Engines).unwrap();
    let installed = place(&engines, "onnxruntime-1.32.0-cpu/libonnxruntime.so.1.32.0");
    let search = LibrarySearch { cache: Some(cache.clone()), ..LibrarySearch::default() };
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for shared in [cache.root(), &engines] {
        mode(shared, 0o777);
        let choice = search.choose().unwrap();
        assert_eq!((choice.found, search.all()), (None, Vec::new()));
        let skipped = choice.passed_over.first().unwrap();
        let reason = format!(
            "the installed ONNX Runtime 1.32.0 (`{}`) is not used, since others may write to `{}`",
            installed.display(),
            shared.display()
        );
        assert!(skipped.reason.starts_with(&reason), "{}", skipped.reason);
        mode(shared, 0o700);
    }
    assert_eq!(search.choose().unwrap().found.map(|found| found.path), Some(installed));
}

#[cfg(target_os = "linux")]
#[test]
fn names_folders_of_libraries_that_a_package_needs() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site-packages");
    let library = place(&site, "onnxruntime/capi/libonnxruntime.so.1.32.0");
    let folders = LibrarySearch { option: Some(library), ..LibrarySearch::default() }.folders();
    for needed in ["onnxruntime/capi", "nvidia/cu13/lib", "nvidia/cudnn/lib"] {
        assert!(folders.contains(&site.join(needed)), "{needed} is not among {folders:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn skips_or_rejects_old_libraries() {
    let folder = tempfile::tempdir().unwrap();
    let old = place(folder.path(), "sys/libonnxruntime.so.1.17.3");
    let search = LibrarySearch { system: vec![folder.path().join("sys")], ..LibrarySearch::default() };
    let choice = search.choose().unwrap();
    assert_eq!(choice.found, None);
    assert!(choice.passed_over[0].reason.contains("is ONNX Runtime 1.17.3, but gpux needs 1.24 or newer"));
    let search = LibrarySearch { option: Some(old), ..LibrarySearch::default() };
    assert!(matches!(search.choose(), Err(LibraryError::TooOld { .. })));
}

#[cfg(target_os = "linux")]
#[test]
fn prefers_requested_then_suitable_builds() {
    let folder = tempfile::tempdir().unwrap();
    for build in ["1.32.0-cpu", "1.30.0-cpu", "1.24.1-openvino", "1.31.1-cuda"] {
        place(folder.path(), &format!("engines/onnxruntime-{build}/libonnxruntime.so"));
    }
    let cache = CacheDir::at(folder.path());
    let order = |wanted: &[ExecutionProvider], plugins: &[ExecutionProvider], hardware: &Hardware| -> Vec<String> {
        let found =
            candidates::installed(&cache).into_iter().map(|path| LibraryFile::at(path, LibraryOrigin::Installed));
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|library| rank(library, plugins, wanted, hardware));
        let name = |file: &LibraryFile| candidates::file_name(file.path.parent().unwrap())[12..].to_owned();
        found.iter().map(name).collect()
    };
    let plain = Hardware::default();
    assert_eq!(order(&[], &[], &plain)[..2], ["1.32.0-cpu", "1.30.0-cpu"]);
    let mut intel = Hardware::default();
    intel.cpu.vendor = "Intel".to_owned();
    assert_eq!(order(&[], &[], &intel)[0], "1.24.1-openvino");
    assert_eq!(order(&[ExecutionProvider::Cpu], &[], &intel)[0], "1.32.0-cpu");
    let openvino = [ExecutionProvider::OpenVino];
    assert_eq!(order(&[], &openvino, &intel)[0], "1.32.0-cpu", "with the plug-in beside it");
    assert_eq!(order(&openvino, &openvino, &plain)[0], "1.32.0-cpu");
    intel.drivers.nvidia = Some("580.1".to_owned());
    assert_eq!(order(&[], &[], &intel)[..2], ["1.31.1-cuda", "1.24.1-openvino"]);
    assert_eq!(order(&openvino, &[], &plain)[0], "1.24.1-openvino");
    assert_eq!(order(&[ExecutionProvider::Rocm, ExecutionProvider::TensorRt], &[], &plain)[0], "1.31.1-cuda");
}

#[cfg(target_os = "linux")]
#[test]
fn finds_plugins_and_registers_one_a_provider() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let site = root.join("venv/lib/python3.12/site-packages");
    let file = "libonnxruntime_providers_openvino_plugin.so";
    let old = place(&site, &format!("onnxruntime_ep_openvino/{file}"));
    place(&site, "onnxruntime_ep_openvino-1.7.0.dist-info/METADATA");
    let newest = place(root, &format!("cache/engines/onnxruntime-ep-openvino-1.10.0/{file}"));
    place(root, &format!("cache/engines/onnxruntime-ep-openvino-1.8.1/{file}"));
    place(root, "cache/engines/onnxruntime-1.32.0-cpu/libonnxruntime.so.1.32.0");
    let search = LibrarySearch {
        cache: Some(CacheDir::at(root.join("cache"))),
        python: python::site_folders(&root.join("venv")),
        ..LibrarySearch::default()
    };
    let versions: Vec<_> = search.plugins().into_iter().map(|plugin| plugin.version.unwrap()).collect();
    assert_eq!(versions, ["1.10.0", "1.8.1", "1.7.0"]);
    let chosen = |others| {
        let search = LibrarySearch { wanted: vec![ExecutionProvider::OpenVino], others, ..search.clone() };
        search.choose().unwrap().plugins
    };
    let registered = ProviderLibrary { provider: ExecutionProvider::OpenVino, path: newest, is_required: false };
    assert_eq!(chosen(OtherPlugins::None), [registered]);
    let none = LibrarySearch { others: OtherPlugins::None, ..search.clone() };
    assert_eq!(none.choose().unwrap().plugins, []);
    let named = ProviderLibrary { provider: ExecutionProvider::OpenVino, path: old, is_required: true };
    let named = LibrarySearch { plugins: vec![named.clone()], others: OtherPlugins::None, ..search.clone() };
    assert_eq!(named.choose().unwrap().plugins, named.plugins, "what the operator names comes first");
    // A build with the provider in it goes without the plug-in.
    let whole = place(root, "whole/libonnxruntime.so.1.24.1");
    place(root, "whole/libonnxruntime_providers_openvino.so");
    let whole = LibrarySearch { option: Some(whole), wanted: vec![ExecutionProvider::OpenVino], ..search };
    assert_eq!(whole.choose().unwrap().plugins, []);
}

#[test]
fn reads_versions_without_loading() {
    let folder = tempfile::tempdir().unwrap();
    let version = |path: &str, content: &[u8]| {
        let file = place(folder.path(), path);
        std::fs::write(&file, content).unwrap();
        version::detect(&file)
    };
    assert_eq!(version("a/libonnxruntime.so.1.32.0", b""), Some("1.32.0".into()));
    let mut content = vec![0_u8; (1 << 20) - 3];
    content.extend_from_slice(b"VERS_1.30.0\0");
    content.extend_from_slice(&[0; 100]);
    assert_eq!(version("b/libonnxruntime.so.1", &content), Some("1.30.0".into()));
    place(folder.path(), "site/onnxruntime_gpu-1.24.1.dist-info/METADATA");
    assert_eq!(version("site/onnxruntime/capi/onnxruntime.dll", b""), Some("1.24.1".into()));
    assert_eq!(version("c/libonnxruntime.so", b"nothing"), None);
}

#[test]
fn rejects_files_that_are_no_library() {
    let folder = tempfile::tempdir().unwrap();
    let file = place(folder.path(), "libonnxruntime.so");
    // Another test of this process may have loaded the real one; then that is the fault told.
    let error = probe(&file, &[]).unwrap_err();
    assert!(matches!(error, LibraryError::Broken { .. } | LibraryError::Another { .. }), "{error}");
}
