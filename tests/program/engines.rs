//! What `gpux engine` does around the engines themselves.

use std::process::Command;

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
    let output = Command::new(env!("CARGO_BIN_EXE_gpux"))
        .args(["engine", "install", "cpu"])
        .current_dir(folder.path())
        .env("PATH", bare.join(if cfg!(windows) { "Scripts" } else { "bin" }))
        // Relative: it is the working folder's, wherever the clients run.
        .env("GPUX_CACHE_DIR", "cache")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!folder.path().join("loaded").exists(), "{told}");
    assert!(told.contains("neither `pip` nor `npm` is on this machine"), "{told}");
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(folder.path().join("cache/downloads").is_dir());
}
