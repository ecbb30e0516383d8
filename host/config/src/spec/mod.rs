//! The contents of a gpux.yml: defaults are filled in, shorthands are expanded, and places
//! are kept where a later stage may find a mistake.

mod fields;
mod file;
mod for_each;
mod model;
mod ports;
mod preprocessing;
mod rules;
mod runtime;
mod step_spec;
mod steps;
mod wasm;

use std::path::Path;
use std::sync::LazyLock;

use schemars::Schema;

use super::deserialize::read;
use super::diagnostic::Diagnostic;
use super::node::{Content, Node, Spanned};
use super::schema::check;

use fields::{part, put};
pub(crate) use file::MAX_NAME;
pub use file::{StepSchema, json_schema};
use gpux_core::Precision;
use gpux_core::sanitize::is_unsafe_for_terminal;
pub use model::{BatchingSpec, DEFAULT_MODEL_NAME, ModelFormat, ModelSpec};
pub use ports::{Dimension, InputSpec, Labels, OutputSpec, PortType, UnknownPortType};
pub use runtime::{Backend, Endpoint, GpuSpec, Isolation, RuntimeSpec, ServingSpec};
pub use step_spec::{Action, ForEachSpec, ModelCall, Overflow, StepSpec, Wiring};
use steps::StepSchemas;
pub use wasm::{DirGrant, Instances, Wasi, WasmGrant, WasmLimits, WasmSpec};

/// Checks the tag and the options of a built-in step. Only the caller knows the built-in steps;
/// checking them here reports their mistakes together with all others.
pub type StepCheck<'a> = &'a dyn Fn(&Spanned<String>, &Node) -> Vec<Diagnostic>;

/// A [`StepCheck`] that accepts every step.
pub fn accept_any_step(_: &Spanned<String>, _: &Node) -> Vec<Diagnostic> {
    Vec::new()
}

/// A pipeline as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// its name
    pub name: Spanned<String>,
    /// its version, as written
    pub version: Spanned<String>,
    /// for people
    pub description: Option<String>,
    /// further metadata, passed on unchanged
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// the models; the one under `model:` is called [`DEFAULT_MODEL_NAME`]
    pub models: Vec<ModelSpec>,
    /// inputs of a request; empty: the inputs of the first step
    pub inputs: Vec<InputSpec>,
    /// outputs of a request; empty: the outputs of the last step
    pub outputs: Vec<OutputSpec>,
    /// how the models run
    pub runtime: RuntimeSpec,
    /// the server
    pub serving: ServingSpec,
    /// the steps, in order; without `pipeline:` those of `preprocessing:` and then the model
    pub pipeline: Vec<StepSpec>,
    /// whether the steps come from `preprocessing:`; a declared tensor then describes what the
    /// model's input, not a request's
    pub preprocessed: bool,
}

static FILE: LazyLock<Schema> = LazyLock::new(file::checked);
static STEPS: LazyLock<StepSchemas> = LazyLock::new(file::steps);

impl Spec {
    /// A pipeline whose only step is the model in the file of this name.
    pub fn for_model(file: String) -> Self {
        let mut spec = Self::for_step(&file, implicit_model(&Node::default()));
        spec.models.push(ModelSpec {
            name: Spanned::new(DEFAULT_MODEL_NAME.to_owned(), 0..0),
            source: Spanned::new(file, 0..0),
            format: ModelFormat::default(),
            version: None,
            instances: None,
            threads: None,
            batching: None,
            provider: spec.runtime.gpu.backend.clone(),
            precision: Precision::Exact,
            options: spec.runtime.gpu.options.clone(),
        });
        spec
    }

    /// A pipeline whose only step is the component in the file of this name, without options.
    pub fn for_component(file: String) -> Self {
        let mut step = StepSpec { tag: Spanned::new("wasm".to_owned(), 0..0), ..implicit_model(&Node::default()) };
        step.action = Action::Wasm(Box::new(WasmSpec {
            component: Spanned::new(file.clone(), 0..0),
            options: Node::new(Content::Mapping(Vec::new()), 0..0),
            limits: WasmLimits::default(),
            grant: WasmGrant::default(),
            instances: Instances::default(),
        }));
        Self::for_step(&file, step)
    }

    /// A pipeline of one step, with the name of the file without its ending.
    fn for_step(file: &str, step: StepSpec) -> Self {
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let safe = |letter: char| if is_unsafe_for_terminal(letter) { '_' } else { letter };
        let name = name.chars().take(MAX_NAME).map(safe).collect();
        Self {
            name: Spanned::new(name, 0..0),
            version: Spanned::new("0".to_owned(), 0..0),
            description: None,
            metadata: serde_json::Map::new(),
            models: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            runtime: RuntimeSpec::default(),
            serving: ServingSpec::default(),
            pipeline: vec![step],
            preprocessed: false,
        }
    }

