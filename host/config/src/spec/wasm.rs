//! `- wasm: …`: a component step.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::deserialize::read;
use super::super::diagnostic::ConfigurationError;
use super::super::document::FileKind;
use super::super::node::{Content, Node, Spanned};
use super::super::typed_file::parse_as;
use gpux_core::{Size, TimeSpan};

/// A component step.
#[derive(Clone, Debug, PartialEq)]
pub struct WasmSpec {
    /// the component's file, relative to gpux.yml
    pub component: Spanned<String>,
    /// its options: a mapping, checked against what the component declares when the plan is built
    pub options: Node,
    /// what the file asks for; each holds only below the operator's ceiling
    pub limits: WasmLimits,
    /// what the file asks for; each holds only within the operator's allowance
    pub grant: WasmGrant,
    /// whether an instance serves one request or several
    pub instances: Instances,
}

/// Limits of a component step. `None` is the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WasmLimits {
    /// How long one request may compute, the built-ins it calls included
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Spanned<TimeSpan>>,
    /// How long the component may take to describe and configure itself
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_time: Option<Spanned<TimeSpan>>,
    /// How much memory the component may take, all its memories and tensors together
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Spanned<Size>>,
    /// How many bytes the values given to one request may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Spanned<Size>>,
    /// How many bytes the values of one call may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Spanned<Size>>,
    /// How many bytes one call may copy between the component and its host
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<Spanned<Size>>,
    /// How many bytes of log lines are kept from one request
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Spanned<Size>>,
    /// How many bytes the component itself may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component_size: Option<Spanned<Size>>,
    /// How much processor time compiling it may take when it is loaded
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_time: Option<Spanned<TimeSpan>>,
    /// How much memory compiling it may take
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_memory: Option<Spanned<Size>>,
    /// How many elements all its tables may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_elements: Option<Spanned<NonZeroU32>>,
    /// How many linear memories it may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memories: Option<Spanned<NonZeroU32>>,
    /// How many tables it may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<Spanned<NonZeroU32>>,
    /// How many core instances it may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Spanned<NonZeroU32>>,
    /// How many tensors it may hold at a time
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handles: Option<Spanned<NonZeroU32>>,
    /// How many built-in steps and models it may run during one request
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Spanned<NonZeroU32>>,
    /// How many values one call may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Spanned<NonZeroU32>>,
    /// How many bytes the name of a value may have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_length: Option<Spanned<NonZeroU32>>,
    /// How deep a JSON value may be nested
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 120))]
    pub json_depth: Option<Spanned<NonZeroU32>>,
}

impl WasmLimits {
    /// Reads limits outside of a gpux.yml: a text of `NAME: VALUE` lines, called `name` in
    /// diagnostics.
    pub fn parse(name: &str, text: &str) -> Result<Self, Box<ConfigurationError>> {
        let kind = FileKind { name: "list of limits", start: "write `NAME: VALUE`" };
        parse_as(kind, name, text).map(|(_, limits)| limits)
    }
}

/// What a component may use beyond computing. Empty: nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WasmGrant {
    /// The models it may run, by their names in this file
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Spanned<String>>,
    /// The parts of WASI it may import
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wasi: Vec<Spanned<Wasi>>,
    /// The environment variables it may read
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Spanned<String>>,
    /// The folders it may open, relative to this file: `./assets` or `./assets:ro` to read, `:rw` also to write
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub dirs: Vec<Spanned<DirGrant>>,
}

/// A part of WASI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Wasi {
    /// the time
    Clock,
    /// random numbers
    Random,
    /// what a toolchain's start-up code expects of a program: output, which is logged, an empty
    /// input, `exit`
    Stdio,
}

/// How long an instance of a component lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Instances {
    /// one request: nothing is left for the next
    #[default]
    Fresh,
    /// until its first error
    Reuse,
}

/// A folder that a component may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirGrant {
    /// the folder, relative to gpux.yml
    pub path: String,
    /// whether it may be written to
    pub writable: bool,
}

impl FromStr for DirGrant {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, writable) = match (text.strip_suffix(":rw"), text.strip_suffix(":ro")) {
            (Some(path), _) => (path, true),
            (None, Some(path)) => (path, false),
            (None, None) => (text, false),
        };
        Ok(Self { path: path.to_owned(), writable })
    }
}

impl fmt::Display for DirGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, if self.writable { "rw" } else { "ro" })
    }
}

impl Serialize for DirGrant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DirGrant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A component step as written in full.
#[derive(Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Wasm")]
pub(super) struct RawWasm {
    /// The path of the component (`.wasm`), relative to this file
    #[schemars(length(min = 1, max = 1024))]
    component: Spanned<String>,
    /// The component's own options
    #[serde(default, rename = "options")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    _options: serde::de::IgnoredAny,
    /// Limits of one call; what is left out is the operator's default
    #[serde(default)]
    limits: Option<WasmLimits>,
    /// What the component may use beyond computing
    #[serde(default)]
    grant: Option<WasmGrant>,
    /// Whether an instance serves one request (fresh) or several (reuse)
    #[serde(default)]
    instances: Option<Instances>,
}

impl WasmSpec {
    /// The step at this path with default settings.
    pub(crate) fn at(component: Spanned<String>) -> Self {
        let options = Node::new(Content::Mapping(Vec::new()), component.span.clone());
        Self {
            component,
            options,
            limits: WasmLimits::default(),
            grant: WasmGrant::default(),
            instances: Instances::default(),
        }
    }

    pub(super) fn read(node: &Node) -> Result<Self, serde::de::value::Error> {
        if let Some(path) = node.as_str() {
            return Ok(Self::at(Spanned::new(path.to_owned(), node.span.clone())));
        }
        let RawWasm { component, _options, limits, grant, instances } = read(node)?;
        let empty = || Node::new(Content::Mapping(Vec::new()), component.span.clone());
        let options = node.get("options").filter(|options| !options.is_null()).cloned().unwrap_or_else(empty);
        Ok(Self {
            component,
            options,
            limits: limits.unwrap_or_default(),
            grant: grant.unwrap_or_default(),
            instances: instances.unwrap_or_default(),
        })
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "component": self.component,
            "options": self.options.to_json(),
            "limits": self.limits,
            "grant": self.grant,
            "instances": self.instances,
        })
    }
}
