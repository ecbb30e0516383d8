//! The description of a model, which `gpux inspect` shows and the plan is checked against.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::standard_operators;
use super::types::OnnxType;
use crate::ModelLoadError;
use gpux_core::{Dim, Port, Signature};

/// One input of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// its name in the graph
    pub name: String,
    /// its type in ONNX's words: `float32`, `sequence(map(int64, float32))`
    pub kind: String,
    /// its dimensions; `None` when even the rank is open
    pub shape: Option<Vec<Dim>>,
    /// whether a value must be given; `false` when the model has a default (an initializer of
    /// the same name) or the type is optional
    pub required: bool,
    /// what the model's author says about it
    pub description: String,
    /// what it takes; `None` for types that gpux does not carry
    pub value: Option<OnnxType>,
    /// the rows of the smallest table of weights that its elements index, where the graph's `Gather` nodes show it
    pub index_limit: Option<u64>,
}

/// One output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// its name in the graph
    pub name: String,
    /// its type in ONNX's words
    pub kind: String,
    /// its dimensions; `None` when even the rank is open
    pub shape: Option<Vec<Dim>>,
    /// names of the classes, if they are known
    pub labels: Option<Vec<String>>,
    /// what the model's author says about it
    pub description: String,
    /// what it gives; `None` for types that gpux does not carry
    pub value: Option<OnnxType>,
}

/// The description of a model, read from its file alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// the graph's name, else the file's
    pub name: String,
    /// `version` of its metadata, else its `model_version`
    pub version: String,
    /// `onnx`
    pub format: String,
    /// size of the file and of the weights beside it, in bytes
    pub size_bytes: u64,
    /// its file
    pub path: PathBuf,
    /// what it takes, in the graph's order
    pub inputs: Vec<InputSpec>,
    /// what it gives, in the graph's order
    pub outputs: Vec<OutputSpec>,
    /// what its author wrote into it: `metadata_props`, producer, description
    pub metadata: BTreeMap<String, String>,
    /// keys of `metadata` that hold a note instead of a text that is too large
    pub omitted_metadata: BTreeSet<String>,
    /// version of ONNX's file format
    pub ir_version: i64,
    /// operator set of each domain (`""` is ONNX's own)
    pub opsets: BTreeMap<String, i64>,
    /// how often each operator occurs, subgraphs and functions included; operators of another
    /// domain than ONNX's are written `domain.Operator`
    pub operators: BTreeMap<String, usize>,
    /// operators that the model defines itself, written likewise
    pub functions: BTreeSet<String>,
    /// numbers in its weights
    pub parameters: u64,
    /// files beside the model that hold weights, links followed
    pub external_files: Vec<PathBuf>,
    /// the same by the paths, relative to the model's folder, by which the model names them
    pub external_locations: BTreeMap<PathBuf, PathBuf>,
}

/// Domains of operators that an engine may have, beside ONNX's own, which has no name.
const DOMAINS: [&str; 8] = [
    "ai.onnx.ml",
    "ai.onnx.preview",
    "ai.onnx.preview.training",
    "ai.onnx.training",
    "com.microsoft",
    "com.microsoft.experimental",
    "com.microsoft.nchwc",
    "com.ms.internal.nhwc",
];

impl ModelInfo {
    /// An operator of a domain that is neither ONNX's nor ONNX Runtime's, or that ONNX's own domain does not have, and
    /// that the model does not define.
    pub fn custom_operator(&self) -> Option<&str> {
        let is_newer = self.opsets.get("").is_some_and(|opset| *opset > standard_operators::NEWEST_OPSET);
        let is_custom = |operator: &&String| {
            let is_unknown = match operator.rsplit_once('.') {
                Some((domain, _)) => !DOMAINS.contains(&domain),
                None => !is_newer && standard_operators::OPERATORS.binary_search(&operator.as_str()).is_err(),
            };
            is_unknown && !self.functions.contains(*operator)
        };
        self.operators.keys().find(is_custom).map(String::as_str)
    }

    /// Size in megabytes (of 1024 × 1024 bytes).
    pub fn size_mb(&self) -> f64 {
        self.size_bytes as f64 / f64::from(1 << 20)
    }

