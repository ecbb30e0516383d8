//! What neither the compiler nor clippy holds of the source.

use std::fs;
use std::path::{Path, PathBuf};

/// Every source file of every crate in `host/`.
fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for package in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap() {
        walk(&package.unwrap().path().join("src"), &mut found);
    }
    assert!(found.len() > 500, "{} files", found.len());
    found
}

#[test]
fn no_thread_is_started_in_a_way_that_panics() {
    // At the system's limit of threads, these panic; `std::thread::Builder` gives an error.
    const PANICKING: [&str; 2] = ["thread::spawn(", "scope.spawn("];
    let mut wrong = Vec::new();
    for path in sources() {
        let is_test = path.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name));
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("\nmod tests {").next().unwrap();
        for (number, line) in code.lines().enumerate().filter(|_| !is_test) {
            let code = line.split("//").next().unwrap_or_default();
            if PANICKING.iter().any(|call| code.contains(call)) {
                wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use `std::thread::Builder`, and say what could not be started:\n{}", wrong.join("\n"));
}
