//! `inputs:` and `outputs:`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use super::super::deserialize::read;
use super::super::node::{Node, Spanned};

/// The names of tensor elements with aliases: (written, canonical).
const ELEMENTS: [(&str, &str); 21] = [
    ("bool", "bool"),
    ("uint8", "uint8"),
    ("int8", "int8"),
    ("uint16", "uint16"),
    ("int16", "int16"),
    ("uint32", "uint32"),
    ("int32", "int32"),
    ("uint64", "uint64"),
    ("int64", "int64"),
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("float32", "float32"),
    ("float64", "float64"),
    ("string", "string"),
    ("float", "float32"),
    ("double", "float64"),
    ("half", "float16"),
    ("int", "int32"),
    ("long", "int64"),
    ("str", "string"),
    ("boolean", "bool"),
];

/// The type of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortType {
    /// a tensor of these elements, under ONNX's name for them (`float32`), aliases resolved
    Tensor(&'static str),
    /// an encoded image
    Image,
    /// an encoded sound
    Audio,
    /// UTF-8 text
    Text,
    /// any bytes
    Bytes,
    /// structured data
    Json,
}

impl PortType {
    const OTHERS: [Self; 5] = [Self::Image, Self::Audio, Self::Text, Self::Bytes, Self::Json];

    /// The name in gpux.yml.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tensor(element) => element,
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Json => "json",
        }
    }
}

/// The text is not the name of a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a type")]
pub struct UnknownPortType(String);

impl FromStr for PortType {
    type Err = UnknownPortType;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let element = ELEMENTS.iter().find(|(written, _)| *written == name).map(|(_, meant)| Self::Tensor(meant));
        let other = || Self::OTHERS.into_iter().find(|other| other.name() == name);
        element.or_else(other).ok_or_else(|| UnknownPortType(name.to_owned()))
    }
}

impl fmt::Display for PortType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for PortType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for PortType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        name.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for PortType {
    fn schema_name() -> Cow<'static, str> {
        "Type".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let others = Self::OTHERS.iter().map(|other| other.name());
        let names: Vec<_> = others.chain(ELEMENTS.iter().map(|(name, _)| *name)).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

/// One dimension of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// always this many
    Fixed(u64),
    /// any number; written `-1` or `null`
    Dynamic,
    /// any number, the same wherever the name stands
    Named(String),
}

impl Serialize for Dimension {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(size) => serializer.serialize_u64(*size),
            Self::Dynamic => serializer.serialize_i64(-1),
            Self::Named(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Dimension {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimensionVisitor;
        impl Visitor<'_> for DimensionVisitor {
            type Value = Dimension;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dimension")
            }
            fn visit_u64<E: de::Error>(self, size: u64) -> Result<Dimension, E> {
                Ok(Dimension::Fixed(size))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Dimension, E> {
                Ok(Dimension::Dynamic)
            }
            fn visit_unit<E: de::Error>(self) -> Result<Dimension, E> {
                Ok(Dimension::Dynamic)
            }
            fn visit_f64<E: de::Error>(self, size: f64) -> Result<Dimension, E> {
                Ok(if size < 0.0 { Dimension::Dynamic } else { Dimension::Fixed(size as u64) })
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Dimension, E> {
                Ok(Dimension::Named(name.to_owned()))
            }
        }
        deserializer.deserialize_any(DimensionVisitor)
    }
}

impl JsonSchema for Dimension {
    fn schema_name() -> Cow<'static, str> {
        "Dimension".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let about = "A size of at least 1, a name for a size that varies, or -1 for any size";
        json_schema!({ "description": about, "anyOf": [
            { "description": about, "type": "integer", "minimum": 1 },
            { "description": about, "type": "integer", "const": -1 },
            { "description": about, "type": "string", "minLength": 1, "maxLength": 64 },
            { "type": "null" },
        ] })
    }
}

/// The names of a model's classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// the names, in the order of the classes
    List(Vec<String>),
    /// a file with a name a line, relative to gpux.yml
    File(Spanned<String>),
    /// a text in a model's metadata
    Metadata {
        /// the model's name; `None`: the only one
        model: Option<String>,
        /// the key
        key: Spanned<String>,
    },
}

/// An input of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// its name
    pub name: Spanned<String>,
    /// what it is
    pub kind: Spanned<PortType>,
    /// its dimensions; `None`: not said
    pub shape: Option<Spanned<Vec<Dimension>>>,
    /// whether a request must give it; never, if it has a default
    pub required: bool,
    /// for people
    pub description: Option<String>,
    /// what it is when a request leaves it out
    pub default: Option<Spanned<serde_json::Value>>,
    /// the columns of a table that are its elements, in their order
    pub columns: Option<Spanned<Vec<String>>>,
    /// whether a table may have columns that no input takes
    pub ignores_extra_columns: bool,
}

/// An output of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// its name
    pub name: Spanned<String>,
    /// what it is
    pub kind: Spanned<PortType>,
    /// its dimensions; `None`: not said
    pub shape: Option<Spanned<Vec<Dimension>>>,
    /// the names of its classes
    pub labels: Option<Labels>,
    /// for people
    pub description: Option<String>,
}

/// An input as written, without its name.
#[derive(serde::Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct RawInput {
    /// What the input is
    #[serde(rename = "type")]
    kind: Spanned<PortType>,
    /// Its dimensions: a number, a name, or -1 for each
    #[serde(default)]
    shape: Option<Spanned<Vec<Dimension>>>,
    /// Whether a request must give it
    #[serde(default)]
    required: Option<bool>,
    /// What it is, for people
    #[serde(default)]
    description: Option<String>,
    /// Its value when a request leaves it out
    #[serde(default)]
    default: Option<Spanned<serde_json::Value>>,
    /// The columns of a table (CSV) that are its elements, in their order
    #[serde(default)]
    #[schemars(schema_with = "columns_schema")]
    columns: Option<Spanned<Vec<String>>>,
    /// What becomes of a table's columns that no input takes: `error`, or `ignore`
    #[serde(default)]
    extra: Option<ExtraColumns>,
}

