//! `- for-each`: steps that run for each item of a list.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::deserialize;
use super::super::diagnostic::Diagnostic;
use super::super::node::{Node, Spanned};
use super::step_spec::{ForEachSpec, Overflow, StepSpec, Wiring, condition};
use gpux_core::closest;

/// How deep `for-each` steps may stand within each other.
pub(super) const MAX_DEPTH: usize = 3;

/// One name or several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Names {
    One(#[schemars(length(min = 1, max = 128))] Spanned<String>),
    Several(#[schemars(length(min = 1, max = 64))] Vec<Spanned<String>>),
}

impl From<Names> for Vec<Spanned<String>> {
    fn from(names: Names) -> Self {
        match names {
            Names::One(name) => vec![name],
            Names::Several(names) => names,
        }
    }
}

/// `for-each` as written, without `in` and `out`.
#[derive(Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ForEach")]
pub(super) struct RawForEach {
    /// The name within of the value whose items are taken: a JSON list, or a tensor, of which each index of axis 0 is
    /// an item. Several names: an item is one of each, and they have the same number
    over: Names,
    /// The steps that run for each item; they read the names of `in` and what they give
    #[serde(rename = "steps")]
    #[schemars(with = "Vec<serde_json::Value>", length(min = 1, max = 256))]
    _steps: serde::de::IgnoredAny,
    /// The most items of a request (default: 1000)
    #[serde(default)]
    #[schemars(range(min = 1, max = 10000))]
    max_items: Option<NonZeroU32>,
    /// What happens to more: `error` rejects the request, `truncate` leaves them out and says so (default: `error`)
    #[serde(default)]
    overflow: Overflow,
    /// How many items run together: a model takes those of equal shape as one batch (default: 1)
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    batch: Option<NonZeroU32>,
    /// The names within whose values are collected (default: what the last step gives)
    #[serde(default)]
    gives: Option<Names>,
    /// Conditions on values within, such as `text` (not false, 0, null or empty) or `score >= 0.5`: where one does not
    /// hold, the item has no results
    #[serde(default)]
    keep: Option<Names>,
}

/// Reads the options, which fit the schema.
pub(super) fn read(
    options: &Node,
    tag: &Spanned<String>,
    input: Option<&Wiring>,
    steps: Vec<StepSpec>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<ForEachSpec> {
    let raw: RawForEach = match deserialize::read(options) {
        Ok(raw) => raw,
        Err(error) => {
            diagnostics.push(Diagnostic::new("value", options.span.clone(), error.to_string()));
            return None;
        }
    };
    let inputs = match input {
        Some(Wiring::Name(name)) => vec![(name.clone(), name.clone())],
        Some(Wiring::List(names)) => names.iter().map(|name| (name.clone(), name.clone())).collect(),
        Some(Wiring::Map(pairs)) => pairs.clone(),
        None => {
            let message = "`for-each` lacks `in`: the values that its steps can read";
            let hint = "write `in: { box: boxes, image: image }`: the name within, then the value outside";
            diagnostics.push(Diagnostic::new("wiring", tag.span.clone(), message).hint(hint));
            return None;
        }
    };

    let over: Vec<_> = raw.over.into();
    let known = || inputs.iter().map(|(name, _)| name.value.as_str());
    for (index, name) in over.iter().enumerate() {
        if !known().any(|known| known == name.value) {
            let message = format!("`over` names `{}`, which `in` does not bring inside", name.value);
            let hint = match closest(&name.value, known()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => {
                    format!("`in` brings {}", known().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
                }
            };
            diagnostics.push(Diagnostic::new("wiring", name.span.clone(), message).hint(hint));
        }
        if over[..index].iter().any(|other| other.value == name.value) {
            let message = format!("`over` names `{}` twice", name.value);
            diagnostics.push(Diagnostic::new("wiring", name.span.clone(), message));
        }
    }
    for (index, (name, _)) in inputs.iter().enumerate() {
        if inputs[..index].iter().any(|(other, _)| other.value == name.value) {
            let message = format!("`in` gives the name `{}` to two values", name.value);
            diagnostics.push(Diagnostic::new("wiring", name.span.clone(), message));
        }
    }
    let keep: Vec<Spanned<String>> = raw.keep.map(Into::into).unwrap_or_default();
    let keep = keep.iter().filter_map(|text| condition(&text.value, &text.span, diagnostics)).collect();
    let number = |number: Option<NonZeroU32>, default| number.map_or(default, |number| number.get() as usize);
    Some(ForEachSpec {
        over,
        max_items: number(raw.max_items, 1000),
        overflow: raw.overflow,
        batch: number(raw.batch, 1),
        gives: raw.gives.map(Into::into).unwrap_or_default(),
        keep,
        inputs,
        steps,
    })
}
