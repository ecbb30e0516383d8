//! What `gpux engine` does around the engines themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::child::{StartWithLimit as _, program};
use crate::digits::{root, stdout};

/// A Python without pip, so that nothing is fetched: a `pip` of the working folder would be found.
#[test]
fn engine_install_runs_nothing_from_the_working_directory() {
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("bare");
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&bare).output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: no python3 that makes environments");
        return;
    }
    std::fs::write(folder.path().join("pip.py"), "open('loaded', 'w')").unwrap();
    let output = program()
        .args(["engine", "install", "cpu"])
        .current_dir(folder.path())
        .env("PATH", bare.join(if cfg!(windows) { "Scripts" } else { "bin" }))
        // Relative: it is the working folder's, wherever the clients run.
        .env("GPUX_CACHE_DIR", "cache")
        .run();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!folder.path().join("loaded").exists(), "{told}");
    assert!(told.contains("neither `pip` nor `npm` is on this machine"), "{told}");
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(folder.path().join("cache/downloads").is_dir());
}

/// A Python environment with the packages `onnxruntime` and `onnxruntime-ep-webgpu`, as CI makes it. Without it a test
/// says that it is skipped; with `GPUX_REQUIRE_ORT=1` (as in CI) it fails.
fn environment() -> Option<PathBuf> {
    let environment = root().join("target/onnx-tools");
    let lib = std::fs::read_dir(environment.join("lib")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let package = |lib: PathBuf| lib.join("site-packages/onnxruntime_ep_webgpu").is_dir();
    if lib.into_iter().any(package) {
        return Some(environment);
    }
    let told = "pip install onnxruntime==1.32.0 onnxruntime-ep-webgpu==0.4.0 into target/onnx-tools";
    let required = std::env::var_os("GPUX_REQUIRE_ORT").is_some_and(|value| value == "1");
    assert!(!required || !cfg!(all(target_arch = "x86_64", target_os = "linux")), "{told}");
    eprintln!("skipped: {told}");
    None
}

fn gpux(cache: &Path, environment: &Path, arguments: &[&str]) -> Output {
    let mut command = program();
    command.args(arguments).current_dir(root()).env("GPUX_CACHE_DIR", cache).env("VIRTUAL_ENV", environment);
    command.env_remove("ORT_DYLIB_PATH").env_remove("CONDA_PREFIX").env("NO_COLOR", "1").run()
}

const MODEL: [&str; 4] = ["run", "tests/models/flip-float32.onnx", "--input", r#"{"x": [[1, 2, 3], [4, 5, 6]]}"#];

/// A library that others may have changed is not loaded, and the engine that is used instead is named.
#[cfg(unix)]
#[test]
fn says_which_engine_an_unusable_cache_costs() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let library = cache.join("engines/onnxruntime-1.32.0-cpu/libonnxruntime.so.1.32.0");
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    std::fs::write(&library, "no library").unwrap();
    std::fs::set_permissions(&cache, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let ran = gpux(&cache, folder.path(), &MODEL);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{told}");
    let skipped =
        format!("the installed ONNX Runtime 1.32.0 (`{}`) is not used, since others may write", library.display());
    assert!(told.contains("cannot be used (others may write to `") && told.contains(&skipped), "{told}");
    assert!(told.contains("; the embedded engine is used") || told.contains("; ONNX Runtime from "), "{told}");
    let listed = gpux(&cache, folder.path(), &["engine", "list", "--json"]);
    let listed: Json = serde_json::from_str(&stdout(&listed)).unwrap();
    let engines = listed["engines"].as_array().unwrap();
    let installed = engines.iter().find(|engine| engine["library"] == library.display().to_string()).unwrap();
    assert!(installed["used"] == false && installed["problem"].to_string().contains("others may write"), "{listed}");
}

/// This plug-in wants a GPU that the system shows; where there is none, it is a plug-in that finds no device.
#[test]
fn finds_plugins_of_the_active_python_environment() {
    let (Some(environment), cache) = (environment(), tempfile::tempdir().unwrap()) else { return };
    let listed = gpux(cache.path(), &environment, &["engine", "list", "--json", "--provider", "webgpu"]);
    let listed: Json = serde_json::from_str(&stdout(&listed)).unwrap();
    let engines = listed["engines"].as_array().unwrap();
    let plugin = engines.iter().find(|engine| engine["plugin"] == true).unwrap();
    assert_eq!((&plugin["engine"], &plugin["used"]), (&"plug-in webgpu 0.4.0".into(), &true.into()), "{listed}");
    assert_eq!(plugin["from"], "the active Python environment");
    let is_working = plugin["providers"] == serde_json::json!(["WebGpuExecutionProvider"]);
    assert!(is_working || plugin["problem"].as_str().unwrap().contains("found no device"), "{plugin}");

    let run = |more: &[&str]| gpux(cache.path(), &environment, &[&MODEL[..], more].concat());
    let fallen_back = run(&["--provider", "webgpu"]);
    assert!(fallen_back.status.success() && stdout(&fallen_back).contains('6'), "{fallen_back:?}");
    let strict = run(&["--provider", "webgpu", "--strict"]);
    let told = String::from_utf8_lossy(&strict.stderr).into_owned();
    assert_eq!(strict.status.code(), Some(if is_working { 0 } else { 3 }), "{told}");
    assert!(is_working || told.contains("`webgpu` cannot be used") && told.contains("found no device"), "{told}");
}

#[test]
fn damaged_plugins_fall_back_unless_the_operator_named_them() {
    let (Some(environment), folder) = (environment(), tempfile::tempdir().unwrap()) else { return };
    let cache = folder.path().join("cache");
    let plugin = cache.join("engines/onnxruntime-ep-webgpu-9.9.9/libonnxruntime_providers_webgpu.so");
    std::fs::create_dir_all(plugin.parent().unwrap()).unwrap();
    std::fs::write(&plugin, "no library").unwrap();
    let open = |path: &Path| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700));
    open(&cache).unwrap();
    open(&cache.join("engines")).unwrap();
    let run = |more: &[&str]| gpux(&cache, &environment, &[&MODEL[..], more].concat());
    let fallen_back = run(&["--provider", "webgpu"]);
    let told = String::from_utf8_lossy(&fallen_back.stderr).into_owned();
    assert!(fallen_back.status.success() && told.contains("`webgpu` is not used: the provider library"), "{told}");
    let told = String::from_utf8_lossy(&run(&[]).stderr).into_owned();
    assert!(!told.contains("warning"), "nobody asked for it: {told}");
    let named = format!("webgpu={}", plugin.display());
    let named = run(&["--provider", "webgpu", "--provider-library", &named]);
    let told = String::from_utf8_lossy(&named.stderr).into_owned();
    assert!(named.status.code() == Some(3) && told.contains("the provider library `webgpu`"), "{told}");
    let removed = gpux(&cache, &environment, &["engine", "remove", "webgpu", "--json"]);
    assert!(stdout(&removed).contains("onnxruntime-ep-webgpu-9.9.9") && !plugin.exists());
}
