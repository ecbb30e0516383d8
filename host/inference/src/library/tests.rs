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
    let installed = place(root, "cache/engines/onnxruntime-1.31.1-cpu/libonnxruntime.so.1.31.1");
    place(root, "cache/engines/.installing-x/libonnxruntime.so.1.99.0");
    let named = place(root, "mine/libonnxruntime.so.1.28.0");
    let mut search = LibrarySearch {
        option: Some(named.clone()),
        variable: Some(root.join("gone.so")),
        cache: Some(CacheDir::at(root.join("cache"))),
        python: vec![root.join("venv")],
        system: vec![root.join("sys")],
        wanted: Vec::new(),
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
    for build in ["1.31.1-cpu", "1.30.0-cpu", "1.24.1-openvino", "1.31.1-cuda"] {
        place(folder.path(), &format!("engines/onnxruntime-{build}/libonnxruntime.so"));
    }
    let cache = CacheDir::at(folder.path());
    let order = |wanted: &[ExecutionProvider], hardware: &Hardware| -> Vec<String> {
        let found = candidates::installed(&cache, &|build| rank(build, wanted, hardware));
        let name = |path: &PathBuf| path.parent().unwrap().file_name().unwrap().to_string_lossy()[12..].to_owned();
        found.iter().map(name).collect()
    };
    let plain = Hardware::default();
    assert_eq!(order(&[], &plain), ["1.31.1-cpu", "1.30.0-cpu", "1.31.1-cuda", "1.24.1-openvino"]);
    let mut intel = Hardware::default();
    intel.cpu.vendor = "Intel".to_owned();
    assert_eq!(order(&[], &intel)[0], "1.24.1-openvino");
    assert_eq!(order(&[ExecutionProvider::Cpu], &intel)[0], "1.31.1-cpu");
    intel.drivers.nvidia = Some("580.1".to_owned());
    assert_eq!(order(&[], &intel)[..2], ["1.31.1-cuda", "1.24.1-openvino"]);
    assert_eq!(order(&[ExecutionProvider::OpenVino], &plain)[0], "1.24.1-openvino");
    assert_eq!(order(&[ExecutionProvider::Rocm, ExecutionProvider::TensorRt], &plain)[0], "1.31.1-cuda");
}

#[test]
fn reads_versions_without_loading() {
    let folder = tempfile::tempdir().unwrap();
    let version = |path: &str, content: &[u8]| {
        let file = place(folder.path(), path);
        std::fs::write(&file, content).unwrap();
        version::detect(&file)
    };
    assert_eq!(version("a/libonnxruntime.so.1.31.1", b""), Some("1.31.1".into()));
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
    let error = probe(&file).unwrap_err();
    assert!(matches!(error, LibraryError::Broken { .. } | LibraryError::Another { .. }), "{error}");
}
