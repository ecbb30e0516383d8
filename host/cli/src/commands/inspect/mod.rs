//! `gpux inspect`: a pipeline, a model, a component, or this machine, explained.

mod machine;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value as Json, json};

use super::schema::save_or_print;
use crate::exit::Exit;
use crate::load_arguments::{LoadArguments, PipelineArguments, component_error, read_component};
use crate::nodes;
use crate::printer::{Printer, cell, pretty, size, table};
use crate::shape_arguments::ShapeArguments;
use gpux::GpuxError;
use gpux::LoadOptions;
use gpux_core::files::is_same;
use gpux_inference::{ExecutionProvider, ModelFile, ModelInspector, ModelLoadError, ProviderOptions};
use gpux_sandbox::{ComponentInfo, SignatureInfo};

/// Explain a pipeline, a model (.onnx) or a component (.wasm); without any, the machine: engine,
/// providers, folders.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// A model file to explain
    #[arg(short, long, value_name = "FILE", conflicts_with = "pipeline")]
    model: Option<PathBuf>,

    /// Options for a component, as JSON: its inputs and outputs may depend on them
    #[arg(long, value_name = "JSON")]
    options: Option<String>,

    /// Run each model once on numbers made up, in a process of its own, and tell which provider each
    /// node runs on (of those that are offered, or of --provider) and how much arithmetic it is
    #[arg(long)]
    nodes: bool,

    #[command(flatten)]
    shapes: ShapeArguments,

    /// As JSON
    #[arg(long)]
    json: bool,

    /// Write it, as JSON, to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    #[command(flatten)]
    load: LoadArguments,

    /// Say more
    #[arg(long)]
    verbose: bool,
}

/// A report as JSON and as text.
struct Report {
    json: Json,
    text: String,
    exit: Exit,
}

impl Report {
    fn new(json: Json, text: String) -> Self {
        Self { json, text, exit: Exit::Done }
    }
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(arguments.json, arguments.verbose);
    match show(arguments, printer) {
        Ok(shown) => {
            let saved = match &arguments.save {
                Some(path) => save_or_print(printer, Some(path), &pretty(&shown.json)),
                None if arguments.json => save_or_print(printer, None, &pretty(&shown.json)),
                None => save_or_print(printer, None, &shown.text),
            };
            if saved == Exit::Done { shown.exit } else { saved }
        }
        Err(exit) => exit,
    }
}

fn show(arguments: &Arguments, printer: Printer) -> Result<Report, Exit> {
    let fail = |error: GpuxError| printer.error(&error);
    let load_options = arguments.load.options().map_err(fail)?;
    let nodes = NodeProfiler { arguments, load_options: &load_options, printer };
    if !arguments.nodes && !arguments.shapes.is_empty() {
        return Err(printer.fail("UsageError", "--shape and --dim go with --nodes", Exit::Usage));
    }

    let not_over = |path: &Path| match &arguments.save {
        Some(save) if is_same(path, save) => {
            let message = format!("`{}` is what is inspected; writing there would destroy it", save.display());
            Err(printer.fail("UsageError", &message, Exit::Usage))
        }
        _ => Ok(()),
    };

    if let Some(path) = arguments.model.clone().or_else(|| arguments.pipeline.file_with_extension("onnx")) {
        not_over(&path)?;
        let shown = model(&path, &nodes)?;
        rows(&shown.json, "external_files").filter_map(Json::as_str).try_for_each(|path| not_over(path.as_ref()))?;
        return Ok(shown);
    }
    if let Some(path) = arguments.pipeline.file_with_extension("wasm") {
        not_over(&path)?;
        return component(&path, arguments.options.as_deref(), &load_options, printer);
    }

    if arguments.pipeline.is_named() {
        let pipeline = arguments.pipeline.open(&arguments.load, printer).map_err(fail)?;
        pipeline.files().keys().try_for_each(|path| not_over(path))?;
        let mut json = pipeline.to_json();
        let mut text = pipeline_text(&json, printer.is_verbose());
        for (index, (name, step)) in pipeline.models().enumerate() {
            let provider = if arguments.load.providers().is_empty() { Some(step.provider()) } else { None };
            let options = &step.sessions().options().provider_options;
            if let Some((report, table)) = nodes.report(step.file(), provider, options)? {
                json["models"][index]["nodes"] = report;
                text += &format!("\n\nmodel {name}: {table}");
            }
        }
        return Ok(Report::new(json, text));
    }

    if arguments.nodes {
        return Err(printer.fail("UsageError", "--nodes is about a pipeline or a model: name it", Exit::Usage));
    }
    machine::show(&load_options).map_err(fail)
}

