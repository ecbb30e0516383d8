//! The names of a model's classes in its metadata.

use gpux_inference::ModelInfo;

/// Where exporters write them: Ultralytics, Hugging Face and others, PaddleOCR.
const KEYS: [&str; 5] = ["names", "labels", "id2label", "classes", "character"];

/// The names of the classes, if the metadata has them: of exactly `count`, where that is known.
pub(super) fn class_names(info: &ModelInfo, count: Option<usize>) -> Option<Vec<String>> {
    let is_line = |name: &String| !name.is_empty() && !name.contains(char::is_control);
    let mut names = KEYS.iter().filter_map(|key| info.metadata.get(*key)).map(|text| parse(text.trim()));
    names.find(|names| count.is_none_or(|count| names.len() == count) && !names.is_empty() && names.iter().all(is_line))
}

/// Names as `gpux_core` reads them, or on one line with commas.
fn parse(text: &str) -> Vec<String> {
    let names = gpux_core::class_names(text).unwrap_or_default();
    match names.as_slice() {
        [line] if line == text => line.split(',').map(|name| name.trim().to_owned()).collect(),
        _ => names.into_iter().map(|name| name.trim().to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_as_exporters_write_them() {
        for text in [r#"{0: 'cat', 1: "dog's"}"#, r#"["cat", "dog's"]"#, "cat\n dog's", "cat, dog's"] {
            assert_eq!(parse(text), ["cat", "dog's"], "{text}");
        }
        for text in ["{0: 'cat', 2: 'dog'}", "{0: cat}", "[1, 2]"] {
            assert_eq!(parse(text), [""; 0], "{text}");
        }
    }
}
