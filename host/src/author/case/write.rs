//! Values → what a case writes: short ones inline, others as files beside it.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::file::{ErrorKind, mapping_text};
use super::metadata;
use crate::pipeline::{Kind, Metadata, Tensor, Value, to_json, to_npy};

/// The most elements of a tensor that are written inline.
const INLINE_ELEMENTS: usize = 16;

/// The most bytes of anything else.
const INLINE_BYTES: usize = 200;

/// A part of a case that is being written, and the files that go with it.
#[derive(Debug, Default)]
pub(in crate::author) struct Draft {
    /// lines of YAML
    pub(in crate::author) text: String,
    /// names and contents, each to lie beside `case.yml`
    pub(in crate::author) files: Vec<(String, Vec<u8>)>,
    taken: BTreeSet<String>,
}

impl Draft {
    /// Adds `section:` with these values. `prefix` begins the names of their files; `kind` is what
    /// the port of a name takes; `known` the file that already holds its value.
    pub(in crate::author) fn section<'v>(
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
            Value::Text(text) if text.len() <= INLINE_BYTES && is_plain(text) => {
                let quoted = Json::from(&**text).to_string();
                if *kind == Kind::Json { format!("{{ text: {quoted} }}") } else { quoted }
            }
            Value::Text(text) => self.file(name("txt"), text.as_bytes().to_vec(), None),
            Value::Bytes(bytes) if bytes.len() <= INLINE_BYTES / 4 => to_json(value).to_string(),
            Value::Bytes(bytes) => self.file(name(ending(bytes)), bytes.to_vec(), None),
            Value::Json(json) => {
                let text = json.to_string();
                match &**json {
                    _ if text.len() > INLINE_BYTES || !is_plain(&text) => {
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
        let flat = tensor.clone().reshape([tensor.len()]).unwrap_or_else(|_| tensor.clone());
        let data = to_json(&Value::Tensor(flat));
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
    format!(", metadata: {}", mapping_text(&metadata::Written::from(metadata)))
}

/// The line for an expected error.
pub(in crate::author) fn error_text(kind: ErrorKind, message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let contains: String = first.chars().filter(|letter| !letter.is_control()).take(INLINE_BYTES).collect();
    format!("error: {{ kind: {kind}, contains: {} }}\n", Json::from(contains))
}

/// A name as YAML: as it is where nothing else can be meant, else in quotes.
pub(in crate::author) fn key(name: &str) -> String {
    let word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(word)
        && !matches!(name.to_ascii_lowercase().as_str(), "null" | "true" | "false");
    if is_plain { name.to_owned() } else { Json::from(name).to_string() }
}

/// A name that a file can have anywhere.
fn plain(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let plain: String = name.chars().take(64).map(letter).collect();
    if plain.is_empty() { "value".to_owned() } else { plain }
}

/// Whether YAML keeps the text in quotes as it is.
fn is_plain(text: &str) -> bool {
    let strange = |letter: char| {
        (letter.is_control() && !matches!(letter, '\n' | '\t'))
            || matches!(letter, '\u{feff}' | '\u{2028}' | '\u{2029}')
    };
    !text.chars().any(|letter| strange(letter) || ('\u{fffe}'..='\u{ffff}').contains(&letter))
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
