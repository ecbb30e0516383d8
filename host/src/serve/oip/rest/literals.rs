//! `NaN`, `Infinity` and `-Infinity` without quotes: no JSON, but what Python writes for them, and so
//! NVIDIA's clients and Triton.

/// What stands for numbers that JSON does not have.
const LITERALS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];

/// How much room the text takes with them in quotes at the most: two quotes for four bytes.
pub(super) const fn room(json: &[u8]) -> usize {
    json.len() + json.len() / 2
}

/// The text with these literals in quotes, as JSON has them; `None` if there are none. Only items of lists
/// are looked at: nowhere else could they be the numbers of a tensor.
pub(super) fn quoted(json: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // How much of the text has been copied, and the byte before, but for white space.
    let (mut copied, mut place, mut before) = (0, 0, b' ');
    while let Some(rest) = json.get(place..).filter(|rest| !rest.is_empty()) {
        let literal = LITERALS.into_iter().find(|literal| rest.starts_with(literal));
        match (literal, rest) {
            (Some(literal), _) if matches!(before, b'[' | b',') && ends(&rest[literal.len()..]) => {
                if copied == 0 {
                    // The text does not have to move.
                    out.reserve_exact(room(json));
                }
                out.extend_from_slice(&json[copied..place]);
                out.push(b'"');
                out.extend_from_slice(literal);
                out.push(b'"');
                place += literal.len();
                (copied, before) = (place, b'"');
            }
            (_, [b'"', text @ ..]) => {
                place += 1 + string(text);
                before = b'"';
            }
            (_, [byte, ..]) => {
                if !byte.is_ascii_whitespace() {
                    before = *byte;
                }
                place += 1;
            }
            (_, []) => {}
        }
    }
    if copied == 0 {
        return None;
    }
    out.extend_from_slice(&json[copied..]);
    Some(out)
}

/// Whether an item of a list ends here.
fn ends(rest: &[u8]) -> bool {
    matches!(rest.trim_ascii_start().first(), Some(b',' | b']'))
}

/// Length of what is left of a string, with its closing quote.
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
        quoted(json.as_bytes()).map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn only_items_of_lists_are_quoted() {
        for (given, expected) in [
            ("[NaN, -Infinity,[Infinity ]]", Some(r#"["NaN", "-Infinity",["Infinity" ]]"#)),
            (r#"{"NaN":["[NaN,", "\"", NaN]}"#, Some(r#"{"NaN":["[NaN,", "\"", "NaN"]}"#)),
            (r#"{"id":NaN}"#, None),
            (r#"["\\\"NaN", 1]"#, None),
            ("[NaNs]", None),
            ("[1 NaN]", None),
            (r#"{"a":1,NaN:2}"#, None),
            ("[\"NaN", None),
            ("", None),
        ] {
            assert_eq!(text(given).as_deref(), expected, "{given}");
        }
    }

    proptest! {
        #[test]
        fn what_is_json_is_left_alone(texts in prop::collection::vec(any::<String>(), 0..4)) {
            prop_assert_eq!(quoted(serde_json::json!([texts, "NaN", 1]).to_string().as_bytes()), None);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\],\"\\\\ NaInfity-]{0,60}") {
            quoted(text.as_bytes());
        }
    }
}
