//! Names of files in a repository or a bundle, which become paths.

/// The longest name of a repository's file, and of a bundle's, in bytes.
const MAX_NAME: usize = 1024;
const MAX_PATH: usize = 512;
/// The longest name of a file or a folder that systems take, in bytes.
const MAX_PART: usize = 255;
/// The most parts of a bundle's path.
const MAX_PARTS: usize = 32;
/// Names of devices on Windows, whatever follows a dot.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
const NUMBERED_DEVICES: [&str; 2] = ["com", "lpt"];

/// Whether a name stays in the folder that it is joined to, on every system.
pub fn is_safe(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.ends_with('.');
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name.split('/').all(is_part)
        && !name.chars().any(|c| c.is_control() || matches!(c, '\\' | ':'))
}

/// Why a path may not be that of a file in a bundle, if it may not.
pub(crate) fn fault(path: &str) -> Option<&'static str> {
    let is_device = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part).trim_end().to_lowercase();
        let is_numbered = |device: &str| {
            stem.strip_prefix(device).is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
        };
        DEVICES.contains(&&*stem) || NUMBERED_DEVICES.into_iter().any(is_numbered)
    };
    let mut parts = path.split('/');
    if path.is_empty() {
        Some("it is empty")
    } else if path.len() > MAX_PATH {
        Some("it is longer than 512 bytes")
    } else if parts.clone().any(|part| part.len() > MAX_PART) {
        Some("a name in it is longer than 255 bytes")
    } else if path.chars().any(|c| c.is_control() || is_invisible(c) || "\\:*?\"<>|".contains(c)) {
        Some("it has a character that not every system takes in a name")
    } else if path.starts_with('/') || parts.clone().any(|part| ["", ".", ".."].contains(&part)) {
        Some("it leads out of the folder, or is no plain path")
    } else if parts.clone().count() > MAX_PARTS {
        Some("it is deeper than 32 folders")
    } else if parts.clone().any(|part| part.ends_with(['.', ' '])) {
        Some("a name in it ends with a dot or a space")
    } else if parts.any(is_device) {
        Some("a name in it is that of a device on Windows")
    } else {
        None
    }
}

/// Whether a character changes how the text around it looks, or cannot be seen.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_lead_elsewhere() {
        for name in ["model.onnx", "onnx/model.onnx_data", ".gitattributes", "a b/ü.json"] {
            assert!(is_safe(name), "{name}");
            assert_eq!(fault(name), None, "{name}");
        }
        for name in ["", "/etc/passwd", "../x", "a/../x", "a//b", "a/.", "c:x", "a\\b", "a\nb", "a/b./c", "./a"] {
            assert!(!is_safe(name), "{name}");
            assert!(fault(name).is_some(), "{name}");
        }
    }

    #[test]
    fn refuses_paths_that_some_systems_do_not_take() {
        for path in ["con", "a/NUL.txt", "lpt1.onnx", "com9", "a ", "a /b", "a\u{202e}b", "a?", "a\u{feff}"] {
            assert!(fault(path).is_some(), "{path}");
        }
        for path in ["console", "com", "com10", "lpt.txt", "auxiliary/x"] {
            assert_eq!(fault(path), None, "{path}");
        }
        assert!(fault(&"a/".repeat(32)).is_some());
        assert!(fault(&format!("{}b", "a/".repeat(32))).is_some());
        assert_eq!(fault(&format!("{}b", "a/".repeat(31))), None);
        assert!(fault(&"a".repeat(256)).is_some());
        assert_eq!(fault(&"a".repeat(255)), None);
        assert!(fault(&format!("{0}/{0}/{0}", "a".repeat(200))).is_some());
    }
}
