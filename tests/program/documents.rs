//! Documents: their links resolve, every built-in step has a section, and the commands of the justfile match tests.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::child::{StartWithLimit as _, program};
use crate::digits::root;

/// The repository's own documents: at its top, in `docs` and below it.
fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut folders = vec![root.clone(), root.join("docs")];
    folders.extend(["decisions", "steps"].map(|name| root.join("docs").join(name)));
    let mut found: Vec<_> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.sort();
    found
}

/// The lines of `text` outside its code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// What `[text](target)` leads to.
fn targets(text: &str) -> Vec<&str> {
    prose(text).flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split(')').next())).collect()
}

/// The anchors of the headings, by the rule of GitHub.
fn anchors(text: &str) -> HashSet<String> {
    let slug = |heading: &str| -> String {
        let kept = heading.trim().to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    prose(text).filter(|line| line.starts_with('#')).map(|line| slug(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_resolve_to_files_and_headings() {
    let mut broken = Vec::new();
    for page in documents() {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in targets(&text).into_iter().filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let leads = match anchor {
                None => path.exists(),
                Some(anchor) => std::fs::read_to_string(&path).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// The heading of the table at the end of each page of `docs/steps`.
const PORTS: &str = "## Inputs and outputs\n";

/// The names of the inputs and outputs of a group's steps, as `gpux steps` has them.
fn port_table(steps: &[serde_json::Value], group: &str) -> String {
    let names = |step: &serde_json::Value, list: &str| {
        let name = |port: &serde_json::Value| {
            let (name, optional) = (port["name"].as_str().unwrap(), port["optional"] == true);
            // `tensor-3` to `tensor-16` are one entry.
            let number = name.strip_prefix("tensor-").map(|number| number.parse::<u32>().unwrap());
            let more = if number.is_some() { " and more" } else { "" };
            let optional = if optional { " (optional)" } else { "" };
            number.is_none_or(|number| number == 3).then(|| format!("`{name}`{more}{optional}"))
        };
        step[list].as_array().unwrap().iter().filter_map(name).collect::<Vec<_>>().join(", ")
    };
    let mut table = format!("{PORTS}\nAs in the examples of `gpux steps NAME`, which has the types.\n\n");
    table += "| step | takes | gives |\n| --- | --- | --- |\n";
    for step in steps.iter().filter(|step| step["group"] == group) {
        let (takes, gives) = (names(step, "inputs"), names(step, "outputs"));
        table += &format!("| `{}` | {takes} | {gives} |\n", step["name"].as_str().unwrap());
    }
    table
}

#[test]
fn pages_of_steps_have_their_ports() {
    let listed = program().args(["steps", "--json"]).run();
    let steps: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    for group in ["audio", "image", "output", "tensor", "text"] {
        let page = root().join("docs/steps").join(format!("{group}.md"));
        let text = std::fs::read_to_string(&page).unwrap();
        let before = text.split(PORTS).next().unwrap();
        let expected = format!("{}\n\n{}", before.trim_end(), port_table(&steps, group));
        if std::env::var_os("GPUX_BLESS").is_some() {
            std::fs::write(&page, expected).unwrap();
        } else {
            assert_eq!(text, expected, "`just bless` writes the table of {group}.md");
        }
    }
}

/// The names of functions and modules in the Rust files of a folder.
fn names(folder: &Path, found: &mut HashSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        if path.is_dir() {
            names(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let functions = text.lines().filter_map(|line| line.split_once("fn ")?.1.split(['(', '<']).next());
            found.extend(functions.map(str::to_owned));
        }
    }
}

/// A filter that matches no test makes a run that cannot fail.
#[test]
fn test_filters_match_tests() {
    let mut known = HashSet::new();
    for folder in ["host", "tests/program", "tests/hostile"] {
        names(&root().join(folder), &mut known);
    }
    let mut unmatched = Vec::new();
    let mut filters = 0;
    for line in std::fs::read_to_string(root().join("justfile")).unwrap().lines() {
        let Some((_, arguments)) = line.split_once("cargo test ") else { continue };
        let mut words = arguments.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "--test" | "-p" => drop(words.next()),
                option if option.starts_with('-') => {}
                filter => {
                    filters += 1;
                    let matches = |part: &str| known.iter().any(|name| name.contains(part));
                    if !filter.split("::").all(matches) {
                        unmatched.push(filter.to_owned());
                    }
                }
            }
        }
    }
    assert!(filters >= 6, "{filters} filters were read");
    assert_eq!(unmatched, Vec::<String>::new());
}

#[test]
fn every_builtin_step_has_a_section() {
    let registry = gpux::builtins();
    let mut missing = Vec::new();
    for step in registry.builtins() {
        let page = root().join("docs/steps").join(format!("{}.md", step.group.name()));
        let text = std::fs::read_to_string(&page).unwrap();
        let headings = prose(&text).filter(|line| line.starts_with("##"));
        let is_word = |heading: &str| heading.split([' ', ',', ':']).any(|word| word == step.name);
        if !headings.into_iter().any(is_word) {
            missing.push(format!("{}: {}", page.display(), step.name));
        }
    }
    assert!(registry.builtins().count() > 40, "the steps were read");
    assert_eq!(missing, Vec::<String>::new(), "steps without a section");
}
