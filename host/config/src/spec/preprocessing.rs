//! `preprocessing:`: the shorthand for steps before the model, and its expansion.

use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::super::diagnostic::Diagnostic;
use super::super::node::{Content, Node, Spanned};
use super::super::source_file::Span;
use super::step_spec::{Action, StepSpec};
use super::wasm::WasmSpec;

/// The shorthand as written; only its schema is used, the steps are made from the nodes.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Preprocessing")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct RawPreprocessing {
    /// The path of a `tokenizer.json`, or the name of a tokenizer
    #[schemars(length(min = 1, max = 1024))]
    tokenizer: Option<String>,
    /// How many tokens are kept
    #[schemars(range(min = 1, max = 10_000_000))]
    max_length: Option<u64>,
    /// Whether to fill texts up with padding: to `max_length`, or to the longest text of a batch
    #[schemars(default, schema_with = "padding")]
    padding: Option<bool>,
    /// Whether to cut what is longer than `max_length`
    truncation: Option<bool>,
    /// The size to resize to, such as `[224, 224]`
    #[schemars(default, schema_with = "resize")]
    resize: Option<Vec<u64>>,
    /// The method of normalizing an image, such as `imagenet`, or the options of the step `normalize`
    #[schemars(default, schema_with = "normalize")]
    normalize: Option<String>,
    /// Whether `resize` keeps the proportions and fills up the rest
    letterbox: Option<bool>,
    /// Samples per second
    #[schemars(range(min = 1, max = 10_000_000))]
    sample_rate: Option<u64>,
    /// Mel bands of the spectrogram
    #[schemars(range(min = 1, max = 100_000))]
    n_mels: Option<u64>,
    /// Samples of one window of the spectrogram
    #[schemars(range(min = 1, max = 10_000_000))]
    n_fft: Option<u64>,
    /// Samples from one window to the next
    #[schemars(range(min = 1, max = 10_000_000))]
    hop_length: Option<u64>,
    /// The path of a component (`.wasm`) that does what the rest cannot
    #[schemars(length(min = 1, max = 1024))]
    custom: Option<String>,
}

fn padding(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "boolean" }, { "enum": ["max_length", "longest"] }, { "type": "null" }] })
}

fn resize(_: &mut SchemaGenerator) -> Schema {
    let size = serde_json::json!({ "type": "integer", "minimum": 1, "maximum": 100_000 });
    json_schema!({ "anyOf": [{ "type": "array", "items": size, "minItems": 2, "maxItems": 2 }, size, { "type": "null" }] })
}

fn normalize(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string", "minLength": 1, "maxLength": 64 }, { "type": "object" }, { "type": "null" }] })
}

const TEXT: [&str; 4] = ["tokenizer", "max_length", "padding", "truncation"];
const IMAGE: [&str; 3] = ["resize", "normalize", "letterbox"];
const AUDIO: [&str; 4] = ["sample_rate", "n_mels", "n_fft", "hop_length"];

type Field<'n> = (&'n Spanned<Arc<str>>, &'n Node);

/// The field, if it is written and not `null`.
fn field<'n>(node: &'n Node, name: &str) -> Option<Field<'n>> {
    node.entry(name).filter(|(_, value)| !value.is_null())
}

fn switched_on(node: &Node, name: &str) -> bool {
    field(node, name).is_some_and(|(_, value)| value.content == Content::Bool(true))
}

/// Combinations that cannot become steps.
pub(super) fn check(node: &Node, diagnostics: &mut Vec<Diagnostic>) {
    let first = |names: &[&str]| {
        names.iter().filter_map(|name| field(node, name)).map(|(key, _)| key).min_by_key(|key| key.span.start)
    };
    let kinds: Vec<_> = [("text", first(&TEXT)), ("images", first(&IMAGE)), ("audio", first(&AUDIO))]
        .into_iter()
        .filter_map(|(kind, key)| Some((kind, key?)))
        .collect();
    if let [(one, _), (other, key), ..] = kinds.as_slice() {
        let message = format!("`preprocessing` handles {one} or {other}, not both");
        let hint = "write the steps under `pipeline:` instead, and connect them with `in:` and `out:`";
        diagnostics.push(Diagnostic::new("preprocessing", key.span.clone(), message).hint(hint));
    }
    let mut needs = |name: &str, other: &str, because: &str| {
        if let (Some((key, _)), None) = (field(node, name), field(node, other)) {
            let message = format!("`{name}` needs `{other}` beside it");
            diagnostics.push(Diagnostic::new("preprocessing", key.span.clone(), message).hint(because));
        }
    };
    for name in ["max_length", "padding", "truncation"] {
        needs(name, "tokenizer", "it says how a text is tokenized: add `tokenizer: ./tokenizer.json`");
    }
    if switched_on(node, "letterbox") {
        needs(
            "letterbox",
            "resize",
            "it keeps the proportions while resizing: add the size, such as `resize: [640, 640]`",
        );
    }
    if let Some((_, custom)) = field(node, "custom") {
        let is_component =
            |path: &str| std::path::Path::new(path).extension().is_some_and(|end| end.eq_ignore_ascii_case("wasm"));
        if let Some(path) = custom.as_str().filter(|path| !is_component(path)) {
            let message = format!("`custom` is the path of a component (`.wasm`), but `{path}` is not");
            let hint = "compile the code into a component and write its path: `custom: ./step.wasm`";
            diagnostics.push(Diagnostic::new("preprocessing", custom.span.clone(), message).hint(hint));
        }
    }
}

