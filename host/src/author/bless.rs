//! What came out becomes what a case expects.

use std::ops::Range;

use super::build::save;
use super::case::{CASE_FILE, Case, Draft, error_text};
use super::subject::Stopped;
use crate::config::{Content, Diagnostic, LoadError, Node};
use crate::error::GpuxError;
use crate::pipeline::{Kind, Port, Value};

/// Rewrites `outputs:` or `error:` of a case, and the files of its outputs; everything else in its
/// `case.yml` stays as it is.
pub(super) fn bless(
    case: &Case,
    ports: &[Port],
    result: &Result<Vec<(String, Value)>, Stopped>,
) -> Result<(), GpuxError> {
    let mut draft = Draft::default();
    match result {
        Err(stopped) => draft.text = error_text(stopped.kind, &stopped.message),
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
    write(case, CASE_FILE, text.as_bytes())
}

fn write(case: &Case, name: &str, content: &[u8]) -> Result<(), GpuxError> {
    let path = case.folder.join(name);
    save(&path, content).map_err(|error| {
        let source = std::io::Error::other(error.to_string());
        GpuxError::Configuration(LoadError::Io { path, source })
    })
}

/// The file in the case's own folder that already holds the output `name`.
fn known_file(case: &Case, name: &str) -> Option<String> {
    let file = case.part("outputs")?.get(name)?.get("file")?.as_str()?;
    (!file.contains(['/', '\\'])).then(|| file.to_owned())
}

/// The text of the file with `section` in place of what it expected before.
fn rewritten(case: &Case, section: &str) -> Result<String, GpuxError> {
    let root = &case.document.root;
    let text = &*case.document.source.text;
    if text[root.span.start..].starts_with('{') {
        let fault = Diagnostic::new("flow", root.span.start..root.span.start + 1, "this file is written in braces")
            .hint("write it as lines of `key: value`; then `--bless` can change the part that it must");
        return Err(case.fault(vec![fault]).into());
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

/// Where a value ends. That of a block of lines reaches up to what follows, comments included, so
/// it ends where the last of its parts does. A value that is left empty stands nowhere.
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
        _ => node.span.end,
    }
}

/// The beginning of the line after `at`.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}
