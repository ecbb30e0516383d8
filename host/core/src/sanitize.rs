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

/// Shortens each absolute path in the text to its last part: clients must not learn the locations of the server's
/// files.
pub fn redact_paths(text: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || "._-+@~%=".contains(c);
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('/') {
        let before = rest[..at].chars().next_back().or_else(|| out.chars().next_back());
        let path = &rest[at..];
        // A path in quotes ends at the closing quote.
        let end = match before {
            Some(quote @ ('`' | '"' | '\'')) => path.find(quote),
            _ => None,
        };
        let end = end.unwrap_or_else(|| path.find(|c: char| c != '/' && !is_part(c)).unwrap_or(path.len()));
        let begins = !before.is_some_and(|c| is_part(c) || c == ':' || c == '/');
        let last =
            path[..end].trim_end_matches('/').rsplit_once('/').filter(|(folder, _)| begins && !folder.is_empty());
        out.push_str(&rest[..at]);
        match last {
            Some((_, last)) => {
                out.push_str("\u{2026}/");
                out.push_str(last);
            }
            None => out.push_str(&path[..end]),
        }
        rest = &path[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitize_keeps_lines_and_removes_control_characters() {
        assert_eq!(sanitize_for_terminal("a\u{1b}[31m\nb\u{202e}c\u{9b}\u{2028}é"), "a [31m\nb c  é");
    }

    #[test]
    fn redacts_server_paths() {
        for (text, public_message) in [
            ("cannot read `/srv/my models/a b/net.onnx`: denied", "cannot read `\u{2026}/net.onnx`: denied"),
            ("/home/ada/x.so: no such file", "\u{2026}/x.so: no such file"),
            (
                "load /opt/ort/lib.so failed (/build/src/core.cc:12)",
                "load \u{2026}/lib.so failed (\u{2026}/core.cc:12)",
            ),
            ("see https://example.com/a/b", "see https://example.com/a/b"),
            ("1/2 of it, and/or a / b", "1/2 of it, and/or a / b"),
            ("`./models/net.onnx`", "`./models/net.onnx`"),
            ("`/predict`", "`/predict`"),
            ("at \"/a/b\" and '/c/d/'", "at \"\u{2026}/b\" and '\u{2026}/d'"),
            ("//a//b", "\u{2026}/b"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(redact_paths(text), public_message, "{text}");
        }
    }
}