    /// Reads the root of a file, or returns every mistake in it.
    pub(super) fn from_node(root: &Node, check_step: StepCheck<'_>) -> Result<Self, Vec<Diagnostic>> {
        let mut diagnostics = check(root, "", &FILE);
        let empty = Node::default();
        let pipeline = part(root, "pipeline");
        let mut steps = steps::read(pipeline.unwrap_or(&empty), &STEPS, &mut diagnostics);
        rules::check(root, &steps, &mut diagnostics);
        let mut preprocessed = false;
        if diagnostics.is_empty() && pipeline.is_none() {
            steps = part(root, "preprocessing").map(preprocessing::desugar).unwrap_or_default();
            preprocessed = !steps.is_empty();
            steps.push(implicit_model(root));
        }
        for step in steps.iter().flat_map(StepSpec::walk) {
            if let Action::BuiltIn(options) = &step.action {
                diagnostics.extend(check_step(&step.tag, options));
            }
        }
        if !diagnostics.is_empty() {
            return Err(diagnostics);
        }
        // The shape has been checked, so a failure here is a gap between the schema and the types.
        Self::assemble(root, steps, preprocessed).map_err(|error| {
            let span = root.entries().and_then(|entries| entries.first()).map_or(0..0, |(key, _)| key.span.clone());
            vec![Diagnostic::new("value", span, format!("the file cannot be read: {error}"))]
        })
    }

    fn assemble(root: &Node, pipeline: Vec<StepSpec>, preprocessed: bool) -> Result<Self, serde::de::value::Error> {
        let text = |key| part(root, key).map(read::<Spanned<String>>).transpose();
        let version = text("version")?.unwrap_or_default();
        let runtime: RuntimeSpec = part(root, "runtime").map(read).transpose()?.unwrap_or_default();
        let model = |name: Spanned<String>, node| ModelSpec::read(name, node, &runtime);
        let only = root.entry("model").filter(|(_, node)| !node.is_null());
        let only = only.map(|(key, node)| model(Spanned::new(DEFAULT_MODEL_NAME.to_owned(), key.span.clone()), node));
        let several = part(root, "models").and_then(Node::entries).unwrap_or_default().iter();
        let several = several.map(|(key, node)| model(Spanned::new(key.value.to_string(), key.span.clone()), node));
        let empty = Node::default();
        let ports = |key: &str| ports::entries(part(root, key).unwrap_or(&empty));
        Ok(Self {
            name: text("name")?.unwrap_or_default(),
            description: text("description")?.map(|text| text.value),
            metadata: part(root, "metadata").map(read).transpose()?.unwrap_or_default(),
            models: only.into_iter().chain(several).collect::<Result<_, _>>()?,
            inputs: ports("inputs")
                .into_iter()
                .map(|(name, node)| InputSpec::read(name, node))
                .collect::<Result<_, _>>()?,
            outputs: ports("outputs")
                .into_iter()
                .map(|(name, node)| OutputSpec::read(name, node))
                .collect::<Result<_, _>>()?,
            serving: part(root, "serving").map(read).transpose()?.unwrap_or_default(),
            version,
            runtime,
            pipeline,
            preprocessed,
        })
    }

    /// The whole of it in the form of a gpux.yml, defaults and shorthands written out. Reading it
    /// again gives the same.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({ "name": self.name, "version": self.version });
        put(&mut json, "description", self.description.as_ref());
        if !self.metadata.is_empty() {
            json["metadata"] = self.metadata.clone().into();
        }
        match self.models.as_slice() {
            [] => {}
            [only] if only.name.value == DEFAULT_MODEL_NAME => json["model"] = only.to_json(),
            several => {
                json["models"] = several.iter().map(|model| (model.name.value.clone(), model.to_json())).collect();
            }
        }
        if !self.inputs.is_empty() {
            json["inputs"] = self.inputs.iter().map(|input| (input.name.value.clone(), input.to_json())).collect();
        }
        if !self.outputs.is_empty() {
            json["outputs"] = self.outputs.iter().map(|output| (output.name.value.clone(), output.to_json())).collect();
        }
        json["runtime"] = serde_json::json!(self.runtime);
        json["serving"] = serde_json::json!(self.serving);
        json["pipeline"] = self.pipeline.iter().map(StepSpec::to_json).collect();
        json
    }

    /// [`Self::to_json`] as the text of a gpux.yml. A `$` is written so that it is read as one.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::SerializeError> {
        let mut json = self.to_json();
        escape(&mut json);
        serde_yaml::to_string(&json)
    }

    /// Every step, with those within others, in the order of the file.
    pub fn all_steps(&self) -> impl Iterator<Item = &StepSpec> {
        self.pipeline.iter().flat_map(StepSpec::walk)
    }

    /// The model of this name; without a name, the only one.
    pub fn model(&self, name: Option<&str>) -> Option<&ModelSpec> {
        match name {
            Some(name) => self.models.iter().find(|model| model.name.value == name),
            None => self.models.first().filter(|_| self.models.len() == 1),
        }
    }
}

/// Doubles every `$` in the texts, so that none begins a variable.
fn escape(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::String(text) => *text = text.replace('$', "$$"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(escape),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(escape),
        _ => {}
    }
}

fn implicit_model(root: &Node) -> StepSpec {
    let key = root.entry("model").or_else(|| root.entry("models")).map(|(key, _)| key.span.clone());
    let span = key.unwrap_or_default();
    let tag = Spanned::new("model".to_owned(), span.clone());
    StepSpec { tag, action: Action::Model(ModelCall { name: None }), input: None, output: None, when: None, span }
}