fn model(path: &Path, nodes: &NodeProfiler<'_>) -> Result<Report, Exit> {
    if path.is_dir() {
        let folder = path.display();
        let message = format!(
            "`{folder}` is a folder: name a model's file, or leave out --model where the folder is a pipeline's"
        );
        return Err(nodes.printer.fail("UsageError", &message, Exit::Usage));
    }
    let fail = |error: ModelLoadError| nodes.printer.error(&error.into());
    let mut json = ModelInspector::inspect(path).map_err(fail)?.to_dict();
    let mut text = model_text(&json);
    if nodes.arguments.nodes {
        let file = ModelFile::open(path).map_err(fail)?;
        if let Some((report, table)) = nodes.report(&file, None, &ProviderOptions::default())? {
            json["nodes"] = report;
            text += &format!("\n\n{table}");
        }
    }
    Ok(Report::new(json, text))
}

/// Profiles nodes, if `--nodes` asks for it.
struct NodeProfiler<'a> {
    arguments: &'a Arguments,
    load_options: &'a LoadOptions,
    printer: Printer,
}

impl NodeProfiler<'_> {
    /// The nodes of a model on the providers that the operator names, else on `provider`, else on all;
    /// nothing, if that is not asked for.
    fn report(
        &self,
        file: &ModelFile,
        provider: Option<ExecutionProvider>,
        options: &ProviderOptions,
    ) -> Result<Option<(Json, String)>, Exit> {
        let Self { arguments, load_options, printer } = *self;
        if !arguments.nodes {
            return Ok(None);
        }
        let usage = |message: String| printer.fail("UsageError", &message, Exit::Usage);
        let named = arguments.load.providers().into_iter().filter(|name| !matches!(name.as_str(), "auto" | "fastest"));
        let named: Result<Vec<ExecutionProvider>, _> = named.map(|name| name.parse()).collect();
        let mut providers = named.map_err(|error| usage(error.to_string()))?;
        if providers.is_empty() {
            providers.extend(provider);
        }
        let shapes = arguments.shapes.resolve(file.info()).map_err(|error| usage(error.to_string()))?;
        let info = shapes.apply_to_info(file.info());
        let report =
            nodes::report(load_options, file, &info, &providers, options).map_err(|error| printer.error(&error))?;
        Ok(Some((serde_json::to_value(&report).unwrap_or_default(), nodes::text(&report))))
    }
}

fn component(path: &Path, options: Option<&str>, load_options: &LoadOptions, printer: Printer) -> Result<Report, Exit> {
    let usage = |message: String| printer.fail("UsageError", &message, Exit::Usage);
    let options: Option<Json> = match options {
        None => None,
        Some(text) => Some(serde_json::from_str(text).map_err(|error| usage(format!("--options: {error}")))?),
    };
    let bytes = read_component(path, load_options, printer)?;
    let info = load_options.sandbox().and_then(|sandbox| sandbox.inspect(&bytes, options.as_ref()));
    let info = info.map_err(|error| component_error(path, error, printer))?;
    let json = serde_json::to_value(&info).unwrap_or_default();
    let exit = if info.problem.is_some() { Exit::Usage } else { Exit::Done };
    Ok(Report { text: component_text(path, &info), json, exit })
}

/// A note about how requests of a component start.
fn starts(details: &Json) -> String {
    let mut said = String::new();
    if let Some(why) = details["start"]["configure"]["why"].as_str() {
        said += &format!(" Each request configures it again: {why}.");
    }
    if details["instances"] == json!("reuse") {
        said += " Its instances serve further requests, until their first error.";
    }
    said
}

