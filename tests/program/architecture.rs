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

/// The folder of the crates.
fn host() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The sources of each crate in `host/`.
fn source_folders() -> Vec<PathBuf> {
    let packages = fs::read_dir(host()).unwrap().map(|package| package.unwrap().path().join("src"));
    let found: Vec<_> = packages.filter(|source| source.is_dir()).collect();
    assert!(found.len() > 10, "{found:?}");
    found
}

#[test]
fn starts_threads_only_with_fallible_spawn() {
    // At the system's limit of threads, these panic; `std::thread::Builder` gives an error.
    const PANICKING: [&str; 2] = ["thread::spawn(", "scope.spawn("];
    let mut wrong = Vec::new();
    for path in source_folders().iter().flat_map(|source| rust_files(source)) {
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

/// The modules of a crate, without their unit tests, by their paths.
struct Modules(BTreeMap<Vec<String>, Module>);

/// A module's text, and the paths in its `use` statements.
struct Module {
    text: String,
    uses: Paths,
}

/// Paths of items: the leaves of `use`, and `crate::…`, `super::…` and `child::…` in code.
type Paths = Vec<Vec<String>>;

/// The modules of a folder that each of them names, and one path that does.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

impl Modules {
    fn new(texts: impl IntoIterator<Item = (Vec<String>, String)>) -> Self {
        let module = |text: String| {
            let mut paths = Vec::new();
            uses(&text).for_each(|statement| leaves(Vec::new(), statement, &mut paths));
            Module { uses: paths, text }
        };
        Self(texts.into_iter().map(|(path, text)| (path, module(text))).collect())
    }

    fn read(source: &Path) -> Self {
        let texts = rust_files(source).into_iter().filter_map(|path| {
            let relative = path.strip_prefix(source).unwrap().with_extension("");
            let mut parts: Vec<_> = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if parts.iter().any(|part| part == "tests" || part.ends_with("_tests")) {
                return None;
            }
            if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                parts.pop();
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\nmod tests {").next().unwrap();
            let code: Vec<_> = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            Some((parts, code.join("\n")))
        });
        Self::new(texts)
    }

    /// The module that holds what `path` in `module` stands for, through re-exports.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let mut path = path.iter().peekable();
        let mut found = match path.peek()?.as_str() {
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
                while path.next_if(|part| *part == "super").is_some() {
                    above.pop()?;
                }
                above
            }
            child => self.0.contains_key(&[module, &[child.to_owned()]].concat()).then(|| module.to_vec())?,
        };
        for part in path {
            let child = [&found[..], std::slice::from_ref(part)].concat();
            if self.0.contains_key(&child) {
                found = child;
                continue;
            }
            let re_exported = self.0.get(&found)?.uses.iter().find(|leaf| leaf.last() == Some(part));
            if let Some(leaf) = re_exported.filter(|_| depth > 0) {
                return self.resolve(&found, leaf, depth - 1).or(Some(found));
            }
            return Some(found);
        }
        Some(found)
    }

    /// For each folder, which of its modules name which others of them. A module may name what lies around it, and the
    /// modules within it.
    fn edges(&self) -> Edges {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let mut edges = Edges::new();
        for (module, Module { text, uses }) in &self.0 {
            let words =
                text.split(|c: char| !is_path(c)).map(|word| word.trim_matches(':')).filter(|word| word.contains("::"));
            let words = words.map(|word| word.split("::").map(str::to_owned).collect::<Vec<_>>());
            for path in words.chain(uses.iter().cloned()) {
                let Some(target) = self.resolve(module, &path, 8) else { continue };
                let Some(level) = module.iter().zip(&target).position(|(one, other)| one != other) else { continue };
                let [from, to] = [module, &target].map(|path| path[..=level].join("/"));
                let text = || format!("{} uses {}", module.join("/"), path.join("::"));
                edges.entry(from).or_default().entry(to).or_insert_with(text);
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
fn cycle(edges: &Edges) -> Option<Vec<&str>> {
    fn walk<'a>(
        edges: &'a Edges,
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

#[test]
fn crates_have_no_import_cycle() {
    for source in source_folders() {
        let edges = Modules::read(&source).edges();
        if let Some(cycle) = cycle(&edges) {
            let next = cycle.iter().cycle().skip(1);
            let steps = cycle.iter().zip(next).map(|(from, to)| format!("{from} -> {to}: {}", edges[*from][*to]));
            let steps = steps.collect::<Vec<_>>().join("\n");
            panic!("modules in {} import each other in a circle:\n{steps}", source.display());
        }
    }
}

#[test]
fn serve_has_three_layers() {
    let modules = Modules::read(&host().join("serve/src"));
    let edges = modules.edges();
    let named = |module: &str| edges.get(module).map(|edges| edges.keys().cloned().collect::<Vec<_>>());
    assert_eq!(named("engine"), Some(vec!["settings".to_owned()]), "the engine knows no protocol");
    assert_eq!(named("protocol"), Some(vec!["engine".to_owned(), "settings".to_owned()]));
    for (module, Module { uses, .. }) in
        modules.0.iter().filter(|(path, _)| path.first().is_some_and(|top| top == "engine"))
    {
        for foreign in ["axum", "http", "hyper", "tonic", "tower"] {
            assert!(uses.iter().all(|path| path[0] != foreign), "{} uses {foreign}", module.join("/"));
        }
    }
}

#[test]
fn import_cycles_are_found() {
    let parts = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let root = ("", "mod a;\npub use a::Exported;");
    for (files, is_cycle) in [
        ([("a", "use super::b::Thing;"), ("b", "use crate::a::{Other, more::Some as Any};")], true),
        ([("a", "use super::b::Thing;"), ("b", "use gpux_core::Tensor;")], false),
        ([("a", "fn f() { crate::b::g() }"), ("b", "use crate::{Exported,\n    std::Thing};")], true),
        ([("a", "fn f() { b::g() }"), ("b", "")], false),
        ([("a/one", "use super::other::Thing;"), ("a/other", "use crate::a::one::Some;")], true),
        // Two folders, though no two files.
        ([("a/one", "use crate::b::Thing;"), ("b", "use crate::a::more::Some;")], true),
        // What lies within a module is its own.
        ([("a", "use one::Some;"), ("a/one", "use super::Other;")], false),
    ] {
        let files = [&[root, ("a", ""), ("a/more", "")], &files[..]].concat();
        let modules = Modules::new(files.iter().map(|(path, text)| (parts(path), (*text).to_owned())));
        assert_eq!(cycle(&modules.edges()).is_some(), is_cycle, "{files:?}");
    }
}

/// What a file exports, by name.
fn exports(text: &str) -> Vec<String> {
    let code = text.split("\n#[cfg(test)]\n").next().unwrap();
    let used = code.split("\npub use ").skip(1).flat_map(|rest| rest.split(';').next().unwrap().split(['{', '}', ',']));
    let items = used.map(str::trim).filter(|path| !path.ends_with("::"));
    let used = items.filter_map(|path| path.rsplit([' ', ':']).next());
    let declared = code.lines().filter_map(|line| {
        let words = ["pub fn ", "pub struct ", "pub enum ", "pub trait ", "pub type "];
        words.iter().find_map(|word| line.strip_prefix(word))?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    });
    used.chain(declared).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn exports_of_gpux_are_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime");
    let read = |name: &str| fs::read_to_string(folder.join("src").join(format!("{name}.rs"))).unwrap();
    let root = read("lib");
    let modules = root.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let inner =
        modules.flat_map(|module| exports(&read(module)).into_iter().map(move |name| format!("{module}::{name}")));
    let mut found: Vec<_> = exports(&root).into_iter().chain(inner).collect();
    found.sort();
    let (list, found) = (folder.join("exports.txt"), found.join("\n") + "\n");
    if std::env::var_os("GPUX_BLESS").is_some() {
        fs::write(&list, &found).unwrap();
    }
    assert_eq!(
        fs::read_to_string(list).unwrap(),
        found,
        "GPUX_BLESS=1 writes the list; CHANGELOG.md says what changed"
    );
}
