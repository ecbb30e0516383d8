//! Rewrites the expectation of a case with the actual result.

use std::ops::Range;

use super::atomic_write::write_file;
use super::case::{CASE_FILE, Case, Draft, error_text};
use super::target::RunFailure;
use gpux::GpuxError;
use gpux_config::{Content, Diagnostic, LoadError, Node};
use gpux_core::{Kind, Port, Value};

/// Rewrites `outputs:` or `error:` of a case, and the files of its outputs; everything else in its
/// `case.yml` stays as it is. Gives the lines that it wrote there.
pub(super) fn bless(
    case: &Case,
    ports: &[Port],
    result: &Result<Vec<(String, Value)>, RunFailure>,
) -> Result<String, GpuxError> {
    let mut draft = Draft::default();
    match result {
        Err(failure) => draft.text = error_text(failure.kind, &failure.message),
        Ok(outputs) => {
            let kind = |name: &str| ports.iter().find(|port| port.name == name).map_or(&Kind::Any, |port| &port.kind);
            let values = outputs.iter().map(|(name, value)| (name.as_str(), value, kind(name)));
            draft.section("outputs", "output", values, &|name| known_file(case, name));
        }
    }
    let text = rewritten(case, &draft.text)?;
    for (name, content) in &draft.files {
        write(case, name, content)?;
    }
    write(case, CASE_FILE, text.as_bytes())?;
    Ok(draft.text)
}

fn write(case: &Case, name: &str, content: &[u8]) -> Result<(), GpuxError> {
    let path = case.folder.join(name);
    write_file(&path, content).map_err(|error| {
        let source = std::io::Error::other(error.to_string());
        GpuxError::Configuration(LoadError::Io { path, source })
    })
}

/// The file in the case's own folder that already holds the output `name`.
fn known_file(case: &Case, name: &str) -> Option<String> {
    let file = case.node("outputs")?.get(name)?.get("file")?.as_str()?;
    (!file.contains(['/', '\\'])).then(|| file.to_owned())
}

/// The text of the file with `section` in place of the old expectation.
fn rewritten(case: &Case, section: &str) -> Result<String, GpuxError> {
    let root = &case.document.root;
    let text = &*case.document.source.text;
    if text[root.span.start..].starts_with('{') {
        let fault = Diagnostic::new("flow", root.span.start..root.span.start + 1, "this file is written in braces")
            .hint("write it as lines of `key: value`; then `--bless` can change the part that it must");
        return Err(case.configuration_error(vec![fault]).into());
    }
    let old = root.entry("outputs").or_else(|| root.entry("error"));
    let Some((key, value)) = old else {
        let separator = if text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{separator}{section}"));
    };
    let end = last(value, text).max(key.span.end);
    let Range { start, end } = key.span.start..line_end(text, end);
    Ok(format!("{}{section}{}", &text[..start], text.get(end..).unwrap_or_default()))
}

/// The end of a value. That of a block of lines reaches up to what follows, comments included, so
/// it ends where the last of its parts does. An empty value has no position.
fn last(node: &Node, text: &str) -> usize {
    if text[node.span.start..].starts_with(['{', '[']) {
        return node.span.end;
    }
    match &node.content {
        Content::Null => 0,
        Content::Mapping(entries) => {
            entries.last().map_or(node.span.end, |(key, value)| last(value, text).max(key.span.end))
        }
        Content::Sequence(items) => items.last().map_or(node.span.end, |item| last(item, text)),
        // Text in lines of its own ends before the line end that follows it.
        _ => node.span.start + text[node.span.clone()].trim_end().len(),
    }
}

/// The beginning of the line after `at`.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a case after its expectation is replaced.
    fn after(text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CASE_FILE), text).unwrap();
        rewritten(&Case::load(folder.path()).unwrap(), "error: { kind: failed }\n").map_err(|error| error.to_string())
    }

    #[test]
    fn rewrites_only_the_expectation() {
        let new = "error: { kind: failed }\n";
        for (before, start, end) in [
            ("inputs: {}\n", "inputs: {}\n", ""),
            ("inputs: {}", "inputs: {}\n", ""),
            ("inputs: {}\noutputs:\n# Last.\n", "inputs: {}\n", "# Last.\n"),
            ("# First.\noutputs: { x: 1 } # gone\ninputs: {}", "# First.\n", "inputs: {}"),
            (
                "outputs:\n  x: { data: [1,\n    2] }\n  y: |\n    two\n    lines\n# Kept.\ninputs: {}\n",
                "",
                "# Kept.\ninputs: {}\n",
            ),
            ("outputs:\n  x:\n    - 1\n    - { a: 2 }\n\n# Kept.\n", "", "\n# Kept.\n"),
            ("error:\n  kind: limit\n  contains: \"time\"\ndescription: x", "", "description: x"),
        ] {
            assert_eq!(after(before).unwrap(), format!("{start}{new}{end}"), "{before}");
        }
        assert!(after("{ inputs: {}, outputs: {} }").unwrap_err().contains("written in braces"));
    }
}