/// Facts without a heading: name and value in two columns.
fn plain(rows: Vec<Vec<String>>) -> String {
    let width = rows.iter().filter_map(|row| row.first()).map(|name| cell(name).chars().count()).max().unwrap_or(0);
    let line = |row: &Vec<String>| match row.as_slice() {
        [name, value] => format!("{:width$}  {value}", cell(name)),
        other => other.join("  "),
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn text(json: &Json) -> String {
    match json {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        Json::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

fn rows<'a>(json: &'a Json, list: &str) -> impl Iterator<Item = &'a Json> {
    json.get(list).and_then(Json::as_array).into_iter().flatten()
}

/// `image[0]`: axis 0 of `image`.
fn open_axis(axis: &Json) -> Vec<String> {
    let place = |place: &Json| match place["axis"].as_u64() {
        Some(axis) => format!("{}[{axis}]", text(&place["name"])),
        None => text(&place["name"]),
    };
    let name = axis["name"].as_str().unwrap_or("?").to_owned();
    vec![name, rows(axis, "places").map(place).collect::<Vec<_>>().join(", ")]
}

fn model_text(json: &Json) -> String {
    let mut facts: Vec<_> = ["name", "version", "format", "path"]
        .into_iter()
        .map(|name| vec![name.to_owned(), text(&json[name])])
        .collect();
    let bytes = json["size_bytes"].as_u64().unwrap_or_default();
    facts.push(vec!["size".to_owned(), format!("{} ({} parameters)", size(bytes), json["parameters"])]);
    let pairs = |name: &str, separator: &str| {
        let pairs = json[name].as_object().into_iter().flatten();
        pairs.map(|(key, value)| format!("{key}{separator}{}", text(value))).collect::<Vec<_>>().join(", ")
    };
    facts.push(vec!["opset".to_owned(), pairs("opsets", " ")]);
    facts.push(vec!["operators".to_owned(), pairs("operators", " × ")]);
    let port = |kind: &'static str| {
        move |port: &Json| {
            let required = if port["required"] == json!(false) { "optional" } else { "" };
            let more = [required.to_owned(), text(&port["description"])];
            let more: Vec<_> = more.into_iter().filter(|part| !part.is_empty()).collect();
            vec![kind.to_owned(), text(&port["name"]), text(&port["type"]), text(&port["shape"]), more.join(", ")]
        }
    };
    let ports = rows(json, "inputs").map(port("input")).chain(rows(json, "outputs").map(port("output")));
    let ports = table(&["", "name", "type", "shape", ""], &[], ports);
    let open: Vec<_> = rows(json, "dynamic_axes").map(open_axis).collect();
    let metadata = json["metadata"].as_object().into_iter().flatten();
    let metadata: Vec<_> = metadata.map(|(key, value)| vec![key.clone(), text(value)]).collect();
    let mut shown = format!("{}\n\n{ports}", plain(facts));
    if !open.is_empty() {
        shown += &format!("\n\n{}", table(&["dynamic axis", "where it stands"], &[], open));
    }
    if !metadata.is_empty() {
        shown += &format!("\n\nmetadata\n{}", plain(metadata));
    }
    shown
}

/// `3 labels: cat, dog, bird`; of many, the first.
fn labels_text(port: &Json) -> String {
    const SHOWN: usize = 5;
    let labels: Vec<_> = rows(port, "labels").map(text).collect();
    let first = labels.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match labels.len() {
        0 => String::new(),
        1 => format!("1 label: {first}"),
        count if count > SHOWN => format!("{count} labels: {first}, …"),
        count => format!("{count} labels: {first}"),
    }
}

/// The steps with their numbers, those within others behind them: `4`, then `4.1`.
fn numbered_steps<'j>(json: &'j Json, prefix: &str) -> Vec<(String, &'j Json)> {
    let mut steps = Vec::new();
    for (index, step) in rows(json, "steps").enumerate() {
        let number = format!("{prefix}{}", index + 1);
        let inner = numbered_steps(step, &format!("{number}."));
        steps.push((number, step));
        steps.extend(inner);
    }
    steps
}

fn pipeline_text(json: &Json, verbose: bool) -> String {
    let mut facts = vec![vec![text(&json["name"]), text(&json["version"])]];
    for name in ["description", "path", "digest", "engine", "space", "numerics"] {
        if !json[name].is_null() {
            facts.push(vec![name.to_owned(), text(&json[name])]);
        }
    }

    let port = |kind: &'static str| {
        move |port: &Json| {
            let optional = if port["required"] == json!(false) { "optional" } else { "" };
            let about = [text(&port["description"]), labels_text(port)];
            let about: Vec<_> = about.into_iter().filter(|part| !part.is_empty()).collect();
            vec![kind.to_owned(), text(&port["name"]), text(&port["type"]), optional.to_owned(), about.join("; ")]
        }
    };
    let ports = rows(json, "inputs").map(port("input")).chain(rows(json, "outputs").map(port("output")));
    let ports = table(&["", "name", "type", "", ""], &[], ports);

    let step = |(number, step): &(String, &Json)| {
        let gives = |port: &Json| {
            let stays = port["stays_on"].as_str().map(|memory| format!(" (stays on {memory})")).unwrap_or_default();
            format!("{}: {}{stays}", text(&port["name"]), text(&port["type"]))
        };
        let gives: Vec<_> = rows(step, "gives").map(gives).collect();
        let inserted = step["details"]["inserted"].as_object().into_iter().flatten();
        let inserted = inserted.map(|(input, changes)| format!("changes `{input}` first: {}", text(changes)));
        vec![number.clone(), text(&step["name"]), gives.join(", "), inserted.collect::<Vec<_>>().join("; ")]
    };
    let all_steps = numbered_steps(json, "");
    let steps = table(&["#", "step", "gives", ""], &[0], all_steps.iter().map(step));

    let mut shown = format!("{}\n\n{ports}\n\n{steps}", plain(facts));
    for (number, step) in &all_steps {
        let can: Vec<_> = rows(&step["details"], "can").map(text).collect();
        if !can.is_empty() {
            shown += &format!("\n\nstep {number} ({}) can: {}. Nothing else.", text(&step["name"]), can.join(", "));
            shown += &starts(&step["details"]);
        }
    }

    for model in rows(json, "models") {
        for told in provider_notes(model) {
            shown += &format!("\n\nmodel {}: {told}", text(&model["name"]));
        }
    }

    if verbose {
        for (_, step) in &all_steps {
            shown += &format!("\n\n{}\n{}", text(&step["name"]), pretty(&step["details"]));
        }
        for model in rows(json, "models") {
            shown += &format!("\n\n{}", model_text(model));
        }
    }
    shown
}

