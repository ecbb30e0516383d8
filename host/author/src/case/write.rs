//! Writes the values of a case: short ones inline, others as files beside it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value as Json;

use super::file::ErrorKind;
use super::metadata;
use gpux_core::{Kind, Metadata, Tensor, Value, to_json, to_npy};

/// The most elements of a tensor that are written inline.
const INLINE_ELEMENTS: usize = 16;

/// The most bytes of anything else.
const INLINE_BYTES: usize = 200;

/// A part of a case that is being written, and the files that go with it.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// lines of YAML
    pub(crate) text: String,
    /// names and contents, each to lie beside `case.yml`
    pub(crate) files: Vec<(String, Vec<u8>)>,
    taken: BTreeSet<String>,
}

impl Draft {
    /// Adds `section:` with these values. `prefix` begins the names of their files; `kind` is what
    /// the port of a name takes; `known` the file that already holds its value.
    pub(crate) fn section<'v>(
        &mut self,
        section: &str,
        prefix: &str,
        values: impl IntoIterator<Item = (&'v str, &'v Value, &'v Kind)>,
        known: &dyn Fn(&str) -> Option<String>,
    ) {
        let mut lines = String::new();
        for (name, value, kind) in values {
            let written = self.value(value, kind, |ending| match known(name) {
                Some(file) if file.ends_with(&format!(".{ending}")) => file,
                _ => format!("{prefix}-{}.{ending}", plain(name)),
            });
            lines += &format!("  {}: {written}\n", key(name));
        }
        let lines = if lines.is_empty() { " {}\n".to_owned() } else { format!("\n{lines}") };
        self.text += &format!("{section}:{lines}");
    }

    fn value(&mut self, value: &Value, kind: &Kind, name: impl Fn(&str) -> String) -> String {
        match value {
            Value::Tensor(tensor) => self.tensor(tensor, name),
            Value::Text(text) if text.len() <= INLINE_BYTES => {
                let quoted = line(&Json::from(&**text));
                if *kind == Kind::Json { format!("{{ text: {quoted} }}") } else { quoted }
            }
            Value::Text(text) => self.file(name("txt"), text.as_bytes().to_vec(), None),
            Value::Bytes(bytes) if bytes.len() <= INLINE_BYTES / 4 => to_json(value).to_string(),
            Value::Bytes(bytes) => self.file(name(ending(bytes)), bytes.to_vec(), None),
            Value::Json(json) => {
                let text = line(json);
                match &**json {
                    _ if text.len() > INLINE_BYTES => {
                        let text = serde_json::to_string_pretty(json).unwrap_or(text);
                        self.file(name("json"), text.into_bytes(), None)
                    }
                    Json::Object(_) | Json::String(_) => format!("{{ json: {text} }}"),
                    _ => text,
                }
            }
        }
    }

    fn tensor(&mut self, tensor: &Tensor, name: impl Fn(&str) -> String) -> String {
        let file = if tensor.len() > INLINE_ELEMENTS { to_npy(tensor).ok() } else { None };
        if let Some(bytes) = file {
            return self.file(name("npy"), bytes, Some(tensor.metadata));
        }
        // One number for a scalar, else a flat list.
        let flat = if tensor.rank() == 0 { None } else { tensor.clone().reshape([tensor.len()]).ok() };
        let data = line(&to_json(&Value::Tensor(flat.unwrap_or_else(|| tensor.clone()))));
        let metadata = metadata_text(tensor.metadata);
        format!("{{ type: {}, shape: {:?}, data: {data}{metadata} }}", tensor.element(), tensor.shape())
    }

    fn file(&mut self, name: String, content: Vec<u8>, metadata: Option<Metadata>) -> String {
        let (stem, ending) = name.rsplit_once('.').unwrap_or((&name, ""));
        let numbered = (2..).map(|number| format!("{stem}-{number}.{ending}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.taken.contains(name));
        let name = free.unwrap_or(name);
        let metadata = metadata.map(metadata_text).unwrap_or_default();
        let text = format!("{{ file: {}{metadata} }}", key(&name));
        self.taken.insert(name.clone());
        self.files.push((name, content));
        text
    }
}

/// `, metadata: {…}` where there is any.
fn metadata_text(metadata: Metadata) -> String {
    if metadata == Metadata::default() {
        return String::new();
    }
    format!(", metadata: {}", flow(&metadata::RawMetadata::from(metadata)))
}

/// A value as one line of YAML: `{ layout: HWC, color: rgb }`.
pub(crate) fn flow<T: Serialize>(value: &T) -> String {
    // By way of text, in which a float32 has no more digits than it needs.
    let text = serde_json::to_string(value).unwrap_or_default();
    flow_json(&serde_json::from_str(&text).unwrap_or_default())
}

fn flow_json(json: &Json) -> String {
    match json {
        Json::Object(fields) if !fields.is_empty() => {
            let fields: Vec<_> =
                fields.iter().map(|(name, json)| format!("{}: {}", key(name), flow_json(json))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(flow_json).collect::<Vec<_>>().join(", ")),
        Json::String(text) => key(text),
        scalar => scalar.to_string(),
    }
}

/// The line for an expected error.
pub(crate) fn error_text(kind: ErrorKind, message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let contains: String = first.chars().filter(|letter| !letter.is_control()).take(INLINE_BYTES).collect();
    format!("error: {{ kind: {kind}, contains: {} }}\n", line(&Json::from(contains)))
}

/// A name as YAML: plain if it is unambiguous, else in quotes.
pub(crate) fn key(name: &str) -> String {
    let word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(word)
        && !matches!(name.to_ascii_lowercase().as_str(), "null" | "true" | "false");
    if is_plain { name.to_owned() } else { line(&Json::from(name)) }
}

/// A name that a file can have anywhere.
fn plain(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let plain: String = name.chars().take(64).map(letter).collect();
    if plain.is_empty() { "value".to_owned() } else { plain }
}

/// JSON as one line of YAML, which it is but for characters that YAML does not take as they are.
fn line(json: &Json) -> String {
    let strange = |letter: char| {
        letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    let mut text = String::new();
    for letter in json.to_string().chars() {
        if strange(letter) {
            text += &format!("\\u{:04x}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
    text
}

/// The usual ending of a file with this content.
fn ending(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [0xff, 0xd8, 0xff, ..] => "jpg",
        [b'R', b'I', b'F', b'F', ..] => "wav",
        _ => "bin",
    }
}