/// The steps that the shorthand stands for, in the order they run. Each stands at the field it is for.
pub(super) fn desugar(node: &Node) -> Vec<StepSpec> {
    let mut steps = Vec::new();
    let list = |names: &[(&str, &str)]| -> Vec<(Spanned<Arc<str>>, Node)> {
        let written = |(written, meant): &(&str, &str)| {
            let (key, value) = field(node, written)?;
            Some((Spanned::new(Arc::from(*meant), key.span.clone()), value.clone()))
        };
        names.iter().filter_map(written).collect()
    };

    if let Some((key, tokenizer)) = field(node, "tokenizer") {
        let mut options = vec![(Spanned::new(Arc::from("tokenizer"), key.span.clone()), tokenizer.clone())];
        options.extend(list(&[("max_length", "max_length"), ("truncation", "truncation")]));
        if let Some((key, padding)) = field(node, "padding") {
            // As in Hugging Face's tokenizers: `true` is the longest text of the batch.
            let mode = match &padding.content {
                Content::Bool(true) => Node::text("longest", padding.span.clone()),
                Content::Bool(false) => Node::text("none", padding.span.clone()),
                _ => padding.clone(),
            };
            options.push((Spanned::new(Arc::from("padding"), key.span.clone()), mode));
        }
        steps.push(built_in("tokenize", &key.span, options));
    }

    let image = IMAGE.iter().find_map(|name| field(node, name));
    if let Some((key, _)) = image {
        steps.push(built_in("decode-image", &key.span, Vec::new()));
    }
    if let Some((key, size)) = field(node, "resize") {
        let tag = if switched_on(node, "letterbox") { "letterbox" } else { "resize" };
        let size = match size.items() {
            Some(_) => size.clone(),
            None => Node::new(Content::Sequence(vec![size.clone(), size.clone()]), size.span.clone()),
        };
        steps.push(built_in(tag, &key.span, vec![(Spanned::new(Arc::from("size"), key.span.clone()), size)]));
    }
    if let Some((key, how)) = field(node, "normalize") {
        let options = match how.entries() {
            Some(options) => options.to_vec(),
            None => vec![(Spanned::new(Arc::from("method"), key.span.clone()), how.clone())],
        };
        steps.push(built_in("normalize", &key.span, options));
    }

    let audio = AUDIO.iter().find_map(|name| field(node, name));
    if let Some((key, _)) = audio {
        steps.push(built_in("decode-audio", &key.span, Vec::new()));
    }
    if let Some((key, _)) = field(node, "sample_rate") {
        steps.push(built_in("resample", &key.span, list(&[("sample_rate", "to")])));
    }
    let mel = ["n_mels", "n_fft", "hop_length"];
    if let Some((key, _)) = mel.iter().find_map(|name| field(node, name)) {
        steps.push(built_in("mel-spectrogram", &key.span, list(&mel.map(|name| (name, name)))));
    }

    if let Some((key, path)) = field(node, "custom") {
        let component = Spanned::new(path.as_str().unwrap_or_default().to_owned(), path.span.clone());
        steps.push(step("wasm", &key.span, Action::Wasm(Box::new(WasmSpec::at(component)))));
    }
    steps
}

fn built_in(tag: &str, span: &Span, options: Vec<(Spanned<Arc<str>>, Node)>) -> StepSpec {
    step(tag, span, Action::BuiltIn(Node::new(Content::Mapping(options), span.clone())))
}

fn step(tag: &str, span: &Span, action: Action) -> StepSpec {
    StepSpec {
        tag: Spanned::new(tag.to_owned(), span.clone()),
        action,
        input: None,
        output: None,
        when: None,
        span: span.clone(),
    }
}
