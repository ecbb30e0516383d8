//! Timeout and priority of a JSON request, found before it is parsed.
//!
//! Parsing a large request takes long and so happens in its execution, but its position in the queue is needed earlier.
//! Clients write the parameters before or after the tensors. So only a fixed length at the start and at the end of the
//! text is searched.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};

use super::bounded_fields::ParsedParameters;
use crate::protocol::http::json_text::{self, Scope};
use crate::protocol::oip::parameters;
use crate::protocol::oip::parameters::Parameters;
use crate::{RequestOptions, ServeError};

/// How much of each end is searched, in bytes: this takes about as long as submitting the request.
const LOOK: usize = 64 << 10;

/// The field with the parameters.
const FIELD: &str = "parameters";

/// Parameters that matter before the execution.
const WORDS: [&str; 2] = ["\"timeout\"", "\"priority\""];

/// The options in a request's parameters; `bytes` is the size of its body. Parameters far from both ends are found when
/// it is parsed.
pub(super) fn options(json: &[u8], bytes: usize) -> Result<RequestOptions, ServeError> {
    parameters::options(&found(json), bytes)
}

fn found(json: &[u8]) -> Parameters {
    let start = json.get(..LOOK).unwrap_or(json);
    let end = json.get(json.len().saturating_sub(LOOK)..).unwrap_or(json);
    let found = matters(start).then(|| first(start)).flatten();
    // The parser reports errors later.
    found.or_else(|| matters(end).then(|| last(end)).flatten()).unwrap_or_default()
}

/// A search for a word is much faster than parsing every number.
fn matters(text: &[u8]) -> bool {
    text.utf8_chunks().any(|chunk| WORDS.into_iter().any(|word| chunk.valid().contains(word)))
}

/// The parameters of an object from the start of its text.
fn first(start: &[u8]) -> Option<Parameters> {
    let read = |text: &[u8]| {
        let mut found = None;
        let ended = serde_json::Deserializer::from_slice(text).deserialize_map(UpToParameters(&mut found));
        (found, ended.is_err_and(|error| error.is_syntax()))
    };
    match read(start) {
        (None, true) => json_text::quoted(start, Scope::Lists).and_then(|quoted| read(&quoted).0),
        (found, _) => found,
    }
}

/// Parses an object up to its parameters, even if its text is cut off.
struct UpToParameters<'a>(&'a mut Option<Parameters>);

impl<'de> Visitor<'de> for UpToParameters<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
            if name == FIELD {
                *self.0 = Some(fields.next_value::<ParsedParameters>()?.0);
                return Err(A::Error::custom("what follows does not matter"));
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// The parameters of an object from the end of its text.
fn last(end: &[u8]) -> Option<Parameters> {
    #[derive(Deserialize)]
    struct Tail {
        parameters: ParsedParameters,
    }
    let tail = [b"{", end.get(field(end)?..)?].concat();
    let read = |text: &[u8]| serde_json::from_slice::<Tail>(text).ok();
    read(&tail).or_else(|| read(&json_text::quoted(&tail, Scope::Lists)?)).map(|tail| tail.parameters.0)
}

/// Finds the field in the end of an object's text. Scanning backwards, the nesting depth and the pairs of quotes are
/// known at every byte.
fn field(end: &[u8]) -> Option<usize> {
    let (mut depth, mut text) = (0_usize, end);
    while let [before @ .., byte] = text {
        text = before;
        match byte {
            b'}' | b']' => depth += 1,
            b'{' | b'[' => depth = depth.checked_sub(1)?,
            b'"' => {
                let quote = opening(before)?;
                let (name, after) = (before.get(quote + 1..)?, end.get(before.len() + 1..)?);
                if depth == 1 && name == FIELD.as_bytes() && after.trim_ascii_start().starts_with(b":") {
                    return Some(quote);
                }
                text = before.get(..quote)?;
            }
            _ => {}
        }
    }
    None
}

/// The opening quote of the string at the end of `text`. A quote after an odd number of backslashes is escaped.
fn opening(mut text: &[u8]) -> Option<usize> {
    loop {
        let quote = text.iter().rposition(|byte| *byte == b'"')?;
        text = text.get(..quote)?;
        if text.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0 {
            return Some(quote);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A request whose parameters precede or follow its tensors, with about `more` bytes of data.
    fn request(before: bool, more: usize, other: &str) -> String {
        let parameters = r#""parameters" : {"timeout":7,"priority":1}"#;
        let data = "1, ".repeat(more / 3);
        let inputs = format!(
            r#""inputs":[{{"name":"x\"{{","datatype":"FP32","shape":[1],"parameters":{{"timeout":8}},"data":[{data}1]}}]"#
        );
        let outputs = r#""outputs":[{"name":"y","parameters":{"binary_data":true}}],"id":"parameters""#;
        let parts = if before { [parameters, &inputs, outputs] } else { [&inputs, parameters, outputs] };
        format!("{{{other}{}}}", parts.join(", "))
    }

    #[test]
    fn finds_parameters_at_either_end() {
        for more in [0, LOOK - 100, LOOK, 10 * LOOK] {
            for before in [true, false] {
                for other in ["", r#""o\\":["]}\\\"",{}],"#, r#""o":[NaN, -Infinity],"#] {
                    let json = request(before, more, other);
                    let asked = json!({ "timeout": 7, "priority": 1 });
                    assert_eq!(json!(found(json.as_bytes())), asked, "{more} {before} {other}");
                }
            }
        }
        let literals = request(false, 3 * LOOK, "").replacen("1, ", "NaN, ", 20);
        assert_eq!(found(literals.as_bytes())["timeout"], 7);
    }

    #[test]
    fn finds_only_top_level_parameters() {
        let many = "1,".repeat(LOOK);
        for json in [
            format!(r#"{{"a":[{{"parameters":{{"timeout":7}}}}],"b":[{many}1],"c":{{"parameters":{{"timeout":8}}}}}}"#),
            format!(r#"{{"a":[{many}1],"b":"{{\"parameters\":{{\"timeout\":8}}}}"}}"#),
            format!(r#"{{"a":[{many}1],"b":"parameters","timeout":8}}"#),
            format!(r#"[{many}{{"parameters":{{"timeout":7}}}}]"#),
        ] {
            assert_eq!(json!(found(json.as_bytes())), json!({}), "{}", &json[json.len() - 80..]);
        }
    }

    proptest! {
        #[test]
        fn ignores_surrounding_fields(texts in prop::collection::vec(any::<String>(), 4)) {
            let [a, b, c, d] = texts.as_slice() else { unreachable!() };
            let own = json!({ "timeout": 7 });
            let object = json!({ a: [b, { "parameters": { "timeout": 8 } }], "parameters": own, c: { d: [a] } });
            let object = object.to_string();
            prop_assert_eq!(json!(first(object.as_bytes())), own.clone());
            prop_assert_eq!(json!(last(object.as_bytes())), own);
        }

        #[test]
        fn never_panics_on_any_text(text in "[\\[\\]{}\",:\\\\parmets0-9N -]{0,80}") {
            let text = format!("{text}\"parameters\":{text}\"timeout\"{text}");
            first(text.as_bytes());
            last(text.as_bytes());
            last(&text.as_bytes()[text.len() / 2..]);
        }
    }
}
