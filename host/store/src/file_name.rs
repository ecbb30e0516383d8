//! Names of files in a repository, which become paths.

/// The longest name, in bytes.
const MAX_NAME: usize = 1024;

/// Whether a name stays in the folder that it is joined to, on every system.
pub fn is_safe(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.ends_with('.');
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name.split('/').all(is_part)
        && !name.chars().any(|c| c.is_control() || matches!(c, '\\' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_lead_elsewhere() {
        for name in ["model.onnx", "onnx/model.onnx_data", ".gitattributes", "a b/ü.json"] {
            assert!(is_safe(name), "{name}");
        }
        for name in ["", "/etc/passwd", "../x", "a/../x", "a//b", "a/.", "c:x", "a\\b", "a\nb", "a/b./c", "./a"] {
            assert!(!is_safe(name), "{name}");
        }
    }
}
