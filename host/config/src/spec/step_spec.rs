//! A step as gpux.yml describes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::diagnostic::Diagnostic;
use super::super::node::{Node, Spanned};
use super::super::source_file::Span;
use super::wasm::WasmSpec;
use gpux_core::Condition;

/// A step: its operation, inputs and outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSpec {
    /// what kind of step, as written: `resize`, `model`, `wasm`
    pub tag: Spanned<String>,
    /// what it does
    pub action: Action,
    /// `in:`; `None`: the outputs of the previous step
    pub input: Option<Wiring>,
    /// `out:`; `None`: under the step's own names
    pub output: Option<Wiring>,
    /// `when:`: the condition under which it runs; otherwise it gives its first input
    pub when: Option<Spanned<Condition>>,
    /// the whole step
    pub span: Span,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// runs a model
    Model(ModelCall),
    /// runs a component
    Wasm(Box<WasmSpec>),
    /// runs steps for each item of a list
    ForEach(Box<ForEachSpec>),
    /// anything else: a built-in step, whose tag and options are checked when the plan is built.
    /// The options are a mapping.
    BuiltIn(Node),
}

/// `- model` or `- model: NAME` or `- model: {name: NAME}`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCall {
    /// which one; `None`: the only one
    pub name: Option<Spanned<String>>,
}

/// Which values of the frame a step's ports are.
#[derive(Clone, Debug, PartialEq)]
pub enum Wiring {
    /// the value of the only port
    Name(Spanned<String>),
    /// the values of the ports, in their order
    List(Vec<Spanned<String>>),
    /// (port, value)
    Map(Vec<(Spanned<String>, Spanned<String>)>),
}

impl Wiring {
    /// The names of the frame's values.
    pub fn values(&self) -> Vec<&Spanned<String>> {
        match self {
            Self::Name(name) => vec![name],
            Self::List(names) => names.iter().collect(),
            Self::Map(pairs) => pairs.iter().map(|(_, value)| value).collect(),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Name(name) => serde_json::json!(name),
            Self::List(names) => serde_json::json!(names),
            Self::Map(pairs) => {
                pairs.iter().map(|(port, value)| (port.value.clone(), serde_json::json!(value))).collect()
            }
        }
    }
}

impl StepSpec {
    /// The steps that it runs for each item.
    pub fn inner(&self) -> &[Self] {
        match &self.action {
            Action::ForEach(for_each) => &for_each.steps,
            Action::Model(_) | Action::Wasm(_) | Action::BuiltIn(_) => &[],
        }
    }

    /// Itself and the steps within, in the order of the file.
    pub fn walk(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        Box::new(std::iter::once(self).chain(self.inner().iter().flat_map(Self::walk)))
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut options = match &self.action {
            Action::Model(call) => {
                let mut options = serde_json::json!({});
                super::fields::put(&mut options, "name", call.name.as_ref());
                options
            }
            Action::Wasm(wasm) => wasm.to_json(),
            Action::ForEach(for_each) => for_each.to_json(),
            Action::BuiltIn(options) => options.to_json(),
        };
        super::fields::put(&mut options, "in", self.input.as_ref().map(Wiring::to_json).as_ref());
        super::fields::put(&mut options, "out", self.output.as_ref().map(Wiring::to_json).as_ref());
        super::fields::put(&mut options, "when", self.when.as_ref());
        serde_json::json!({ (self.tag.value.clone()): options })
    }
}

/// What happens to the items beyond `max_items`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// the request is rejected
    #[default]
    Error,
    /// they are left out, and the response says so
    Truncate,
}

/// A step that runs others for each item.
#[derive(Clone, Debug, PartialEq)]
pub struct ForEachSpec {
    /// (name within, value outside): what the steps can read
    pub inputs: Vec<(Spanned<String>, Spanned<String>)>,
    /// names within whose values are lists: the steps get an item of each
    pub over: Vec<Spanned<String>>,
    /// the most items
    pub max_items: usize,
    /// what happens to more
    pub overflow: Overflow,
    /// items that run together
    pub batch: usize,
    /// the values that are collected; empty: what the last step gives
    pub gives: Vec<Spanned<String>>,
    /// the conditions under which an item's results are collected
    pub keep: Vec<Spanned<Condition>>,
    /// the steps of each item
    pub steps: Vec<StepSpec>,
}

impl ForEachSpec {
    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({
            "over": self.over,
            "max_items": self.max_items,
            "overflow": self.overflow,
            "batch": self.batch,
            "steps": self.steps.iter().map(StepSpec::to_json).collect::<Vec<_>>(),
        });
        if !self.gives.is_empty() {
            json["gives"] = serde_json::json!(self.gives);
        }
        if !self.keep.is_empty() {
            json["keep"] = serde_json::json!(self.keep);
        }
        json
    }
}

/// The condition that this text is.
pub(super) fn condition(text: &str, span: &Span, diagnostics: &mut Vec<Diagnostic>) -> Option<Spanned<Condition>> {
    if let Some(condition) = Condition::parse(text) {
        return Some(Spanned::new(condition, span.clone()));
    }
    let message = "a condition is the name of a value, alone or compared with a number";
    let hint = "write `flag`, which holds unless it is false, 0, null or empty, or `score >= 0.5`";
    diagnostics.push(Diagnostic::new("condition", span.clone(), message).hint(hint));
    None
}
