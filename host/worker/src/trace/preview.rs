//! Previews of values, limited to a few kilobytes.

use std::borrow::Cow;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::statistics::Statistics;
use gpux_core::{Tensor, Value, image_type, to_json};

/// What a value looks like.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Preview {
    /// its name in the pipeline
    name: String,
    /// what it is, in words
    kind: String,
    /// its size in bytes
    bytes: usize,
    /// the element type of a tensor
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<Cow<'static, str>>,
    /// the dimensions of a tensor
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<usize>>,
    /// the order of the axes of an image
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<Cow<'static, str>>,
    /// what the channels of an image hold
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<Cow<'static, str>>,
    /// samples a second, of sound
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_rate: Option<u32>,
    /// the elements of a small tensor, as nested lists
    #[serde(skip_serializing_if = "Option::is_none")]
    numbers: Option<Json>,
    /// what the numbers of a tensor are like
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<Statistics>,
    /// a small picture of an image, as a `data:` URL
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// the beginning of a text, or of JSON that is too long to be shown
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// JSON that is short
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Json>,
    /// whether `text` is only the beginning
    #[serde(default, skip_serializing_if = "is_false")]
    shortened: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Bytes that further previews of one request may take.
#[derive(Clone, Debug)]
pub(crate) struct PreviewBudget(usize);

impl Default for PreviewBudget {
    fn default() -> Self {
        Self(1 << 20)
    }
}

impl PreviewBudget {
    /// Takes this many bytes from the budget; `false` if it has fewer.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        self.0 -= if fits { bytes } else { 0 };
        fits
    }
}

/// The most elements of a tensor that are listed.
const NUMBERS: usize = 64;

/// The most bytes of a text, or of JSON.
const TEXT: usize = 2000;

/// Pixels of an image's longer side.
const SIDE: usize = 160;

/// The largest encoded image that is included unchanged, in bytes.
const PICTURE: usize = 256 << 10;

/// Estimated bytes of a preview's other fields.
const WORDS: usize = 400;

impl Preview {
    pub(crate) fn new(name: &str, value: &Value, room: &mut PreviewBudget) -> Self {
        let mut preview = Self {
            name: name.to_owned(),
            kind: value.kind().to_string(),
            bytes: value.byte_len(),
            element: None,
            shape: None,
            layout: None,
            color: None,
            sample_rate: None,
            numbers: None,
            statistics: None,
            image: None,
            text: None,
            json: None,
            shortened: false,
        };
        if !room.take(WORDS) {
            return preview;
        }
        match value {
            Value::Tensor(tensor) => preview.tensor(tensor, room),
            Value::Text(text) => preview.cut(text.as_bytes(), room),
            Value::Bytes(bytes) => {
                preview.image = image_type(bytes)
                    .filter(|_| bytes.len() <= PICTURE && room.take(bytes.len() * 4 / 3))
                    .map(|media_type| data_url(media_type, bytes));
            }
            Value::Json(json) => preview.json(json, room),
        }
        preview
    }

    fn tensor(&mut self, tensor: &Tensor, room: &mut PreviewBudget) {
        self.element = Some(tensor.element().name().into());
        self.shape = Some(tensor.shape().to_vec());
        self.layout = tensor.metadata.layout.map(|layout| layout.name().into());
        self.color = tensor.metadata.color.map(|color| color.name().into());
        self.sample_rate = tensor.metadata.sample_rate;
        self.statistics = Statistics::from_tensor(tensor);
        let short = tensor.len() <= NUMBERS && tensor.byte_len() <= TEXT;
        // A number takes about ten bytes of JSON.
        if short && room.take(TEXT) {
            self.numbers = Some(to_json(&Value::from(tensor.clone())));
        }
        let picture = gpux_steps::preview(tensor, SIDE).filter(|png| room.take(png.len() * 4 / 3));
        self.image = picture.map(|png| data_url("image/png", &png));
    }

    fn json(&mut self, json: &Json, room: &mut PreviewBudget) {
        let mut beginning = PrefixWriter(Vec::new());
        // Fails if the document is longer than the limit.
        if serde_json::to_writer(&mut beginning, json).is_err() {
            self.cut(&beginning.0, room);
            self.shortened = true;
        } else if room.take(beginning.0.len()) {
            self.json = Some(json.clone());
        }
    }

    fn cut(&mut self, text: &[u8], room: &mut PreviewBudget) {
        let kept = &text[..text.len().min(TEXT)];
        if room.take(kept.len()) {
            self.shortened = kept.len() < text.len();
            // Omits a character that was cut in the middle.
            let end = kept.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
            self.text = Some(String::from_utf8_lossy(&kept[..end]).into_owned());
        }
    }
}

fn data_url(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", BASE64.encode(bytes))
}

/// Keeps the first bytes, and fails at the limit.
struct PrefixWriter(Vec<u8>);

impl Write for PrefixWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fitting = bytes.len().min(TEXT - self.0.len());
        self.0.extend_from_slice(&bytes[..fitting]);
        if fitting < bytes.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(fitting) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use gpux_core::{Layout, Metadata};

    fn shown(value: impl Into<Value>) -> Json {
        serde_json::to_value(Preview::new("it", &value.into(), &mut PreviewBudget::default())).unwrap()
    }

    #[test]
    fn previews_truncate_long_values() {
        assert_eq!(shown("grüße")["text"], "grüße");
        let long = shown("ü".repeat(TEXT));
        assert_eq!((long["text"].as_str().unwrap().len(), &long["shortened"]), (TEXT, &json!(true)));
        let odd = shown(format!("a{}", "ü".repeat(TEXT)));
        assert_eq!(odd["text"].as_str().unwrap().len(), TEXT - 1);
        assert_eq!(shown(json!({"a": [1]}))["json"], json!({"a": [1]}));
        let list = shown(json!(vec!["ü"; TEXT]));
        assert_eq!((&list["json"], &list["shortened"]), (&Json::Null, &json!(true)));
        assert!(list["text"].as_str().unwrap().starts_with("[\"ü\",\"ü\""));
        assert_eq!(shown(Tensor::new([2], vec![1_u8, 2]).unwrap())["numbers"], json!([1, 2]));
        let strings = shown(Tensor::new([1], vec!["x".repeat(TEXT + 1)]).unwrap());
        assert_eq!((&strings["numbers"], &strings["statistics"]), (&Json::Null, &Json::Null));
    }

    #[test]
    fn previews_images() {
        let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
        let image = Tensor::new([500, 400, 3], vec![9_u8; 600_000]).unwrap().with_metadata(metadata);
        let image = shown(image);
        assert!(image["image"].as_str().unwrap().starts_with("data:image/png;base64,"));
        assert_eq!((&image["layout"], &image["numbers"]), (&json!("HWC"), &Json::Null));
        assert_eq!(image["statistics"]["mean"], 9.0);
        assert!(shown(b"GIF89a".to_vec())["image"].as_str().unwrap().starts_with("data:image/gif"));
        assert_eq!(shown(b"no picture".to_vec())["image"], Json::Null);
    }

    #[test]
    fn previews_stay_within_their_budget() {
        let mut room = PreviewBudget::default();
        let text = Value::from("x".repeat(TEXT));
        let sizes = (0..2000).map(|_| serde_json::to_vec(&Preview::new("x", &text, &mut room)).unwrap().len());
        let whole: usize = sizes.sum();
        assert!(whole < 2 << 20, "{whole}");
    }
}
