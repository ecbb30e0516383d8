//! `gpux steps`: the built-in steps and their options.

use std::path::Path;

use clap::Args;
use serde_json::{Value as Json, json};

use crate::exit::Exit;
use crate::printer::{pretty, table};
use gpux::{LoadOptions, Pipeline};
use gpux_config::FILE_NAMES;
use gpux_core::{Builtin, Port, Registry, Tensor, to_npy};

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
    let ports = Ports::of_example(step);
    let port = |port: &Port| {
        let mut json = json!({ "name": port.name, "type": port.kind.to_string() });
        if port.optional {
            json["optional"] = true.into();
        }
        json
    };
    let list = |ports: &[Port]| ports.iter().map(port).collect::<Vec<_>>();
    json!({
        "inputs": ports.as_ref().map(|ports| list(&ports.inputs)),
        "outputs": ports.as_ref().map(|ports| list(&ports.outputs)),
        "name": step.name,
        "summary": step.summary,
        "group": step.group.name(),
        "follows": step.follows,
        "example": step.example,
        "options": (step.schema)(),
    })
}

/// The inputs and outputs of a step, as its example has them: they may depend on the options.
struct Ports {
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

impl Ports {
    /// Opens a pipeline of the example alone, with files in the place of those that it names.
    fn of_example(step: &Builtin) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        for name in step.example.split([' ', ',', '}', ']']).filter(|word| word.starts_with("./")) {
            std::fs::write(folder.path().join(name), placeholder(name)?).ok()?;
        }
        let file = folder.path().join(FILE_NAMES[0]);
        std::fs::write(&file, format!("name: x\nversion: 1.0.0\npipeline:\n  - {}\n", step.example)).ok()?;
        let mut options = LoadOptions::default();
        options.cache = None;
        let pipeline = Pipeline::open(&file, &options).ok()?;
        let plan = pipeline.plan();
        // Optional ports of a step do not become inputs of a pipeline.
        let all = plan.steps().iter().flat_map(|planned| planned.step.signature().inputs.clone());
        let optional =
            all.filter(|port| port.optional && plan.inputs().iter().all(|input| input.port.name != port.name));
        let inputs = plan.inputs().iter().map(|input| input.port.clone()).chain(optional);
        let outputs = plan.outputs().iter().map(|output| Port::new(output.name.clone(), output.kind.clone()));
        Some(Self { inputs: inputs.collect(), outputs: outputs.collect() })
    }
}

/// The content of a file that an example names: labels, vectors, a vocabulary, or a tokenizer.
fn placeholder(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(name);
    Some(match path.extension()?.to_str()? {
        "txt" => b"one\ntwo\n".to_vec(),
        "npy" => to_npy(&Tensor::new([2, 2], vec![1.0_f32, 0.0, 0.0, 1.0]).ok()?).ok()?,
        "json" if path.file_stem()? == "vocab" => br#"{"<pad>": 0, "a": 1, "|": 2}"#.to_vec(),
        _ => json!({
            "version": "1.0",
            "added_tokens": [],
            "model": { "type": "WordLevel", "vocab": { "[UNK]": 0 }, "unk_token": "[UNK]" },
        })
        .to_string()
        .into_bytes(),
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
    let ports = Ports::of_example(step).map(|ports| {
        let row = |what: &'static str| {
            move |port: Port| {
                let more = if port.name == "tensor-3" { ", and more" } else { "" };
                let optional = if port.optional { ", optional" } else { "" };
                vec![what.to_owned(), port.name, format!("{}{optional}{more}", port.kind)]
            }
        };
        // `tensor-4` to `tensor-16` are as `tensor-3`.
        let is_further = |port: &Port| port.name.strip_prefix("tensor-").is_some_and(|number| number != "3");
        let inputs = ports.inputs.into_iter().filter(|port| !is_further(port));
        let rows = inputs.map(row("in")).chain(ports.outputs.into_iter().map(row("out")));
        format!("{}\n\n", table(&["", "port", ""], &[], rows))
    });
    let options = if properties.is_empty() { String::new() } else { table(&["option", "default", ""], &[], rows) };
    let text = format!(
        "{}: {}\n\n{follows}example  - {}\n\n{}{options}",
        step.name,
        step.summary,
        step.example,
        ports.unwrap_or_default()
    );
    text.trim_end().to_owned()
}
