//! What neither the compiler nor clippy holds of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Every file of Rust in a folder and below it.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Every source file of every crate in `host/`.
fn sources() -> Vec<PathBuf> {
    let packages = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
    let found: Vec<_> = packages.flat_map(|package| rust_files(&package.unwrap().path().join("src"))).collect();
    assert!(found.len() > 500, "{} files", found.len());
    found
}

#[test]
fn starts_threads_only_with_fallible_spawn() {
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

#[test]
fn tests_start_the_program_within_a_limit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/program");
    let mut wrong = Vec::new();
    for path in rust_files(&folder).into_iter().filter(|path| !path.ends_with("child.rs")) {
        let text = fs::read_to_string(&path).unwrap();
        let starts = ["Command::new(env!(\"CARGO_BIN_EXE_gpux\"))", ".spawn()", ".output().unwrap()"];
        if !path.ends_with("architecture.rs") && starts.iter().any(|start| text.contains(start)) {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "use `child::StartWithLimit`, which ends what hangs: {wrong:?}");
}

/// The modules of a crate: the text of each, without its unit tests, by its path.
struct Modules(BTreeMap<Vec<String>, String>);

/// Paths of a module that are not its own items: `use` leaves, and `crate::…` and `super::…` in code.
type Paths = Vec<Vec<String>>;

impl Modules {
    fn read(package: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(package).join("src");
        let mut modules = BTreeMap::new();
        for path in sources().into_iter().filter(|path| path.starts_with(&source)) {
            let relative = path.strip_prefix(&source).unwrap().with_extension("");
            let mut parts: Vec<_> = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if parts.iter().any(|part| part == "tests") {
                continue;
            }
            if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) {
                parts.pop();
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\n").next().unwrap();
            let code = code.lines().map(|line| line.split("//").next().unwrap_or_default());
            modules.insert(parts, code.collect::<Vec<_>>().join("\n"));
        }
        assert!(modules.len() > 20, "{package} has {} modules", modules.len());
        Self(modules)
    }

    /// Every path that a module names.
    fn paths(text: &str) -> Paths {
        let mut paths = Vec::new();
        for statement in uses(text) {
            leaves(Vec::new(), statement, &mut paths);
        }
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for word in text.split(|c: char| !is_path(c)) {
            let parts: Vec<_> = word.split("::").map(str::to_owned).collect();
            if parts.len() > 1 && ["crate", "super"].contains(&parts[0].as_str()) {
                paths.push(parts);
            }
        }
        paths
    }

    /// The module that holds what `path` in `module` stands for, through re-exports.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let mut path = path.iter();
        let mut found = match path.clone().next()?.as_str() {
            "crate" => {
                path.next();
                Vec::new()
            }
            "self" => {
                path.next();
                module.to_vec()
            }
            "super" => {
                let mut above = module.to_vec();
                while path.clone().next().is_some_and(|part| part == "super") {
                    path.next();
                    above.pop()?;
                }
                above
            }
            child => {
                let child = [module, &[child.to_owned()]].concat();
                self.0.contains_key(&child).then(|| module.to_vec())?
            }
        };
        for part in path {
            let child = [&found[..], std::slice::from_ref(part)].concat();
            if self.0.contains_key(&child) {
                found = child;
                continue;
            }
            let text = self.0.get(&found)?;
            let re_exported = uses(text).find_map(|statement| {
                let mut exported = Vec::new();
                leaves(Vec::new(), statement, &mut exported);
                exported.into_iter().find(|leaf| leaf.last() == Some(part))
            });
            if let Some(leaf) = re_exported.filter(|_| depth > 0) {
                return self.resolve(&found, &leaf, depth - 1).or(Some(found));
            }
            return Some(found);
        }
        Some(found)
    }

    /// The top-level modules that each top-level module names, and one file that does.
    fn edges(&self) -> BTreeMap<&str, BTreeMap<String, String>> {
        let mut edges = BTreeMap::<&str, BTreeMap<String, String>>::new();
        for (module, text) in &self.0 {
            let Some(top) = module.first() else { continue };
            for path in Self::paths(text) {
                let target = self.resolve(module, &path, 8).and_then(|target| target.first().cloned());
                if let Some(target) = target.filter(|target| target != top) {
                    let told = format!("{} uses {}", module.join("/"), path.join("::"));
                    edges.entry(top).or_default().entry(target).or_insert(told);
                }
            }
        }
        edges
    }
}

