//! The names of a model's classes in its metadata.

use std::collections::BTreeMap;

use gpux_inference::ModelInfo;
use serde_json::Value as Json;

/// Where exporters write them: Ultralytics, Hugging Face and others, PaddleOCR.
const KEYS: [&str; 5] = ["names", "labels", "id2label", "classes", "character"];

/// The names of the classes, if the metadata has them: of exactly `count`, where that is known.
pub(super) fn class_names(info: &ModelInfo, count: Option<usize>) -> Option<Vec<String>> {
    let is_line = |name: &String| !name.trim().is_empty() && !name.contains(char::is_control);
    let mut names = KEYS.iter().filter_map(|key| info.metadata.get(*key)).map(|text| parse(text.trim()));
    names.find(|names| count.is_none_or(|count| names.len() == count) && !names.is_empty() && names.iter().all(is_line))
}

/// A list in JSON, an object with numbers as keys in JSON or as Python writes it, or names by lines or commas.
fn parse(text: &str) -> Vec<String> {
    let by_number = |names: BTreeMap<usize, String>| {
        let is_whole = names.keys().copied().eq(0..names.len());
        if is_whole { names.into_values().collect() } else { Vec::new() }
    };
    let name = |value: Json| value.as_str().map(str::to_owned);
    match serde_json::from_str(text) {
        Ok(Json::Array(names)) => names.into_iter().filter_map(name).collect(),
        Ok(Json::Object(names)) => {
            by_number(names.into_iter().filter_map(|(key, value)| Some((key.parse().ok()?, name(value)?))).collect())
        }
        _ if text.starts_with('{') => by_number(python_dict(text).unwrap_or_default()),
        _ => {
            let separator = if text.contains('\n') { '\n' } else { ',' };
            text.split(separator).map(|name| name.trim().to_owned()).collect()
        }
    }
}

/// `{0: 'person', 1: "driver's seat"}`
fn python_dict(text: &str) -> Option<BTreeMap<usize, String>> {
    let mut names = BTreeMap::new();
    let mut rest = text.strip_prefix('{')?.trim_start();
    while !rest.starts_with('}') {
        let (number, after) = rest.split_once(':')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
        let mut name = String::new();
        let mut characters = after.char_indices().skip(1);
        let end = loop {
            match characters.next()? {
                (at, found) if found == quote => break at + quote.len_utf8(),
                (_, '\\') => name.push(characters.next()?.1),
                (_, other) => name.push(other),
            }
        };
        names.insert(number.trim().parse().ok()?, name);
        rest = after.get(end..)?.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_as_exporters_write_them() {
        for text in [
            r#"{0: 'cat', 1: "dog's"}"#,
            r"{1: 'dog\'s', 0: 'cat',}",
            r#"{"0": "cat", "1": "dog's"}"#,
            r#"["cat", "dog's"]"#,
            "cat\ndog's",
            "cat, dog's",
        ] {
            assert_eq!(parse(text), ["cat", "dog's"], "{text}");
        }
        for text in ["{0: 'cat', 2: 'dog'}", "{0: cat}", "{0: 'cat", "{", "{0", "{0:", "{0: '\\", "[1, 2]"] {
            assert_eq!(parse(text), [""; 0], "{text}");
        }
    }
}
