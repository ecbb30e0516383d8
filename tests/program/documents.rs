//! Documents: their links lead somewhere.

use std::collections::HashSet;
use std::path::PathBuf;

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