/// Notes on the provider of a model.
fn provider_notes(model: &Json) -> Vec<String> {
    let mut notes = Vec::new();
    let options = model["provider_options"].as_object().into_iter().flatten();
    let options: Vec<_> = options.map(|(name, value)| format!("{name} = {}", text(value))).collect();
    if !options.is_empty() {
        notes.push(format!("runs on {} with {}", text(&model["provider"]), options.join(", ")));
    }
    let [instances, threads] = ["instances", "threads"].map(|name| model[name].as_u64().unwrap_or(1));
    if instances > 1 || threads > 1 {
        let whose = if model["shares_threads"] == json!(true) { " that models share" } else { " each" };
        let count = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let most = model["under_load"]["instances"].as_u64();
        let load = most.map_or_else(String::new, |most| format!("; up to {most} on 1 thread each under load"));
        notes.push(format!("{} on {}{whose}{load}", count(instances, "instance"), count(threads, "thread")));
    }
    notes.extend(batching_note(&model["batching"]));
    for passed in rows(model, "fallbacks") {
        notes.push(format!("does not run on {}: {}", text(&passed["provider"]), text(&passed["reason"])));
    }
    for measured in rows(model, "measured") {
        let time = measured["milliseconds"].as_f64().map(|time| format!("takes {time:.3} ms on zeros"));
        let failure = || format!("does not run it: {}", text(&measured["failure"]));
        notes.push(format!("{} {}", text(&measured["provider"]), time.unwrap_or_else(failure)));
    }
    notes
}

/// How requests share runs, and by how much that changes results.
fn batching_note(batching: &Json) -> Option<String> {
    let size = batching["max_size"].as_u64()?;
    let (difference, pads) = (&batching["difference"], batching["pads"] == json!(true));
    let measured = |bits: &str, name: &str| match difference[name].as_f64() {
        _ if difference[bits] == json!(true) => "the same bits as alone".to_owned(),
        Some(part) => format!("{part:.1e} off at most"),
        None => "results that cannot be compared".to_owned(),
    };
    let mut note = format!("up to {size} rows share a run, with {}", measured("same_bits", "equal_lengths"));
    if !difference["padded"].is_null() {
        let apart = if pads { "" } else { ", so texts of other lengths run apart" };
        note += &format!("; padded, {}{apart}", measured("padded_same_bits", "padded"));
    }
    Some(note)
}

fn component_text(path: &Path, info: &ComponentInfo) -> String {
    let kind = text(&serde_json::to_value(info.kind).unwrap_or_default());
    let mut facts = vec![
        vec!["component".to_owned(), path.display().to_string()],
        vec!["kind".to_owned(), kind],
        vec!["size".to_owned(), size(info.size as u64)],
        vec!["sha256".to_owned(), info.digest.clone()],
    ];
    if let Some(summary) = &info.summary {
        facts.push(vec!["summary".to_owned(), summary.clone()]);
    }
    facts.push(vec!["imports".to_owned(), info.imports.join(", ")]);
    facts.push(vec!["exports".to_owned(), info.exports.join(", ")]);
    if let Some(start) = &info.start {
        facts.push(vec!["start".to_owned(), start.to_string()]);
    }
    let mut shown = format!("{}\n\n{}", plain(facts), info.capabilities());
    if let Some(SignatureInfo { inputs, outputs }) = &info.signature {
        let port = |kind: &'static str| {
            move |port: &gpux_sandbox::PortInfo| {
                let more = [if port.optional { "optional" } else { "" }, &*port.description];
                let more: Vec<_> = more.into_iter().filter(|part| !part.is_empty()).collect();
                vec![kind.to_owned(), port.name.clone(), port.kind.clone(), more.join(", ")]
            }
        };
        let ports = inputs.iter().map(port("input")).chain(outputs.iter().map(port("output")));
        shown += &format!("\n\n{}", table(&["", "name", "type", ""], &[], ports));
    }
    if let Some(schema) = &info.options_schema {
        shown += &format!("\n\noptions (JSON Schema)\n{}", pretty(schema));
    }
    if info.signature.is_none() && info.problem.is_none() {
        shown += "\n\nIts inputs and outputs show with `--options JSON`; it needs some.";
    }
    if let Some(problem) = &info.problem {
        shown += &format!("\n\nproblem: {problem}");
    }
    shown
}
