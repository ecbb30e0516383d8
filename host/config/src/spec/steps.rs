//! `pipeline:`: the list of steps.

use schemars::Schema;

use super::super::diagnostic::Diagnostic;
use super::super::node::{Content, Entry, Node, Spanned};
use super::super::schema::check;
use super::for_each;
use super::step_spec::{Action, ForEachSpec, ModelCall, StepSpec, Wiring, condition};
use super::wasm::WasmSpec;
use gpux_core::Condition;

/// The schemas of the fields of steps that are no built-in ones.
pub(super) struct StepSchemas {
    pub(super) wasm: Schema,
    pub(super) for_each: Schema,
}

/// The most steps of a pipeline, with those within others.
const MAX_STEPS: usize = 256;

/// The steps of `pipeline`, and their errors.
pub(super) fn read(node: &Node, schemas: &StepSchemas, diagnostics: &mut Vec<Diagnostic>) -> Vec<StepSpec> {
    let steps = list(node, schemas, 0, diagnostics);
    if let Some(step) = steps.iter().flat_map(StepSpec::walk).nth(MAX_STEPS) {
        let message = format!("the pipeline has more than {MAX_STEPS} steps, with those within `for-each`");
        diagnostics.push(Diagnostic::new("step", step.tag.span.clone(), message));
    }
    steps
}

/// The steps of a list that stands within `depth` others.
fn list(node: &Node, schemas: &StepSchemas, depth: usize, diagnostics: &mut Vec<Diagnostic>) -> Vec<StepSpec> {
    let items = node.items().unwrap_or_default();
    items.iter().filter_map(|item| step(item, schemas, depth, diagnostics)).collect()
}

fn step(item: &Node, schemas: &StepSchemas, depth: usize, diagnostics: &mut Vec<Diagnostic>) -> Option<StepSpec> {
    let nothing = Node::new(Content::Null, item.span.clone());
    let (tag, value) = match &item.content {
        Content::String(tag) => (Spanned::new(tag.to_string(), item.span.clone()), &nothing),
        Content::Mapping(entries) => match entries.as_slice() {
            [(tag, value)] => (Spanned::new(tag.value.to_string(), tag.span.clone()), value),
            [] => {
                diagnostics.push(not_a_step(item, "an empty mapping"));
                return None;
            }
            [first, second, ..] => {
                diagnostics.push(several_keys(first, second));
                return None;
            }
        },
        Content::Null => {
            diagnostics.push(not_a_step(item, "empty"));
            return None;
        }
        _ => {
            diagnostics.push(not_a_step(item, item.kind_in_words()));
            return None;
        }
    };
    let shorthand = value.as_str().is_some() && matches!(tag.value.as_str(), "model" | "wasm");
    if !shorthand && !value.is_null() && value.entries().is_none() {
        let message = format!("`{}` takes its options as a mapping, but this is {}", tag.value, value.kind_in_words());
        let hint = format!("write `- {}: {{ option: value }}`, or just `- {}`", tag.value, tag.value);
        diagnostics.push(Diagnostic::new("type", value.span.clone(), message).hint(hint));
        return None;
    }
    let Split { options, input, output, when } = split(value, diagnostics);
    let action = match tag.value.as_str() {
        "model" => Action::Model(model(value, &options, diagnostics)),
        "wasm" if value.as_str().is_some() => Action::Wasm(Box::new(WasmSpec::read(value).ok()?)),
        "wasm" => {
            let options = Node::new(options.content, tag.span.clone());
            let found = check(&options, "wasm", &schemas.wasm);
            if !found.is_empty() {
                diagnostics.extend(found);
                return None;
            }
            Action::Wasm(Box::new(WasmSpec::read(&options).ok()?))
        }
        "for-each" => Action::ForEach(Box::new(for_each(&tag, options, input.as_ref(), schemas, depth, diagnostics)?)),
        _ => Action::BuiltIn(options),
    };
    Some(StepSpec { tag, action, input, output, when, span: item.span.clone() })
}

