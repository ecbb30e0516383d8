//! The text of a file and the places in it.

use std::ops::Range;
use std::sync::Arc;

/// A range of bytes in a file's text.
pub type Span = Range<usize>;

/// A file as read: what diagnostics quote.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// the name that diagnostics show, usually the path as the user wrote it
    pub name: String,
    /// the whole text
    pub text: Arc<str>,
}

/// A line and a column, both counted from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// the line
    pub line: usize,
    /// the character in the line
    pub column: usize,
}

impl SourceFile {
    /// A file of this name with this text.
    pub fn new(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The line and column of the byte `offset`; past the end, those of the end.
    pub fn position(&self, offset: usize) -> Position {
        let before = self.before(offset);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        Position { line, column: before[start..].chars().count() + 1 }
    }

    /// The line that holds the byte `offset`, without its line break, and where it starts.
    pub(super) fn line_at(&self, offset: usize) -> (usize, &str) {
        let start = self.before(offset).rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[start..].split('\n').next().unwrap_or_default();
        (start, line.trim_end_matches('\r'))
    }

    fn before(&self, offset: usize) -> &str {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        &self.text[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_columns_in_characters() {
        let source = SourceFile::new("x", "a: é\nb: ü!\n");
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        assert_eq!(source.position("a: é\nb: ü".len()), Position { line: 2, column: 5 });
        assert_eq!(source.position(9999), Position { line: 3, column: 1 });
        assert_eq!(source.line_at(8).1, "b: ü!");
    }
}
