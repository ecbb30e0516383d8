//! Converts `inputs:` and `outputs:` of a case to values.

use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::file::Case;
use super::metadata;
use gpux_config::{ConfigurationError, Diagnostic, Node, Spanned};
use gpux_core::{Context, ElementType, Kind, OptionOrigin, Port, ProjectFiles, TensorKind, Value, from_json, from_npy};

/// The largest file of a case, in bytes.
const MAX_FILE: u64 = 512 << 20;

/// A value that must come out.
#[derive(Clone, Debug)]
pub(crate) struct CaseValue {
    /// the output
    pub name: String,
    /// its value
    pub value: Value,
    /// whether a tensor's metadata is compared too: it is if the case states it
    pub metadata: bool,
}

/// `{ file: PATH }`: the content of a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// The file, relative to the case: `.npy` is a tensor, any other is text, JSON or bytes, as the port takes it
    file: String,
    /// Facts about the tensor
    #[serde(default)]
    metadata: Option<metadata::RawMetadata>,
}

/// `{ image: PATH }`: the pixels of an image, as the built-in step `decode-image` gives them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Image {
    /// The file, relative to the case
    image: String,
    /// What each pixel holds: `rgb`, `gray` or `rgba`
    #[serde(default)]
    channels: Option<String>,
}

/// `{ type: float32, shape: [2], data: [1, 2] }`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TensorLiteral {
    /// The element type, where the port leaves it open
    #[serde(default, rename = "type")]
    element: Option<String>,
    /// The sizes of the axes
    #[serde(default)]
    shape: Option<Vec<usize>>,
    /// The elements: a flat list, nested lists, or base64 of little-endian bytes
    data: serde_json::Value,
    /// Facts about the tensor
    #[serde(default)]
    metadata: Option<metadata::RawMetadata>,
}

/// The form of a value, by the key that only it has. `json` and `text` are for what would be taken
/// for something else.
fn literal_kind<'n>(node: &'n Node, kind: &Kind) -> Option<&'n str> {
    let entries = node.entries()?;
    let keys: Vec<_> = entries.iter().map(|(key, _)| &*key.value).collect();
    match keys.as_slice() {
        [only @ ("json" | "text")] => Some(only),
        keys if *kind != Kind::Json && keys.contains(&"data") => Some("data"),
        keys if *kind == Kind::Json && keys.iter().any(|key| !matches!(*key, "file" | "metadata")) => None,
        keys => keys.iter().find(|key| matches!(**key, "file" | "image")).copied(),
    }
}

/// Reads values with paths relative to their case.
struct ValueReader<'a> {
    folder: &'a str,
    files: ProjectFiles,
}

/// A fault, and the hint that goes with it.
struct ValueError(String, Option<String>);

impl<T: std::fmt::Display> From<T> for ValueError {
    fn from(message: T) -> Self {
        Self(message.to_string(), None)
    }
}

impl ValueReader<'_> {
    /// The value, and whether the case states its metadata.
    fn read(&self, name: &str, node: &Node, kind: &Kind) -> Result<(Value, bool), Vec<Diagnostic>> {
        let fail = |fault: ValueError| {
            let diagnostic = Diagnostic::new("value", node.span.clone(), format!("`{name}`: {}", fault.0));
            vec![match fault.1 {
                Some(hint) => diagnostic.hint(hint),
                None => diagnostic,
            }]
        };
        match literal_kind(node, kind) {
            Some("file") => {
                let file: File = checked(node, name)?;
                self.file(&file, kind).map_err(fail)
            }
            Some("image") => {
                let image: Image = checked(node, name)?;
                self.image(&image).map(|value| (value, false)).map_err(fail)
            }
            Some("data") => {
                let numbers: TensorLiteral = checked(node, name)?;
                tensor(numbers, kind).map_err(fail)
            }
            Some("json") => Ok((Value::from(node.get("json").map(Node::to_json).unwrap_or_default()), false)),
            Some("text") => {
                let text = node.get("text").and_then(Node::as_str).map(Value::from);
                text.map(|text| (text, false)).ok_or_else(|| fail(ValueError::from("`text` takes a text")))
            }
            _ => from_json(node.to_json(), kind).map(|value| (value, false)).map_err(|error| {
                let path = node.as_str().filter(|text| self.path(text).is_some());
                fail(ValueError(
                    error.to_string(),
                    path.map(|path| format!("for the content of a file, write `{{ file: {path} }}`")),
                ))
            }),
        }
    }

    fn path(&self, text: &str) -> Option<std::path::PathBuf> {
        self.files.resolve(&Path::new(self.folder).join(text)).ok()
    }

    fn bytes(&self, path: &str) -> Result<Vec<u8>, ValueError> {
        Ok(self.files.read(&Path::new(self.folder).join(path), MAX_FILE)?)
    }

    fn file(&self, file: &File, kind: &Kind) -> Result<(Value, bool), ValueError> {
        let bytes = self.bytes(&file.file)?;
        let ending = Path::new(&file.file).extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let value = match (kind, &*ending) {
            (Kind::Tensor(_) | Kind::Any, "npy") => Value::from(from_npy(&bytes)?),
            (Kind::Tensor(_), "json") => from_json(serde_json::from_slice(&bytes)?, kind)?,
            (Kind::Tensor(_), _) => {
                let why = format!("a tensor is read from `.npy` or `.json`, but this is `{}`", file.file);
                return Err(ValueError(why, Some("for the pixels of a picture, write `{ image: PATH }`".to_owned())));
            }
            (Kind::Json, _) | (Kind::Any, "json") => Value::from(serde_json::from_slice::<serde_json::Value>(&bytes)?),
            (Kind::Text, _) | (Kind::Any, "txt") => Value::from(String::from_utf8(bytes)?),
            (Kind::Bytes | Kind::Any, _) => Value::from(bytes),
        };
        with_metadata(value, file.metadata)
    }

    fn image(&self, image: &Image) -> Result<Value, ValueError> {
        let registry = gpux::builtins();
        let decode = registry.builtin("decode-image").ok_or("this gpux decodes no images")?;
        let mut options = serde_json::Map::new();
        if let Some(channels) = &image.channels {
            options.insert("channels".to_owned(), channels.as_str().into());
        }
        let step = (decode.build)(options.into(), &OptionOrigin::Component)?;
        let bytes = Value::from(self.bytes(&image.image)?);
        let decoded = step.run(vec![Some(bytes)], &mut Context::default())?;
        Ok(decoded.into_iter().next().ok_or("no image came out")?)
    }
}

