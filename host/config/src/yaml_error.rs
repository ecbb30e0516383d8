//! The parser's complaints about YAML itself, in words for people.

use serde_yaml::granit_parser::{ErrorKind, ScanError};

use super::diagnostic::Diagnostic;

/// The complaint, at its place in `text`.
pub(super) fn diagnostic(error: &ScanError, text: &str) -> Diagnostic {
    let marker = error.marker();
    let at = marker
        .byte_offset()
        .unwrap_or_else(|| text.char_indices().nth(marker.index()).map_or(text.len(), |(at, _)| at));
    // At the end of the file there is nothing to point at: the last visible character is better.
    let at = if text[at.min(text.len())..].trim().is_empty() { text.trim_end().len().saturating_sub(1) } else { at };
    let at = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let width = text[at..].chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
    let (message, hint) = words(error.kind());
    let message = message.map_or_else(|| format!("this is not valid YAML: {}", error.info()), str::to_owned);
    Diagnostic::new("yaml", at..at + width, message).label("here").hint(hint)
}

fn words(kind: &ErrorKind) -> (Option<&'static str>, &'static str) {
    use ErrorKind as E;
    match kind {
        E::TabNotAllowed | E::TabInBlockIndentation | E::TabInIndentation | E::TabAtBlockScalarStart => {
            (Some("a tab is used to indent"), "YAML is indented with spaces only; replace the tab by spaces")
        }
        E::UnclosedQuotedScalar | E::DocumentIndicatorInQuotedScalar | E::InvalidQuotedScalarIndent => (
            Some("a quoted text is not closed before here"),
            "look above for the opening quote, and close it on its line or remove it",
        ),
        E::InvalidTrailingSingleQuotedScalar | E::InvalidTrailingDoubleQuotedScalar => (
            Some("something follows the closing quote"),
            "put the whole value inside the quotes; inside '…' a quote is written '', inside \"…\" it is \\\"",
        ),
        E::UnknownQuotedScalarEscape => (
            Some("this \\ escape does not exist"),
            "inside \"…\" a backslash is written \\\\; or use '…', where a backslash is just a backslash",
        ),
        E::UnclosedFlowCollection { open: '[' } | E::UnexpectedEofFlowSequence | E::ExpectedFlowSequenceSeparator => {
            (Some("a list opened with `[` is not closed"), "separate its items by `,` and close it with `]`")
        }
        E::UnclosedFlowCollection { .. } | E::UnexpectedEofFlowMapping | E::ExpectedFlowMappingSeparator => {
            (Some("a mapping opened with `{` is not closed"), "separate its entries by `,` and close it with `}`")
        }
        E::MismatchedFlowCollectionEnd { .. } => {
            (Some("this bracket is closed by one of the other kind"), "close `[` with `]` and `{` with `}`")
        }
        E::MisplacedFlowCollectionEnd => (Some("this bracket closes nothing"), "remove it, or open it before"),
        E::UnknownAnchor => (
            Some("this alias names nothing"),
            "define it above with `&name`; or, if the `*` is meant as text, put it in quotes",
        ),
        E::InvalidIndentation | E::ExpectedBlockMappingKey => (
            Some("this line is indented differently from its neighbours"),
            "entries of one mapping start in the same column; a `:` belongs after each key",
        ),
        E::SimpleKeyExpected | E::InvalidSimpleKey => (
            Some("this line is not `key: value`"),
            "write a colon and a space after the key, and check the indentation",
        ),
        E::ExpectedBlockSequenceEntry | E::BlockSequenceEntryNotAllowed | E::BlockEntryInFlowCollection => (
            Some("a list item (`- …`) cannot stand here"),
            "put each `- item` on a line of its own, all in the same column below their key",
        ),
        E::UnexpectedCharacter { .. } => {
            (Some("no YAML value can begin with this character"), "if it is part of a text, put the text in quotes")
        }
        E::RecursionLimitExceeded => (Some("values are nested far too deep"), "no field needs this; flatten the value"),
        E::InvalidColonPlacement | E::MappingValueNotAllowed | E::MappingKeyNotAllowed => (
            Some("a `:` cannot stand here"),
            "if it is part of a text, put the text in quotes; else look above for a bracket that is not closed or a line that is indented too far",
        ),
        _ => (None, "check the quotes, colons and indentation around here"),
    }
}