fn for_each(
    tag: &Spanned<String>,
    options: Node,
    input: Option<&Wiring>,
    schemas: &StepSchemas,
    depth: usize,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<ForEachSpec> {
    if depth == for_each::MAX_DEPTH {
        let message = format!("`for-each` stands at most {depth} deep within others");
        diagnostics.push(Diagnostic::new("step", tag.span.clone(), message));
        return None;
    }
    let options = Node::new(options.content, tag.span.clone());
    let found = check(&options, &tag.value, &schemas.for_each);
    if !found.is_empty() {
        diagnostics.extend(found);
        return None;
    }
    let empty = Node::default();
    let steps = list(options.get("steps").unwrap_or(&empty), schemas, depth + 1, diagnostics);
    for_each::read(&options, tag, input, steps, diagnostics)
}

fn not_a_step(item: &Node, what: &str) -> Diagnostic {
    let message = format!("a step is a name, or a name with options, but this is {what}");
    Diagnostic::new("step", item.span.clone(), message).hint("write `- softmax`, or `- resize: { size: [8, 8] }`")
}

fn several_keys(first: &Entry, second: &Entry) -> Diagnostic {
    let (tag, key) = (&first.0.value, &second.0.value);
    let message = format!("a step has one key, its name, but this one has several: `{tag}`, `{key}`");
    let hint = match &first.1.content {
        Content::Null => {
            format!(
                "each step is its own list item; indent its options: if `{key}` is an option of `{tag}`, put it two spaces further in"
            )
        }
        Content::String(name) if matches!(&**tag, "use" | "name" | "type" | "step" | "op") => {
            format!("each step is its own list item under its own name: `- {name}: {{ {key}: … }}`")
        }
        _ => format!("each step is its own list item; indent its options: write `- {tag}: …` and `- {key}: …`"),
    };
    Diagnostic::new("step", second.0.span.clone(), message).label("a second key").hint(hint)
}

/// What stands beside a step's tag.
struct Split {
    /// its own options
    options: Node,
    input: Option<Wiring>,
    output: Option<Wiring>,
    when: Option<Spanned<Condition>>,
}

/// Parts the step's own options from those that every step has.
fn split(value: &Node, diagnostics: &mut Vec<Diagnostic>) -> Split {
    let mut options = Vec::new();
    let (mut input, mut output, mut when) = (None, None, None);
    for (key, node) in value.entries().unwrap_or_default() {
        match &*key.value {
            "in" => input = wiring(key, node, diagnostics),
            "out" => output = wiring(key, node, diagnostics),
            "when" => {
                let span = if node.span.is_empty() { &key.span } else { &node.span };
                when = condition(node.as_str().unwrap_or_default(), span, diagnostics);
            }
            _ => options.push((key.clone(), node.clone())),
        }
    }
    Split { options: Node::new(Content::Mapping(options), value.span.clone()), input, output, when }
}

/// The name of a value.
fn name(node: &Node) -> Option<Spanned<String>> {
    let text = node.as_str().filter(|text| !text.is_empty() && text.len() <= 128)?;
    Some(Spanned::new(text.to_owned(), node.span.clone()))
}

fn wiring(key: &Spanned<std::sync::Arc<str>>, node: &Node, diagnostics: &mut Vec<Diagnostic>) -> Option<Wiring> {
    let read = match &node.content {
        Content::Sequence(items) if !items.is_empty() => {
            items.iter().map(name).collect::<Option<_>>().map(Wiring::List)
        }
        Content::Mapping(entries) if !entries.is_empty() => entries
            .iter()
            .map(|(port, node)| Some((Spanned::new(port.value.to_string(), port.span.clone()), name(node)?)))
            .collect::<Option<_>>()
            .map(Wiring::Map),
        _ => name(node).map(Wiring::Name),
    };
    if read.is_none() {
        let message = format!("`{}` names values: one name, a list of names, or `port: name`", key.value);
        let hint = format!("write `{0}: boxes`, `{0}: [boxes, scores]` or `{0}: {{ port: boxes }}`", key.value);
        let span = if node.span.is_empty() { key.span.clone() } else { node.span.clone() };
        diagnostics.push(Diagnostic::new("wiring", span, message).hint(hint));
    }
    read
}

fn model(value: &Node, options: &Node, diagnostics: &mut Vec<Diagnostic>) -> ModelCall {
    if let Some(name) = value.as_str() {
        let name = Some(Spanned::new(name.to_owned(), value.span.clone()));
        return ModelCall { name };
    }
    let name = options.get("name").and_then(|node| {
        let name = node.as_str().map(|name| Spanned::new(name.to_owned(), node.span.clone()));
        if name.is_none() {
            let message = "`name` is the name of a model, which is text";
            diagnostics.push(
                Diagnostic::new("type", node.span.clone(), message).hint("write one of the names under `models:`"),
            );
        }
        name
    });
    for (key, _) in options.entries().unwrap_or_default().iter().filter(|(key, _)| &*key.value != "name") {
        let message = format!("unknown key `{}` in `model`", key.value);
        let hint =
            "these can be set here: `name`, `in` and `out`; how a model runs is said under `model:` or `models:`";
        diagnostics.push(Diagnostic::new("unknown-key", key.span.clone(), message).hint(hint));
    }
    ModelCall { name }
}
