//! Files that are often found in the place of another one, by their first bytes.

use std::path::Path;

use crate::platform::files::read_head;
use crate::platform::image_type::media_file;

/// Bytes that are looked at.
const HEAD: usize = 1024;

const EXPORT: &str = "export it to ONNX, for example with `optimum-cli export onnx --model NAME FOLDER`";

/// What a file with these first bytes is, and how to get the one that was meant; `None` for anything else.
///
/// ```
/// let what = gpux_core::foreign_file(b"version https://git-lfs.github.com/spec/v1\n").unwrap();
/// assert_eq!(what, "it is a pointer of Git LFS and not the file itself, which `git lfs pull` fetches");
/// ```
pub fn foreign_file(head: &[u8]) -> Option<String> {
    let head = head.get(..HEAD).unwrap_or(head);
    let text = String::from_utf8_lossy(head.trim_ascii_start()).to_ascii_lowercase();
    if text.starts_with("version https://git-lfs.github.com/") {
        return Some("it is a pointer of Git LFS and not the file itself, which `git lfs pull` fetches".to_owned());
    }
    if text.starts_with("<!doctype html") || text.starts_with("<html") {
        let page = "it is an HTML page, as a server sends in place of a file that is moved or needs a login";
        return Some(format!("{page}: download it again, and look at what comes"));
    }
    let torch = || {
        let export = "`torch.onnx.export(model, (example,), \"model.onnx\", dynamo=True)` in Python makes an ONNX file";
        Some(format!("it is a PyTorch checkpoint (or another pickle): {export} of the model"))
    };
    match head {
        [b'P', b'K', 3, 4, ..] if text.contains("data.pkl") || text.contains("/data/") => torch(),
        [0x80, 2..=5, ..] => torch(),
        [b'P', b'K', 3, 4, ..] | [0x1f, 0x8b, ..] => Some("it is an archive (zip or gzip): unpack it first".to_owned()),
        [b'G', b'G', b'U', b'F', ..] => Some(format!("it is a GGUF file, for llama.cpp: {EXPORT}")),
        [0x89, b'H', b'D', b'F', ..] => Some(
            "it is an HDF5 file, as Keras writes: `model.export(\"model.onnx\", format=\"onnx\")` makes ONNX"
                .to_owned(),
        ),
        [_, _, _, _, b'T', b'F', b'L', b'3', ..] => Some(
            "it is a TensorFlow Lite file: `python3 -m tf2onnx.convert --tflite FILE --output model.onnx`".to_owned(),
        ),
        [_, _, _, _, b'O', b'R', b'T', b'M', ..] => Some(
            "it is in ORT format, which ONNX Runtime makes of an ONNX file for itself: use that .onnx file".to_owned(),
        ),
        // The length of the header, and the header.
        [_, _, _, _, _, 0, 0, 0, b'{', b'"', ..] => {
            Some(format!("it is a safetensors file, which holds the weights without the model: {EXPORT}"))
        }
        _ => None,
    }
}

/// [`foreign_file`], and images and sounds: what a file is that should be a model or a gpux.yml.
pub fn what_instead(head: &[u8]) -> Option<String> {
    foreign_file(head).or_else(|| Some(format!("it is {}", media_file(head)?)))
}

/// [`what_instead`] for the file at `path`.
pub fn what_instead_at(path: &Path) -> Option<String> {
    what_instead(&read_head(path, HEAD)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_a_file_is() {
        let of = |head: &[u8]| foreign_file(head).unwrap_or_default();
        assert!(of(b"\n <!DOCTYPE HTML><title>").contains("HTML page"));
        assert!(of(b"PK\x03\x04\0\0archive/data.pkl").contains("torch.onnx.export"));
        assert!(of(b"\x80\x02}q\0").contains("torch.onnx.export"));
        assert!(of(b"PK\x03\x04\0\0readme").contains("unpack"));
        assert!(of(b"\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":").contains("safetensors"));
        assert!(of(b"\x1c\0\0\0TFL3").contains("Lite"));
        assert!(of(b"\x24\0\0\0ORTM\0\0").contains("ORT format"));
        for ours in [&b"\x08\x08\x12\x07pytorch"[..], b"\0asm\x0d\0\x01\0", b"{\"version\": \"1.0\"}", b"\x89PNG", b""]
        {
            assert_eq!(foreign_file(ours), None);
        }
        assert_eq!(what_instead(b"\x89PNG\r\n").as_deref(), Some("it is a PNG image"));
        assert_eq!(what_instead(b"RIFF\0\0\0\0WAVEfmt ").as_deref(), Some("it is a WAV file"));
        for text in [&b"BM: a name\n"[..], b"name: IDs\n", b"\xff\xfe", b""] {
            assert_eq!(what_instead(text), None);
        }
    }
}
