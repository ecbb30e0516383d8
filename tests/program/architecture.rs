//! The one-way flow of ARCHITECTURE.md, held against the `use crate::` lines of the source.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which rooms each room may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("guard", &[]),
    ("files", &[]),
    ("plain", &[]),
    ("end", &[]),
    ("threads", &["guard"]),
    ("child", &["guard", "end"]),
    ("config", &["plain"]),
    ("seal", &["files", "config"]),
    ("pipeline", &["files", "config"]),
    ("builtin", &["guard", "threads", "config", "pipeline"]),
    ("sandbox", &["guard", "threads", "files", "plain", "end", "child", "config", "seal", "pipeline"]),
    ("inference", &["guard", "threads", "files", "plain", "child", "config", "seal", "pipeline"]),
    ("error", &["config", "pipeline", "sandbox", "inference"]),
    ("assemble", &["files", "config", "pipeline", "builtin", "sandbox", "inference", "error"]),
    ("author", &["threads", "files", "config", "pipeline", "sandbox", "inference", "error", "assemble"]),
    (
        "serve",
        &["guard", "threads", "files", "plain", "config", "pipeline", "builtin", "inference", "error", "assemble"],
    ),
    (
        "cli",
        &[
            "threads",
            "files",
            "plain",
            "end",
            "child",
            "config",
            "pipeline",
            "builtin",
            "sandbox",
            "inference",
            "error",
            "assemble",
            "author",
            "serve",
        ],
    ),
];

/// Crates that only one room may name, so that a change of theirs stays in it.
const OWNERS: &[(&str, &str)] = &[
    ("wasmtime", "sandbox"),
    ("wasmtime_wasi", "sandbox"),
    ("wasmtime_wizer", "sandbox"),
    ("wit_component", "sandbox"),
    ("ort", "inference"),
    ("tract_onnx", "inference"),
    ("tokenizers", "builtin"),
    ("image", "builtin"),
    ("fast_image_resize", "builtin"),
    ("symphonia", "builtin"),
    ("lewton", "builtin"),
    ("tiff", "builtin"),
    ("realfft", "builtin"),
    ("fearless_simd", "builtin"),
    ("serde_yaml", "config"),
    ("axum", "serve"),
    ("hyper", "serve"),
    ("hyper_util", "serve"),
    ("tonic", "serve"),
    ("tower_http", "serve"),
    ("prometheus_client", "serve"),
    ("opentelemetry", "serve"),
    ("tokio_rustls", "serve"),
    ("clap", "cli"),
    ("comfy_table", "cli"),
    ("indicatif", "cli"),
    ("anstream", "cli"),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every source file, with the room it is in.
fn files() -> Vec<(String, PathBuf)> {
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
    walk(&source(), &mut found);
    let room = |path: &Path| {
        let inside = path.strip_prefix(source()).unwrap();
        inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned()
    };
    found.into_iter().map(|path| (room(&path), path)).collect()
}

/// The lines of a source with their numbers, an import over several of them as one.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match joined.last_mut() {
            Some((_, open)) if open.trim_start().contains("use crate::{") && !open.contains(';') => *open += line,
            _ => joined.push((number + 1, line.to_owned())),
        }
    }
    joined
}

/// The rooms that a line names after `crate::`, `use crate::{a::…, b}` included.
fn rooms_named(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut named = Vec::new();
    for (position, _) in code.match_indices("crate::") {
        let rest = &code[position + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => named.extend(list.split(',').map(|item| word(item.trim()))),
            None => named.push(word(rest)),
        }
    }
    named
}

#[test]
fn rooms_use_only_rooms_before_them() {
    let may_use: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (room, path) in files() {
        let Some(allowed) = may_use.get(room.as_str()) else {
            assert!(matches!(room.as_str(), "lib" | "main"), "`{room}` is not in the table of this test");
            continue;
        };
        for (number, line) in lines(&fs::read_to_string(&path).unwrap()) {
            for used in rooms_named(&line) {
                seen += 1;
                let known = may_use.contains_key(used.as_str());
                if known && used != room && !allowed.contains(&used.as_str()) {
                    wrong.push(format!("{}:{}: `{room}` uses `{used}`", path.display(), number));
                }
            }
        }
    }
    assert!(seen > 50, "the test found hardly any use of a room: it no longer reads the source right");
    assert!(wrong.is_empty(), "against the flow:\n{}", wrong.join("\n"));
}

#[test]
fn big_dependencies_are_named_in_one_room() {
    let mut wrong = Vec::new();
    for (room, path) in files() {
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (dependency, owner) in OWNERS {
                let named = code.match_indices(&format!("{dependency}::")).any(|(position, _)| {
                    !code[..position].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
                });
                if named && room != *owner {
                    wrong.push(format!("{}:{}: {dependency} belongs to `{owner}`", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_thread_is_started_in_a_way_that_panics() {
    // At the system's limit of threads, these panic; `std::thread::Builder` gives an error.
    const PANICKING: [&str; 2] = ["thread::spawn(", "scope.spawn("];
    let mut wrong = Vec::new();
    for (_, path) in files() {
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

#[test]
fn the_reader_of_imports_sees_them() {
    assert_eq!(rooms_named("use crate::sandbox::Limits;"), ["sandbox"]);
    assert_eq!(rooms_named("use crate::{config::X, pipeline};"), ["config", "pipeline"]);
    assert_eq!(rooms_named("    crate::inference::run(crate::cli::x)"), ["inference", "cli"]);
    assert!(rooms_named("// use crate::sandbox").is_empty());
    let over_several = lines("use crate::{\n    config::{A, B},\n    pipeline,\n};\nlet x = 1;");
    assert_eq!(over_several.len(), 2);
    let named = rooms_named(&over_several[0].1);
    assert!(named.contains(&"config".to_owned()) && named.contains(&"pipeline".to_owned()), "{named:?}");
}