/// Columns of a table that no input takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ExtraColumns {
    Error,
    Ignore,
}

fn columns_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["array", "null"],
        "items": { "type": ["string", "number", "boolean"] },
        "minItems": 1,
        "maxItems": 10_000,
    })
}

/// An output as written, without its name.
#[derive(serde::Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct RawOutput {
    /// What the output is
    #[serde(rename = "type")]
    kind: Spanned<PortType>,
    /// Its dimensions: a number, a name, or -1 for each
    #[serde(default)]
    shape: Option<Spanned<Vec<Dimension>>>,
    /// The names of its classes: a list, the path of a file with one a line, or `{ model: NAME, key: KEY }`, a key of a
    /// model's metadata
    #[serde(default)]
    #[schemars(schema_with = "labels_schema")]
    labels: Option<Labels>,
    /// What it is, for people
    #[serde(default)]
    description: Option<String>,
}

fn labels_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["array", "string", "object", "null"],
        "items": { "type": ["string", "number", "boolean"] },
        "maxItems": 10_000,
        "minLength": 1,
        "properties": {
            "model": { "description": "The name of the model. Default: the only one.", "type": "string" },
            "key": { "description": "The key in a model's metadata that holds the names.", "type": "string" },
        },
        "required": ["key"],
        "additionalProperties": false,
    })
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;
        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = Labels;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }
            fn visit_str<E: de::Error>(self, path: &str) -> Result<Labels, E> {
                Ok(Labels::File(Spanned::new(path.to_owned(), 0..0)))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Labels, A::Error> {
                let mut labels = Vec::new();
                while let Some(label) = items.next_element()? {
                    labels.push(label);
                }
                Ok(Labels::List(labels))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Labels, A::Error> {
                let (mut model, mut key) = (None, None);
                while let Some(name) = entries.next_key::<String>()? {
                    let value = entries.next_value()?;
                    *if name == "model" { &mut model } else { &mut key } = Some(value);
                }
                let key = key.ok_or_else(|| de::Error::missing_field("key"))?;
                Ok(Labels::Metadata { model, key: Spanned::new(key, 0..0) })
            }
        }
        deserializer.deserialize_any(LabelsVisitor)
    }
}

impl Labels {
    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::List(labels) => serde_json::json!(labels),
            Self::File(path) => serde_json::json!(path),
            Self::Metadata { model: None, key } => serde_json::json!({ "key": key }),
            Self::Metadata { model: Some(model), key } => serde_json::json!({ "model": model, "key": key }),
        }
    }
}

/// The entries of `inputs` or `outputs`: a mapping by name, or a list of mappings with a `name`.
pub(super) fn entries(node: &Node) -> Vec<(Spanned<String>, &Node)> {
    if let Some(entries) = node.entries() {
        let named = entries.iter().map(|(key, node)| (Spanned::new(key.value.to_string(), key.span.clone()), node));
        return named.collect();
    }
    let name = |item: &Node| {
        let name = item.get("name")?;
        Some(Spanned::new(read::<String>(name).ok()?, name.span.clone()))
    };
    node.items().unwrap_or_default().iter().filter_map(|item| Some((name(item)?, item))).collect()
}

fn type_only(node: &Node) -> Option<Result<Spanned<PortType>, de::value::Error>> {
    node.as_str().map(|_| read(node))
}

impl InputSpec {
    pub(super) fn read(name: Spanned<String>, node: &Node) -> Result<Self, de::value::Error> {
        if let Some(kind) = type_only(node) {
            return Ok(Self {
                name,
                kind: kind?,
                shape: None,
                required: true,
                description: None,
                default: None,
                columns: None,
                ignores_extra_columns: false,
            });
        }
        let RawInput { kind, shape, required, description, default, columns, extra } = read(node)?;
        let required = required.unwrap_or(true) && default.is_none();
        let ignores_extra_columns = extra == Some(ExtraColumns::Ignore);
        Ok(Self { name, kind, shape, required, description, default, columns, ignores_extra_columns })
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({ "type": self.kind, "required": self.required });
        super::fields::put(&mut json, "shape", self.shape.as_ref());
        super::fields::put(&mut json, "description", self.description.as_ref());
        super::fields::put(&mut json, "default", self.default.as_ref());
        super::fields::put(&mut json, "columns", self.columns.as_ref());
        super::fields::put(&mut json, "extra", self.ignores_extra_columns.then_some("ignore").as_ref());
        json
    }
}

impl OutputSpec {
    pub(super) fn read(name: Spanned<String>, node: &Node) -> Result<Self, de::value::Error> {
        if let Some(kind) = type_only(node) {
            return Ok(Self { name, kind: kind?, shape: None, labels: None, description: None });
        }
        let RawOutput { kind, shape, mut labels, description } = read(node)?;
        if let (Some(Labels::File(text) | Labels::Metadata { key: text, .. }), Some(written)) =
            (&mut labels, node.get("labels"))
        {
            text.span = written.span.clone();
        }
        Ok(Self { name, kind, shape, labels, description })
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({ "type": self.kind });
        super::fields::put(&mut json, "shape", self.shape.as_ref());
        super::fields::put(&mut json, "labels", self.labels.as_ref().map(Labels::to_json).as_ref());
        super::fields::put(&mut json, "description", self.description.as_ref());
        json
    }
}