    /// Everything as JSON.
    pub fn to_dict(&self) -> Value {
        let inputs = self.inputs.iter().map(|input| {
            json!({
                "name": input.name, "type": input.kind, "shape": shape_json(input.shape.as_deref()),
                "required": input.required, "description": input.description,
            })
        });
        let outputs = self.outputs.iter().map(|output| {
            json!({
                "name": output.name, "type": output.kind, "shape": shape_json(output.shape.as_deref()),
                "labels": output.labels, "description": output.description,
            })
        });
        json!({
            "name": self.name,
            "version": self.version,
            "format": self.format,
            "size_bytes": self.size_bytes,
            "size_mb": (self.size_mb() * 1000.0).round() / 1000.0,
            "path": self.path.display().to_string(),
            "inputs": inputs.collect::<Vec<_>>(),
            "outputs": outputs.collect::<Vec<_>>(),
            "dynamic_axes": self.dynamic_axes(),
            "metadata": self.metadata,
            "ir_version": self.ir_version,
            "opsets": self.opsets.iter()
                .map(|(domain, version)| (domain_name(domain).to_owned(), json!(version)))
                .collect::<Map<_, _>>(),
            "operators": self.operators,
            "parameters": self.parameters,
            "external_files": self.external_files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        })
    }

    /// The axes whose size is open: those of one name together, each of the others alone. An axis of
    /// `null` is a tensor of any number of axes.
    fn dynamic_axes(&self) -> Vec<Value> {
        let inputs = self.inputs.iter().map(|input| ("input", &input.name, &input.shape, &input.value));
        let outputs = self.outputs.iter().map(|output| ("output", &output.name, &output.shape, &output.value));
        let mut named: Vec<(&str, Vec<Value>)> = Vec::new();
        let mut others = Vec::new();
        for (port, name, shape, value) in inputs.chain(outputs) {
            let place = |axis: Option<usize>| json!({ "port": port, "name": name, "axis": axis });
            if shape.is_none() && matches!(value, Some(OnnxType::Tensor { .. })) {
                others.push(json!({ "name": null, "places": [place(None)] }));
            }
            for (axis, dim) in shape.iter().flatten().enumerate() {
                match dim {
                    Dim::Fixed(_) => {}
                    Dim::Dynamic => others.push(json!({ "name": null, "places": [place(Some(axis))] })),
                    Dim::Named(dim) => match named.iter_mut().find(|(known, _)| known == dim) {
                        Some((_, places)) => places.push(place(Some(axis))),
                        None => named.push((dim, vec![place(Some(axis))])),
                    },
                }
            }
        }
        let named = named.into_iter().map(|(name, places)| json!({ "name": name, "places": places }));
        named.chain(others).collect()
    }

    /// Writes [`ModelInfo::to_dict`] to a file.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut text = serde_json::to_string_pretty(&self.to_dict())?;
        text.push('\n');
        std::fs::write(path, text)
    }

    /// The inputs and outputs as a step's signature: tensors as tensors, sequences, maps and optionals
    /// as JSON. Fails on types that gpux does not carry.
    pub fn signature(&self) -> Result<Signature, ModelLoadError> {
        let unsupported = |what, port: &str, kind: &str| ModelLoadError::UnsupportedKind {
            path: self.path.clone(),
            what,
            port: port.to_owned(),
            kind: kind.to_owned(),
        };
        let inputs = self.inputs.iter().map(|input| {
            let value = input.value.as_ref().ok_or_else(|| unsupported("input", &input.name, &input.kind))?;
            let description = described(&input.description, value, &input.kind);
            Ok::<_, ModelLoadError>(Port {
                optional: !input.required,
                description,
                ..Port::new(&input.name, value.kind())
            })
        });
        let outputs = self.outputs.iter().map(|output| {
            let value = output.value.as_ref().ok_or_else(|| unsupported("output", &output.name, &output.kind))?;
            let description = described(&output.description, value, &output.kind);
            Ok::<_, ModelLoadError>(Port { description, ..Port::new(&output.name, value.kind()) })
        });
        Ok(Signature { inputs: inputs.collect::<Result<_, _>>()?, outputs: outputs.collect::<Result<_, _>>()? })
    }
}

/// The author's description, with the ONNX type if the port's kind does not show it.
fn described(description: &str, value: &OnnxType, kind: &str) -> String {
    match (value.plain(), description) {
        (Some(_), description) => description.to_owned(),
        (None, "") => kind.to_owned(),
        (None, description) => format!("{description} ({kind})"),
    }
}

/// ONNX's own domain has no name in the file.
fn domain_name(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// Fixed dimensions as numbers, named ones as strings, open ones as -1; `null` for an open rank.
fn shape_json(shape: Option<&[Dim]>) -> Value {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => json!(size),
        Dim::Named(name) => json!(name),
        Dim::Dynamic => json!(-1),
    };
    shape.map_or(Value::Null, |dims| dims.iter().map(dim).collect())
}
