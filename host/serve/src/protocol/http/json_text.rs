//! Texts that are not quite JSON: unquoted `NaN`, `Infinity` and `-Infinity`, which Python writes, and therefore NVIDIA's
//! clients and Triton; a byte order mark; UTF-16.

use std::ops::Range;

use crate::ServeError;

/// The text without its byte order mark. Fails if it is UTF-16: every text of JSON begins with ASCII.
pub(crate) fn utf8(body: &[u8]) -> Result<&[u8], ServeError> {
    match body {
        [0xef, 0xbb, 0xbf, text @ ..] => Ok(text),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=255, ..] | [1..=255, 0, ..] => {
            Err(ServeError::invalid("the text is UTF-16; send it as UTF-8"))
        }
        text => Ok(text),
    }
}

/// Literals for numbers that JSON does not have.
const LITERALS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];

/// Upper bound of the text's length with its literals quoted: two quotes for each four bytes (`NaN,`).
pub(crate) const fn budget(json: &[u8]) -> usize {
    json.len() + json.len() / 2
}

/// Where literals are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// the items of lists
    Lists,
    /// the items of lists, and the values of fields
    ListsAndFields,
}

/// Whether the text has such literals.
pub(crate) fn are_in(json: &[u8], scope: Scope) -> bool {
    Literals::new(json, scope).next().is_some()
}

/// The text with these literals as JSON strings; `None` if there are none.
pub(crate) fn quoted(json: &[u8], scope: Scope) -> Option<Vec<u8>> {
    let mut literals = Literals::new(json, scope).peekable();
    literals.peek()?;
    // Never reallocates.
    let mut out = Vec::with_capacity(budget(json));
    let mut copied = 0;
    for literal in literals {
        out.extend_from_slice(&json[copied..literal.start]);
        out.push(b'"');
        out.extend_from_slice(&json[literal.clone()]);
        out.push(b'"');
        copied = literal.end;
    }
    out.extend_from_slice(&json[copied..]);
    Some(out)
}

/// Iterates over the literals in a text.
struct Literals<'a> {
    json: &'a [u8],
    scope: Scope,
    place: usize,
    /// the previous byte that is not white space
    before: u8,
}

impl<'a> Literals<'a> {
    const fn new(json: &'a [u8], scope: Scope) -> Self {
        Self { json, scope, place: 0, before: b' ' }
    }

    /// Whether a value may stand here that ends before `rest`.
    fn is_value(&self, rest: &[u8]) -> bool {
        let next = rest.trim_ascii_start().first();
        match self.before {
            b'[' | b',' => matches!(next, Some(b',' | b']')),
            b':' => self.scope == Scope::ListsAndFields && matches!(next, Some(b',' | b'}')),
            _ => false,
        }
    }
}

impl Iterator for Literals<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let rest = self.json.get(self.place..)?;
            let literal = LITERALS.into_iter().find(|literal| rest.starts_with(literal));
            match (literal, rest) {
                (Some(literal), _) if self.is_value(&rest[literal.len()..]) => {
                    let start = self.place;
                    self.place += literal.len();
                    self.before = b'"';
                    return Some(start..self.place);
                }
                (_, [b'"', text @ ..]) => {
                    self.place += 1 + string(text);
                    self.before = b'"';
                }
                (_, [byte, ..]) => {
                    if !byte.is_ascii_whitespace() {
                        self.before = *byte;
                    }
                    self.place += 1;
                }
                (_, []) => return None,
            }
        }
    }
}

/// The length of the rest of a string, including its closing quote.
fn string(text: &[u8]) -> usize {
    let mut escaped = false;
    let closing = text.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    });
    closing.map_or(text.len(), |place| place + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(json: &str) -> Option<String> {
        quoted(json.as_bytes(), Scope::ListsAndFields).map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn quotes_literals_in_lists_and_fields() {
        for (given, expected) in [
            ("[NaN, -Infinity,[Infinity ]]", Some(r#"["NaN", "-Infinity",["Infinity" ]]"#)),
            (r#"{"NaN":["[NaN,", "\"", NaN]}"#, Some(r#"{"NaN":["[NaN,", "\"", "NaN"]}"#)),
            (r#"{"x":NaN,"y" : -Infinity}"#, Some(r#"{"x":"NaN","y" : "-Infinity"}"#)),
            (r#"["\\\"NaN", 1]"#, None),
            ("[NaNs]", None),
            ("[1 NaN]", None),
            (r#"{"a":1,NaN:2}"#, None),
            (r#"{"a":"b:NaN,"}"#, None),
            ("[\"NaN", None),
            ("", None),
        ] {
            assert_eq!(text(given).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn leaves_fields_to_callers() {
        assert!(!are_in(br#"{"id":NaN}"#, Scope::Lists) && are_in(br#"{"x":[NaN]}"#, Scope::Lists));
    }

    #[test]
    fn removes_byte_order_marks_and_names_utf16() {
        let utf16 = |text: &str, order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<_>>();
        assert_eq!(utf8("\u{feff}{}".as_bytes()).ok(), Some(&b"{}"[..]));
        assert_eq!(utf8(b"").ok(), Some(&b""[..]));
        for text in ["\u{feff}{}", "{}", "[\u{e4}"] {
            for order in [u16::to_le_bytes, u16::to_be_bytes] {
                let error = utf8(&utf16(text, order)).err().map(|error| (error.status().as_u16(), error.to_string()));
                assert!(
                    error.as_ref().is_some_and(|(status, text)| *status == 400 && text.contains("UTF-16")),
                    "{error:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn leaves_valid_json_unchanged(texts in prop::collection::vec(any::<String>(), 0..4)) {
            prop_assert_eq!(quoted(serde_json::json!([texts, "NaN", 1]).to_string().as_bytes(), Scope::ListsAndFields), None);
        }

        #[test]
        fn never_panics_on_any_text(text in "[\\[\\],\"\\\\ NaInfity-]{0,60}") {
            quoted(text.as_bytes(), Scope::ListsAndFields);
        }
    }
}
