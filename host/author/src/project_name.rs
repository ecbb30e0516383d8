//! Names of pipelines and steps.

/// The longest name.
const MAX_NAME: usize = 64;

/// A name like `name` that would be accepted.
pub(super) fn suggested_name(name: &str) -> String {
    let mut plain = String::new();
    for letter in name.chars().take(MAX_NAME) {
        if letter.is_ascii_uppercase() && plain.ends_with(|last: char| last.is_ascii_lowercase()) {
            plain.push('-');
        }
        plain.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' });
    }
    let words: Vec<_> = plain.split('-').filter(|word| !word.is_empty()).collect();
    let joined = words.join("-");
    if joined.starts_with(|first: char| first.is_ascii_lowercase()) { joined } else { "blur-faces".to_owned() }
}

/// The reason why `name` is invalid. A name becomes that of a crate, a package and a file.
pub(super) fn name_fault(name: &str) -> Option<&'static str> {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    match name {
        "" => Some("it is empty"),
        name if name.len() > MAX_NAME => Some("it is longer than 64 letters"),
        name if !name.chars().all(allowed) => Some("it holds other characters"),
        name if !name.starts_with(|first: char| first.is_ascii_lowercase()) => Some("it does not begin with a letter"),
        name if name.ends_with('-') || name.contains("--") => Some("a hyphen stands alone"),
        "true" | "false" | "null" => Some("YAML reads it as something else"),
        // A crate with one of these names cannot be built, or conflicts with a dependency.
        "test" | "core" | "std" | "alloc" | "proc-macro" | "gpux-step" | "self" | "super" | "crate" => {
            Some("it is taken by the tools")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requires_kebab_case_names() {
        for name in ["blur", "blur-faces", "yolo-v8", "a1"] {
            assert_eq!(name_fault(name), None, "{name}");
        }
        for name in ["", "Blur", "blur_faces", "8ball", "-a", "a-", "a--b", "é", "a b", "a.b", "test", &"a".repeat(65)]
        {
            assert!(name_fault(name).is_some(), "{name}");
            let suggested = suggested_name(name);
            assert_eq!(name_fault(&suggested).filter(|_| name != "test"), None, "{name}: {suggested}");
        }
        assert_eq!(suggested_name("BlurFaces"), "blur-faces");
        assert_eq!(suggested_name("blur_faces.v2"), "blur-faces-v2");
    }
}
