//! `gpux steps`: the built-in steps and their options.

use clap::Args;
use serde_json::{Value as Json, json};

use crate::exit::Exit;
use crate::printer::{pretty, table};
use gpux_core::{Builtin, Registry};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The step to explain; without it, all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// As JSON, with the schema of the options
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(arguments.json, false);
    let registry = gpux::builtins();
    let text = match &arguments.name {
        None if arguments.json => pretty(&Json::Array(by_group(&registry).into_iter().map(step_json).collect())),
        None => {
            let row =
                |step: &Builtin| vec![step.group.name().to_owned(), step.name.to_owned(), step.summary.to_owned()];
            table(&["", "step", ""], &[], by_group(&registry).into_iter().map(row))
        }
        Some(name) => match registry.builtin(name) {
            Some(step) if arguments.json => pretty(&step_json(step)),
            Some(step) => explain(step),
            None if matches!(name.as_str(), "model" | "wasm") => {
                let text = match name.as_str() {
                    "model" => {
                        "model: runs a model of the pipeline: `- model`, or `- model: NAME` with several under `models:`"
                    }
                    _ => {
                        "wasm: runs a component: `- wasm: PATH`, or `- wasm: { component: PATH, options: {…}, limits: {…}, grant: {…} }`"
                    }
                };
                text.to_owned()
            }
            None => {
                let known = registry.builtins().map(|step| step.name);
                let hint = gpux_core::closest(name, known).map(|near| format!("; did you mean `{near}`?"));
                let message = format!("there is no built-in step `{name}`{}", hint.unwrap_or_default());
                return printer.fail("UsageError", &message, Exit::Usage);
            }
        },
    };
    printer.print_result(&text)
}

fn by_group(registry: &Registry) -> Vec<&Builtin> {
    let mut steps: Vec<_> = registry.builtins().collect();
    steps.sort_by_key(|step| step.group);
    steps
}

fn step_json(step: &Builtin) -> Json {
    json!({
        "name": step.name,
        "summary": step.summary,
        "group": step.group.name(),
        "follows": step.follows,
        "example": step.example,
        "options": (step.schema)(),
    })
}

fn explain(step: &Builtin) -> String {
    let schema = (step.schema)();
    let properties = schema.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    let required: Vec<_> =
        schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    let rows = properties.iter().map(|(name, property)| {
        let default = match property.get("default") {
            Some(default) if !default.is_null() => default.to_string(),
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            _ => String::new(),
        };
        let description = property.get("description").and_then(Json::as_str).unwrap_or_default();
        vec![name.clone(), default, description.split_whitespace().collect::<Vec<_>>().join(" ")]
    });
    let follows = if step.follows.is_empty() { String::new() } else { format!("follows  {}\n", step.follows) };
    let options = if properties.is_empty() { String::new() } else { table(&["option", "default", ""], &[], rows) };
    let text = format!("{}: {}\n\n{follows}example  - {}\n\n{options}", step.name, step.summary, step.example);
    text.trim_end().to_owned()
}
