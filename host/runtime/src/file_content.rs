//! What a file is to gpux, by its name and its first bytes.

use std::path::Path;

use gpux_core::files::read_head;

/// Bytes that are looked at.
const HEAD: usize = 4096;
/// Endings of files that hold input, also where they are text.
const DATA_EXTENSIONS: [&str; 8] = ["csv", "json", "jsonl", "md", "ndjson", "pb", "tsv", "txt"];

/// What a file is to gpux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// a gpux.yml, whatever its name
    Pipeline,
    /// an ONNX model
    Model,
    /// a WebAssembly component
    Component,
    /// an archive, which may be a bundle
    Archive,
    /// something that a pipeline may run on: a picture, a sound, JSON
    Data,
}

impl FileContent {
    /// The kind of the file at `path`; `None` if there is none that can be read.
    pub fn detect(path: &Path) -> Option<Self> {
        let head = read_head(path, HEAD)?;
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let inner = path.file_stem().and_then(|stem| Path::new(stem).extension());
        Some(match extension.as_str() {
            // A model in ORT format is refused by name.
            "onnx" | "ort" => Self::Model,
            "yml" | "yaml" => Self::Pipeline,
            "wasm" => Self::Component,
            // Reading it says what else it is.
            "tar" | "tgz" => Self::Archive,
            _ if inner == Some("tar".as_ref()) => Self::Archive,
            "json" if is_json_pipeline(path) => Self::Pipeline,
            _ if head.starts_with(b"\0asm") => Self::Component,
            _ if is_onnx(&head) => Self::Model,
            _ if head.get(257..262) == Some(b"ustar") => Self::Archive,
            extension if DATA_EXTENSIONS.contains(&extension) || !is_text(&head) => Self::Data,
            _ => Self::Pipeline,
        })
    }
}

/// Whether this is a gpux.yml in JSON, which YAML includes: it says what runs, and a request has a name and a version by
/// chance alone.
fn is_json_pipeline(path: &Path) -> bool {
    /// The longest gpux.yml, in bytes.
    const LONGEST: usize = 1 << 20;
    let Some(text) = read_head(path, LONGEST) else { return false };
    let Ok(keys) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&text) else { return false };
    let has = |key: &str| keys.contains_key(key);
    has("name") && has("version") && ["model", "models", "pipeline"].into_iter().any(has)
}

/// Whether these are the first bytes of a `ModelProto`: its version, and then a field that such a message has. In a
/// `TensorProto`, the number of the first field is a size, and a second size or the type follows.
/// <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>
fn is_onnx(head: &[u8]) -> bool {
    /// Keys of `producer_name`, `producer_version`, `domain`, `model_version`, `doc_string`, `graph` and
    /// `opset_import`.
    const KEYS: [u8; 7] = [0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42];
    matches!(head, [0x08, 1..=0x7f, key, ..] if KEYS.contains(key))
}

/// Whether these are the first bytes of UTF-8 text without control characters.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The last character may be cut off.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.contains(|c: char| c.is_control() && !c.is_whitespace() && c != '\u{1b}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_files_apart() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            FileContent::detect(&path).unwrap()
        };
        let model = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/digits.onnx")).unwrap();
        assert_eq!(kind("digits", &model), FileContent::Model);
        assert_eq!(kind("empty.ONNX", b""), FileContent::Model);
        assert_eq!(kind("step", b"\0asm\x0d\0\x01\0"), FileContent::Component);
        let archive = [&b"oci-layout"[..], &[0; 247], b"ustar\0"].concat();
        assert_eq!(kind("digits-1.0.0.tar", &archive), FileContent::Archive);
        assert_eq!(kind("digits-1.0.0.tar.zst", b"\x28\xb5\x2f\xfd"), FileContent::Archive);
        assert_eq!(kind("photo.jpg", b"\xff\xd8\xff\xe0"), FileContent::Data);
        assert_eq!(kind("array.npy", b"\x93NUMPY"), FileContent::Data);
        assert_eq!(kind("tensor", &[0x08, 1, 0x08, 3, 0x10, 1]), FileContent::Data);
        assert_eq!(kind("words.TXT", b"some words"), FileContent::Data);
        assert_eq!(kind("input.json", b"{}"), FileContent::Data);
        assert_eq!(kind("mine.json", br#"{"name": "a", "version": 1, "pipeline": []}"#), FileContent::Pipeline);
        assert_eq!(kind("GPUXfile", b"name: x"), FileContent::Pipeline);
        assert_eq!(kind("latin.yml", b"name: \xe9"), FileContent::Pipeline, "its mistake is shown");
        let cut = ["a".repeat(HEAD - 1).as_bytes(), "é".as_bytes()].concat();
        assert_eq!(kind("other.conf", &cut), FileContent::Pipeline);
        assert_eq!(FileContent::detect(folder.path()), None);
        assert_eq!(FileContent::detect(&folder.path().join("none")), None);
    }
}
