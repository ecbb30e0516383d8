//! The names of classes as exporters write them into a model's metadata.

use std::collections::BTreeMap;
use std::str::Chars;

use serde_json::{Map, Value as Json};

/// Bytes of the largest text that is parsed: each name takes several times its text.
const MAX_TEXT: usize = 4 << 20;

/// The names in a text, by their numbers: a list or a dictionary as JSON or as Python writes it (`{0: 'cat', 1: 'dog'}`,
/// `{"cat": 0, "dog": 1}`), else one a line. An error says why the text has none.
///
/// Spaces around a name belong to it; line ends do not.
pub fn class_names(text: &str) -> Result<Vec<String>, String> {
    if text.len() > MAX_TEXT {
        return Err(format!("it has {} bytes, but at most {MAX_TEXT} are parsed; write it to a file", text.len()));
    }
    let text = text.trim_start_matches('\u{feff}');
    let trimmed = text.trim();
    let names = match structure(trimmed) {
        Some(Json::Array(names)) => {
            names.into_iter().map(text_of).collect::<Option<_>>().ok_or("not all of it is text")
        }
        Some(Json::Object(names)) => by_number(names).ok_or("its numbers are not 0, 1, 2, … with a name each"),
        // A bracket may be the first name.
        _ if trimmed.starts_with(['{', '[']) && !trimmed.contains('\n') => {
            Err("it is neither JSON nor a list or dictionary of Python")
        }
        _ => Ok(text.trim_end_matches(['\r', '\n']).lines().map(str::to_owned).collect()),
    }?;
    if trimmed.is_empty() || names.is_empty() { Err("it is empty".to_owned()) } else { Ok(names) }
}

/// A list or a dictionary, if the text is one.
fn structure(text: &str) -> Option<Json> {
    let is_closed = text.starts_with('{') && text.ends_with('}')
        || text.starts_with('[') && text.ends_with(']')
        || text.starts_with('(') && text.ends_with(')');
    if !is_closed {
        return None;
    }
    serde_json::from_str(text).ok().or_else(|| Python { rest: text.chars() }.structure())
}

fn text_of(value: Json) -> Option<String> {
    if let Json::String(text) = value { Some(text) } else { None }
}

/// The names of `{"0": "cat", …}` or `{"cat": 0, …}`, in the order of their numbers.
fn by_number(names: Map<String, Json>) -> Option<Vec<String>> {
    let count = names.len();
    let numbered = |(key, value): (String, Json)| match value {
        Json::String(name) => Some((key.parse().ok()?, name)),
        Json::Number(number) => Some((usize::try_from(number.as_u64()?).ok()?, key)),
        _ => None,
    };
    let names = names.into_iter().map(numbered).collect::<Option<BTreeMap<usize, String>>>()?;
    (names.len() == count && names.keys().copied().eq(0..count)).then(|| names.into_values().collect())
}

/// Reads a list, tuple or dictionary of texts and whole numbers, as `ast.literal_eval` does.
struct Python<'a> {
    rest: Chars<'a>,
}

impl Python<'_> {
    /// The whole of it.
    fn structure(mut self) -> Option<Json> {
        let (close, is_dict) = match self.rest.next()? {
            '{' => ('}', true),
            '[' => (']', false),
            '(' => (')', false),
            _ => return None,
        };
        let (mut list, mut dict) = (Vec::new(), Map::new());
        while !self.take(close) {
            let item = self.scalar()?;
            if is_dict {
                let key = text_of(item.clone()).unwrap_or_else(|| item.to_string());
                self.take(':').then_some(())?;
                dict.insert(key, self.scalar()?);
            } else {
                list.push(item);
            }
            if !self.take(',') {
                self.take(close).then_some(())?;
                break;
            }
        }
        self.rest.as_str().trim().is_empty().then_some(if is_dict { dict.into() } else { list.into() })
    }

    /// Whether `wanted` comes next, which is then passed; spaces before it do not count.
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.as_str().trim_start().strip_prefix(wanted);
        if let Some(rest) = rest {
            self.rest = rest.chars();
        }
        rest.is_some()
    }

    fn scalar(&mut self) -> Option<Json> {
        if let Some(quote) = ['\'', '"'].into_iter().find(|quote| self.take(*quote)) {
            return self.quoted(quote).map(Json::from);
        }
        let rest = self.rest.as_str().trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().ok()?;
        self.rest = rest[end..].chars();
        Some(number.into())
    }

    /// A text up to its closing quote.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                '\\' => self.escape(&mut text)?,
                '\n' => return None,
                found if found == quote => return Some(text),
                other => text.push(other),
            }
        }
    }

    /// Adds what `\` and the following characters stand for.
    fn escape(&mut self, text: &mut String) -> Option<()> {
        let escape = self.rest.next()?;
        text.push(match escape {
            '\n' => return Some(()),
            '\\' | '\'' | '"' => escape,
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'x' => self.hex(2)?,
            'u' => self.hex(4)?,
            'U' => self.hex(8)?,
            _ => return None,
        });
        Some(())
    }

    fn hex(&mut self, digits: usize) -> Option<char> {
        let mut number = 0_u32;
        for _ in 0..digits {
            number = number.checked_mul(16)?.checked_add(self.rest.next()?.to_digit(16)?)?;
        }
        char::from_u32(number)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn reads_names_as_exporters_write_them() {
        for text in [
            r#"{0: 'cat', 1: "dog's"}"#,
            r"{1: 'dog\'s', 0: 'c\x61t',}",
            r#"{"0": "cat", "1": "dog's"}"#,
            r#"{"dog's": 1, "cat": 0}"#,
            r#"{'cat': 0, "dog's": 1}"#,
            "{\n  0: 'cat',\n  1: 'dog\\u0027s'\n}",
            r#"["cat", "dog's"]"#,
            r#"['cat', "dog's"]"#,
            r#" ('cat', "dog's",) "#,
            "cat\ndog's",
            "\u{feff}cat\r\ndog's\r\n",
        ] {
            assert_eq!(class_names(text).unwrap(), ["cat", "dog's"], "{text}");
        }
        assert_eq!(class_names("[\n{\n 'a \n]").unwrap(), ["[", "{", " 'a ", "]"], "one a line");
        assert_eq!(class_names("a\n\u{3000}\n\nb\n\n").unwrap(), ["a", "\u{3000}", "", "b"]);
        assert_eq!(class_names("a, b").unwrap(), ["a, b"]);
        assert_eq!(class_names("['\u{1f600}', '\\U0001f600']").unwrap(), ["\u{1f600}", "\u{1f600}"]);
    }

    #[test]
    fn rejects_other_texts() {
        for text in [
            "",
            " \n",
            "{}",
            "[]",
            "{0: 'cat', 2: 'dog'}",
            "{0: cat}",
            "{0: 'cat",
            "{",
            "{0",
            "{0:",
            "{0: '\\",
            "[1, 2]",
            "{0: 'cat'} x",
            "['cat' 'dog']",
            "{0: ['cat']}",
            "{1: 'cat', 1: 'dog'}",
            "{-1: 'cat'}",
            "['\\ud800']",
            "{\"a\": 0, \"b\": 0}",
            "{99999999999999999999: 'a'}",
            "['\\q']",
            "[,]",
        ] {
            assert!(class_names(text).is_err(), "{text}");
        }
        assert!(class_names(&"a\n".repeat(3 << 20)).unwrap_err().contains("at most 4194304"));
    }
}