/// Reads a node that fits the schema of `T`.
fn checked<T: DeserializeOwned + JsonSchema>(node: &Node, name: &str) -> Result<T, Vec<Diagnostic>> {
    let schema: Schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let faults = gpux_config::check(node, name, &schema);
    if !faults.is_empty() {
        return Err(faults);
    }
    let fail = |error| vec![Diagnostic::new("value", node.span.clone(), format!("`{name}`: {error}"))];
    serde_json::from_value(node.to_json()).map_err(fail)
}

fn tensor(numbers: TensorLiteral, kind: &Kind) -> Result<(Value, bool), ValueError> {
    let TensorLiteral { element, shape, data, metadata } = numbers;
    if let Some(element) = &element {
        element.parse::<ElementType>()?;
    }
    let kind = match kind {
        Kind::Tensor(kind) => TensorKind { layout: None, ..kind.clone() },
        _ => TensorKind { elements: gpux_core::ElementSet::ANY, shape: None, layout: None },
    };
    let mut json = serde_json::Map::from_iter([("data".to_owned(), data)]);
    json.extend(element.map(|element| ("type".to_owned(), element.into())));
    json.extend(shape.map(|shape| ("shape".to_owned(), shape.into())));
    with_metadata(from_json(json.into(), &Kind::Tensor(kind))?, metadata)
}

fn with_metadata(value: Value, metadata: Option<metadata::RawMetadata>) -> Result<(Value, bool), ValueError> {
    match (value, metadata) {
        (Value::Tensor(tensor), Some(metadata)) => Ok((Value::Tensor(tensor.with_metadata(metadata.into())), true)),
        (_, Some(_)) => Err(ValueError::from("only a tensor has `metadata`")),
        (value, None) => Ok((value, false)),
    }
}

/// The values under `key`, by the ports of those names.
fn values(case: &Case, key: &str, ports: &[Port]) -> Result<Vec<CaseValue>, Box<ConfigurationError>> {
    let parent = case.folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let reader = ValueReader { folder: &case.name, files: ProjectFiles::new(parent, false) };
    let (mut read, mut faults) = (Vec::new(), Vec::new());
    for (name, node) in case.node(key).and_then(Node::entries).unwrap_or_default() {
        let Some(port) = ports.iter().find(|port| *port.name == *name.value) else {
            faults.push(unknown_port(name, key, ports));
            continue;
        };
        match reader.read(&port.name, node, &port.kind) {
            Ok((value, metadata)) => read.push(CaseValue { name: port.name.clone(), value, metadata }),
            Err(found) => faults.extend(found),
        }
    }
    if faults.is_empty() { Ok(read) } else { Err(case.configuration_error(faults).into()) }
}

fn unknown_port(name: &Spanned<std::sync::Arc<str>>, key: &str, ports: &[Port]) -> Diagnostic {
    let what = key.trim_end_matches('s');
    let known: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
    let hint = match gpux_core::closest(&name.value, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("there is no {what}; remove it"),
        None => format!("there is {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Diagnostic::new("unknown-port", name.span.clone(), format!("there is no {what} `{}`", name.value)).hint(hint)
}

/// The input ports.
pub(crate) fn input_values(case: &Case, ports: &[Port]) -> Result<Vec<(String, Value)>, Box<ConfigurationError>> {
    Ok(values(case, "inputs", ports)?.into_iter().map(|input| (input.name, input.value)).collect())
}

/// The expected outputs.
pub(crate) fn expected_values(case: &Case, ports: &[Port]) -> Result<Vec<CaseValue>, Box<ConfigurationError>> {
    let values = values(case, "outputs", ports)?;
    // An output that only the tolerance names is a misspelled one.
    let named = case.node("tolerance").and_then(|tolerance| tolerance.get("outputs")).and_then(Node::entries);
    let is_port = |name: &str| ports.iter().any(|port| port.name == name);
    let unknown = named.into_iter().flatten().filter(|(name, _)| !is_port(&name.value));
    let faults: Vec<_> = unknown.map(|(name, _)| unknown_port(name, "outputs", ports)).collect();
    if faults.is_empty() { Ok(values) } else { Err(case.configuration_error(faults).into()) }
}
