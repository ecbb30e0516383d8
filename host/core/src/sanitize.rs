//! Untrusted text for terminals and logs.

/// Whether a character is a control, a line or paragraph separator, or changes the direction of writing.
pub fn is_unsafe_for_terminal(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Replaces characters that control a terminal or reorder text by spaces; line ends stay.
pub fn sanitize_for_terminal(text: &str) -> String {
    text.chars().map(|c| if is_unsafe_for_terminal(c) && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitize_keeps_lines_and_removes_control_characters() {
        assert_eq!(sanitize_for_terminal("a\u{1b}[31m\nb\u{202e}c\u{9b}\u{2028}é"), "a [31m\nb c  é");
    }
}