/// The `use` statements of a text, without `use` and `;`.
fn uses(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').filter_map(|statement| {
        let begin = statement.rfind("use ").filter(|begin| {
            let line = statement[..*begin].lines().next_back().unwrap_or_default().trim();
            (statement[..*begin].ends_with('\n') && line.is_empty())
                || statement[..*begin].trim_end().ends_with([')', '}'])
                || line.is_empty()
                || line.starts_with("pub")
        })?;
        Some(statement[begin + 4..].trim())
    })
}

/// The paths of a tree of `use`.
fn leaves(before: Vec<String>, tree: &str, found: &mut Paths) {
    let tree = tree.split(" as ").next().unwrap().trim();
    let (path, inner) = match tree.split_once('{') {
        Some((path, inner)) => (path, Some(inner.rsplit_once('}').map_or(inner, |(inner, _)| inner))),
        None => (tree, None),
    };
    let parts = path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
    let path: Vec<_> = before.into_iter().chain(parts).collect();
    let Some(inner) = inner else {
        if path.iter().all(|part| part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '*')) {
            found.push(path);
        }
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (place, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..place].trim().is_empty() {
                    leaves(path.clone(), &inner[start..place], found);
                }
                start = place + 1;
            }
            _ => {}
        }
    }
}

/// A cycle of modules, each of which names the next.
fn cycle<'a>(edges: &'a BTreeMap<&'a str, BTreeMap<String, String>>) -> Option<Vec<&'a str>> {
    fn walk<'a>(
        edges: &'a BTreeMap<&'a str, BTreeMap<String, String>>,
        module: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<&'a str>> {
        if let Some(begin) = way.iter().position(|known| *known == module) {
            return Some(way[begin..].to_vec());
        }
        if !done.insert(module) {
            return None;
        }
        way.push(module);
        let next = edges.get(module).into_iter().flatten();
        let found = next.map(|(next, _)| next.as_str()).find_map(|next| walk(edges, next, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    edges.keys().find_map(|module| walk(edges, module, &mut Vec::new(), &mut done))
}

fn assert_no_cycle(package: &str) {
    let modules = Modules::read(package);
    let edges = modules.edges();
    assert!(!edges.is_empty(), "no module of {package} names another");
    if let Some(cycle) = cycle(&edges) {
        let told: Vec<_> = (0..cycle.len())
            .map(|place| {
                let (from, to) = (cycle[place], cycle[(place + 1) % cycle.len()]);
                format!("{from} -> {to}: {}", edges[from][to])
            })
            .collect();
        panic!("the modules of {package} import each other in a circle:\n{}", told.join("\n"));
    }
}

#[test]
fn serve_has_no_import_cycle() {
    assert_no_cycle("serve");
    let modules = Modules::read("serve");
    let edges = modules.edges();
    let named = |module: &str| edges.get(module).map(|edges| edges.keys().cloned().collect::<Vec<_>>());
    assert_eq!(named("engine"), Some(vec!["settings".to_owned()]), "the engine knows no protocol");
    assert_eq!(named("protocol"), Some(vec!["engine".to_owned(), "settings".to_owned()]));
    for (module, text) in modules.0.iter().filter(|(module, _)| module.first().is_some_and(|top| top == "engine")) {
        for foreign in ["axum", "http", "hyper", "tonic", "tower"] {
            let is_named = |path: &&str| path.trim_start().starts_with(&format!("{foreign}::"));
            assert!(uses(text).find(is_named).is_none(), "{} uses {foreign}", module.join("/"));
        }
    }
}

#[test]
fn inference_has_no_import_cycle() {
    assert_no_cycle("inference");
}

#[test]
fn sandbox_has_no_import_cycle() {
    assert_no_cycle("sandbox");
}

#[test]
fn import_cycles_are_found() {
    let modules = |files: &[(&str, &str)]| {
        let parts = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Modules(files.iter().map(|(path, text)| (parts(path), (*text).to_owned())).collect())
    };
    for (one, other, is_cycle) in [
        ("use super::b::Thing;", "use crate::a::{Other, more::Some as Any};", true),
        ("use super::b::Thing;", "use gpux_core::Tensor;", false),
        ("fn f() { crate::b::g() }", "use crate::{Exported,\n    std::Thing};", true),
        ("fn f() { b::g() }", "", false),
    ] {
        let modules = modules(&[("", "mod a;\npub use a::Exported;"), ("a", one), ("a/more", ""), ("b", other)]);
        assert_eq!(cycle(&modules.edges()).is_some(), is_cycle, "{one} {other}");
    }
}
