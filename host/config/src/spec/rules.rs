//! Rules across keys, which a schema cannot express.

use std::collections::HashSet;

use super::super::diagnostic::Diagnostic;
use super::super::node::{Node, Spanned};
use super::fields::part;
use super::model::DEFAULT_MODEL_NAME;
use super::step_spec::{Action, StepSpec};
use super::{ports, preprocessing};
use crate::schema::meant_key;
use gpux_core::sanitize::is_unsafe_for_terminal;
use gpux_core::{closest, list};

/// The keys that say what runs.
const MAIN_KEYS: [&str; 3] = ["model", "models", "pipeline"];

/// Everything that is wrong between the parts of the file.
pub(super) fn check(root: &Node, steps: &[StepSpec], diagnostics: &mut Vec<Diagnostic>) {
    let mut report = |key: &str, code, message: &str, hint: &str| {
        let span = root
            .entry(key)
            .map_or_else(|| root.entries().map(first_key).unwrap_or_default(), |(key, _)| key.span.clone());
        diagnostics.push(Diagnostic::new(code, span, message).hint(hint));
    };

    let has = |key: &str| part(root, key).is_some();
    if has("model") && has("models") {
        let hint = "move the model under `models:` with a name of its own, and remove `model:`";
        report("models", "models", "there is both `model` and `models`", hint);
    }

    // A key that is there but empty has a complaint of its own.
    // A misspelt key has one, too.
    let is_meant = |key: &str| MAIN_KEYS.contains(&key) || meant_key(key, &MAIN_KEYS).is_some();
    if !root.entries().into_iter().flatten().any(|(key, _)| is_meant(&key.value)) {
        let hint = "add `model: { source: ./model.onnx }`, or the steps under `pipeline:`";
        report("", "nothing-to-run", "there is nothing to run: neither `model` nor `pipeline`", hint);
    }

    if has("preprocessing") && has("pipeline") {
        let hint =
            "the pipeline says everything: write these as its first steps, such as `- resize: { size: [224, 224] }`";
        report("preprocessing", "preprocessing", "there is both `preprocessing` and `pipeline`", hint);
    }

    let names = model_names(root);
    if names.len() > 1 && !has("pipeline") && !has("model") {
        let hint = format!(
            "say which runs when: `pipeline: [{}]`",
            names.iter().map(|name| format!("model: {name}")).collect::<Vec<_>>().join(", ")
        );
        report("models", "models", "several models need a `pipeline`", &hint);
    }

    for key in ["name", "version"] {
        let steering =
            part(root, key).and_then(Node::as_str).is_some_and(|text| text.chars().any(is_unsafe_for_terminal));
        if steering {
            let hint = "write it with letters that are seen";
            report(
                key,
                "plain-text",
                &format!("`{key}` has a line break, or a character that steers what shows it"),
                hint,
            );
        }
    }
    if part(root, "name").and_then(Node::as_str).is_some_and(|name| matches!(name, "." | "..")) {
        let hint = "give it a name of its own";
        report("name", "name", "`.` and `..` are folders: clients leave them out of the pipeline's URL", hint);
    }
    if part(root, "name").and_then(Node::as_str).is_some_and(|name| name.contains('/')) {
        let hint = "write `-` or `.` instead";
        report("name", "name", "`/` parts the folders of a URL: clients and proxies would not find the pipeline", hint);
    }

    if let Some(preprocessing) = part(root, "preprocessing") {
        preprocessing::check(preprocessing, diagnostics);
    }
    for key in ["inputs", "outputs"] {
        reject_duplicates(&ports::entries(root.get(key).unwrap_or(&Node::default())), diagnostics);
    }
    for step in steps.iter().flat_map(StepSpec::walk) {
        check_step_models(step, &names, diagnostics);
    }
}

fn first_key(entries: &[(Spanned<std::sync::Arc<str>>, Node)]) -> super::super::source_file::Span {
    entries.first().map(|(key, _)| key.span.clone()).unwrap_or_default()
}

fn model_names(root: &Node) -> Vec<&str> {
    let only = part(root, "model").map(|_| DEFAULT_MODEL_NAME);
    let several = part(root, "models").and_then(Node::entries).unwrap_or_default();
    only.into_iter().chain(several.iter().map(|(key, _)| &*key.value)).collect()
}

fn reject_duplicates(entries: &[(Spanned<String>, &Node)], diagnostics: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    for (name, _) in entries {
        if !seen.insert(name.value.as_str()) {
            let message = format!("the name `{}` is used twice", name.value);
            diagnostics
                .push(Diagnostic::new("duplicate-name", name.span.clone(), message).hint("give each its own name"));
        }
    }
}

/// The models that a step names must be there.
fn check_step_models(step: &StepSpec, names: &[&str], diagnostics: &mut Vec<Diagnostic>) {
    let mut known = |name: &Spanned<String>| {
        if names.contains(&name.value.as_str()) {
            return;
        }
        let message = format!("there is no model `{}`", name.value);
        let hint = match closest(&name.value, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if names.is_empty() => format!("add it: `models: {{ {}: {{ source: ./model.onnx }} }}`", name.value),
            None if *names == [DEFAULT_MODEL_NAME] => {
                "the only model is called `model`; several are named under `models:`".to_owned()
            }
            None => format!("the models are {}", list(names, "and")),
        };
        diagnostics.push(Diagnostic::new("unknown-model", name.span.clone(), message).hint(hint));
    };
    match &step.action {
        Action::Model(call) => match &call.name {
            Some(name) => known(name),
            None if names.is_empty() => {
                let message = "this step runs the model, but there is none";
                let hint = "add `model: { source: ./model.onnx }` to the file";
                diagnostics.push(Diagnostic::new("unknown-model", step.tag.span.clone(), message).hint(hint));
            }
            None if names.len() > 1 => {
                let hint = format!("name one, such as `- model: {}`", names.first().unwrap_or(&"NAME"));
                let message = "there are several models; which one runs here?";
                diagnostics.push(Diagnostic::new("unknown-model", step.tag.span.clone(), message).hint(hint));
            }
            None => {}
        },
        Action::Wasm(wasm) => wasm.grant.models.iter().for_each(known),
        Action::BuiltIn(_) | Action::ForEach(_) => {}
    }
}
