//! Diagnostics: mistakes in a file, with their place and a hint.

use std::fmt::Write as _;

use super::source_file::{SourceFile, Span};
use gpux_core::sanitize::{is_unsafe_for_terminal, sanitize_for_terminal};

/// At most this many mistakes are kept: the rest are consequences or mischief.
const MAX_DIAGNOSTICS: usize = 50;

/// A line longer than this is cut around the place it is quoted for, in characters.
const MAX_LINE: usize = 120;

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// what kind of mistake, for programs; for example `unknown-key`
    pub code: &'static str,
    /// the message, a sentence without a full stop
    pub message: String,
    /// the bytes of the file it is about
    pub span: Span,
    /// a few words under the caret; may be empty
    pub label: String,
    /// what to do next
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A mistake at `span`, without label and hint.
    pub fn new(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), span, label: String::new(), hint: None }
    }

    /// The same with words under the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A file that cannot be used, with every mistake in it, in the order of their places.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.summary())]
pub struct ConfigurationError {
    source_file: SourceFile,
    diagnostics: Vec<Diagnostic>,
    left_out: usize,
}

impl ConfigurationError {
    /// The error for these mistakes in this file: sorted, without repetitions, at most 50.
    pub fn new(source: SourceFile, mut diagnostics: Vec<Diagnostic>) -> Self {
        diagnostics.sort_by(|a, b| {
            (a.span.start, a.span.end, a.code, &a.message).cmp(&(b.span.start, b.span.end, b.code, &b.message))
        });
        diagnostics.dedup_by(|a, b| a.span == b.span && a.message == b.message);
        let left_out = diagnostics.len().saturating_sub(MAX_DIAGNOSTICS);
        diagnostics.truncate(MAX_DIAGNOSTICS);
        Self { source_file: source, diagnostics, left_out }
    }

    /// The file.
    pub fn source_file(&self) -> &SourceFile {
        &self.source_file
    }

    /// The mistakes, first in the file first.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    fn summary(&self) -> String {
        let name = &self.source_file.name;
        match self.diagnostics.as_slice() {
            [] => format!("`{name}` is wrong"),
            [only] if self.source_file.text.is_empty() => format!("{name}: {}", only.message),
            [only] => format!("{name}:{}: {}", self.source_file.position(only.span.start).line, only.message),
            many => format!("{} mistakes in `{name}`", many.len() + self.left_out),
        }
    }

    /// Every mistake with its line, a caret and the hint, as plain text of a fixed layout.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for diagnostic in &self.diagnostics {
            render_one(&mut out, &self.source_file, diagnostic);
            out.push('\n');
        }
        let total = self.diagnostics.len() + self.left_out;
        if total == 1 && self.source_file.text.is_empty() {
            return out;
        }
        let shown =
            if self.left_out > 0 { format!(", the first {} shown", self.diagnostics.len()) } else { String::new() };
        let plural = if total == 1 { "" } else { "s" };
        let _ = writeln!(out, "{total} mistake{plural} in {}{shown}", self.source_file.name);
        out
    }

    /// `{file, errors: [{code, message, line, column, label, hint}]}`.
    pub fn to_json(&self) -> serde_json::Value {
        let errors: Vec<_> = self
            .diagnostics
            .iter()
            .map(|diagnostic| {
                let start = self.source_file.position(diagnostic.span.start);
                let end = self.source_file.position(diagnostic.span.end);
                serde_json::json!({
                    "code": diagnostic.code,
                    "message": diagnostic.message,
                    "line": start.line,
                    "column": start.column,
                    "end_line": end.line,
                    "end_column": end.column,
                    "label": diagnostic.label,
                    "hint": diagnostic.hint,
                })
            })
            .collect();
        serde_json::json!({ "file": self.source_file.name, "errors": errors })
    }
}

fn render_one(out: &mut String, source: &SourceFile, diagnostic: &Diagnostic) {
    let _ = writeln!(out, "error: {}", sanitize_for_terminal(&diagnostic.message));
    if source.text.is_empty() {
        // The pipeline of a model or a component alone was not written by anybody.
        let _ = writeln!(out, " --> {}", sanitize_for_terminal(&source.name));
        render_hint(out, "", diagnostic);
        return;
    }
    let place = source.position(diagnostic.span.start);
    let (line_start, line) = source.line_at(diagnostic.span.start);
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());

    let in_line = diagnostic.span.end.min(line_start + line.len()).max(diagnostic.span.start);
    let width = source.text.get(diagnostic.span.start..in_line).map_or(1, |covered| covered.chars().count()).max(1);
    let (shown, caret, width) = crop(line, place.column - 1, width);

    let _ = writeln!(out, "{margin} --> {}:{}:{}", sanitize_for_terminal(&source.name), place.line, place.column);
    let _ = writeln!(out, "{margin} |");
    let _ = writeln!(out, "{number} | {shown}");
    let label = sanitize_for_terminal(&diagnostic.label);
    let marks = format!("{margin} | {}{} {label}", " ".repeat(caret), "^".repeat(width));
    let _ = writeln!(out, "{}", marks.trim_end());
    render_hint(out, &margin, diagnostic);
}

fn render_hint(out: &mut String, margin: &str, diagnostic: &Diagnostic) {
    if let Some(hint) = &diagnostic.hint {
        let _ = writeln!(out, "{margin} = hint: {}", sanitize_for_terminal(hint));
    }
}

/// At most [`MAX_LINE`] characters of `line` around the `width` characters at `column`, with the
/// column and the width in the shortened line. Tabs become one space, so that the caret stays in place.
fn crop(line: &str, column: usize, width: usize) -> (String, usize, usize) {
    let shown = |c: char| if is_unsafe_for_terminal(c) { ' ' } else { c };
    let length = line.chars().count();
    if length <= MAX_LINE {
        return (line.chars().map(shown).collect::<String>().trim_end().to_owned(), column, width);
    }
    let from = column.saturating_sub(MAX_LINE / 4).min(length);
    let cut: String = line.chars().skip(from).take(MAX_LINE).map(shown).collect();
    let (before, after) = (if from > 0 { "…" } else { "" }, if from + MAX_LINE < length { "…" } else { "" });
    let caret = column - from + before.chars().count();
    (format!("{before}{cut}{after}"), caret, width.min(MAX_LINE - (column - from)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_terminal_control_characters() {
        let found = Diagnostic::new("x", 0..1, "a\x1b[2Jb").label("c\x07").hint("d\u{9b}e");
        let shown = ConfigurationError::new(SourceFile::new("x", "text"), vec![found]).render();
        assert!(shown.contains("a [2Jb") && shown.contains("d e"), "{shown:?}");
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }
}
