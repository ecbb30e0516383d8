//! `gpux build --precision … --shape …`: another model made of a pipeline's, beside it, if its
//! results stay close enough.

mod change_error;
mod changed_model;
mod report;
mod samples;

use std::path::{Path, PathBuf};

use clap::Args;

use super::Arguments;
use crate::exit::Exit;
use crate::load_arguments::LoadArguments;
use crate::printer::{Printer, TextOutput, pretty};
use crate::shape_arguments::ShapeArguments;
use change_error::ChangeError;
use changed_model::ChangedModel;
use gpux::{LoadOptions, Pipeline};
use gpux_core::Precision;
use gpux_core::files::{is_same, resolve_path};
use gpux_inference::ModelStep;
use report::Report;
use samples::Evaluation;

/// The flags of a changed model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Changed models")]
pub(super) struct ChangeArguments {
    #[command(flatten)]
    shapes: ShapeArguments,

    /// Inputs of the pipeline on which the changed model, or each precision of `auto`, is held against the
    /// original, and from which int8 takes the ranges of convolutions: files as `gpux run --file` takes them
    /// [default: the pipeline's golden cases, else, to compare, numbers made up]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(super) sample: Vec<String>,

    /// By how much an output may be off, as a part of its largest number; past it nothing is written
    /// [default: 0.01 for fp16, 0.05 for int8, 0.0001 for shapes]
    #[arg(long, value_name = "NUMBER", value_parser = tolerance)]
    tolerance: Option<f64>,

    /// Change only this model of the pipeline
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// The Python that has onnx and onnxruntime [default: that of the active environment, else python3, else
    /// one that gpux makes in its cache]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,

    /// Refused: see docs/models.md
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "")]
    prune: Option<String>,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number, for example `0.01`".to_owned())?;
    if number >= 0.0 { Ok(number) } else { Err("a number that is not negative".to_owned()) }
}

/// The answer to `--prune`.
const NO_PRUNING: &str = "pruning is refused: weights that are merely set to zero make ONNX Runtime no faster, and \
                          what takes out whole channels must train the model again, which needs its data. Prune \
                          where the model is trained, and give gpux the result; `--precision int8` makes this one \
                          smaller";

const NOT_INTO_STORE: &str = "the pipeline is in the store, where files do not change: make the model in the \
                              pipeline's own folder, and `gpux store add` it again; or name another place with --output";

impl ChangeArguments {
    /// Whether a model in this precision, or anything else, is to be made, or told why not.
    pub(super) fn is_given(&self, precision: Option<Precision>) -> bool {
        precision.is_some() || self.fixes_shapes() || self.prune.is_some()
    }

    fn fixes_shapes(&self) -> bool {
        !self.shapes.is_empty()
    }

    /// A flag that says nothing without another.
    pub(super) fn orphan_flag(&self, load: &LoadArguments) -> Option<&'static str> {
        let given = [
            (!self.sample.is_empty(), "--sample"),
            (self.tolerance.is_some(), "--tolerance"),
            (self.model.is_some(), "--model"),
            (self.python.is_some(), "--python"),
        ];
        let given = given.into_iter().find_map(|(given, flag)| given.then_some(flag));
        given.filter(|_| load.precision.is_none() && !self.is_given(None))
    }

    /// The largest accepted error of a model in this precision.
    fn tolerance(&self, precision: Option<Precision>) -> f64 {
        self.tolerance.unwrap_or(match precision {
            Some(Precision::Fp16) => 0.01,
            Some(Precision::Int8) => 0.05,
            // The same numbers in another order of summing.
            _ => 1e-4,
        })
    }
}

pub(super) fn main(arguments: &Arguments, printer: Printer) -> Exit {
    match run(arguments, printer) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn run(arguments: &Arguments, printer: Printer) -> Result<Exit, Exit> {
    let asked = &arguments.change;
    let usage = |message: &str| printer.fail("UsageError", message, Exit::Usage);
    if asked.prune.is_some() {
        return Err(usage(NO_PRUNING));
    }

    let mut load_options = arguments.load.options().map_err(|error| printer.error(&error))?;
    // The original is what is converted.
    load_options.providers.precision = Some(Precision::Exact);
    let pipeline = arguments.pipeline.open_as(load_options.clone(), printer).map_err(|error| printer.error(&error))?;

    let models: Vec<_> =
        pipeline.models().filter(|(name, _)| asked.model.as_deref().is_none_or(|wanted| wanted == *name)).collect();
    if models.is_empty() {
        let known: Vec<_> = pipeline.models().map(|(name, _)| format!("`{name}`")).collect();
        let wanted = asked.model.as_ref().map(|wanted| format!(" called `{wanted}`")).unwrap_or_default();
        let known = if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) };
        return Err(usage(&format!("the pipeline has no model{wanted}{known}")));
    }
    if models.len() > 1 && asked.fixes_shapes() {
        return Err(usage("the pipeline has several models: say with --model which is to have these shapes"));
    }

    let places = places(arguments, &pipeline, &models).map_err(|message| usage(&message))?;
    let samples = samples::samples(asked, &pipeline, printer)?;

    let (mut reports, mut texts) = (Vec::new(), TextOutput::default());
    for ((name, original), place) in models.into_iter().zip(places) {
        let change = ModelChange {
            asked,
            precision: arguments.converted_precision(),
            pipeline: &pipeline,
            load_options: &load_options,
            name,
            original,
            place,
            printer,
        };

        let report = change.make(arguments, &samples).map_err(|refused| refused.print(printer))?;
        if !printer.json {
            texts.write(printer, &report.text());
        }
        reports.push(report);
    }
    if printer.json {
        let models: Vec<_> = reports.iter().map(Report::to_json).collect();
        texts.write(printer, &pretty(&serde_json::json!({ "models": models })));
    }

    let written = texts.end(printer);
    Ok(if reports.iter().all(|report| report.refused.is_none()) { written } else { Exit::Failed })
}

/// The path of each changed model: beside the original, or that of `--output`. Rejects the paths of
/// models that the pipeline loads.
fn places(arguments: &Arguments, pipeline: &Pipeline, models: &[(&str, &ModelStep)]) -> Result<Vec<PathBuf>, String> {
    let mut words: Vec<&str> = Vec::new();
    if arguments.change.fixes_shapes() {
        words.push("fixed");
    }
    words.extend(arguments.converted_precision().map(Precision::name));
    let place = |(name, _): &(&str, &ModelStep)| {
        let source = source_of(pipeline, name);
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{stem}.{}.onnx", words.join("."));
        match &arguments.output {
            None if pipeline.source().digest().is_some() => Err(NOT_INTO_STORE.to_owned()),
            None => Ok(source.with_file_name(name)),
            Some(output) if output.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx")) => {
                if models.len() > 1 {
                    return Err(
                        "--output is one file, and there are several models: give a folder, or --model".to_owned()
                    );
                }
                Ok(output.clone())
            }
            Some(folder) => Ok(folder.join(name)),
        }
    };
    let places = models.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    for (at, place) in places.iter().enumerate() {
        let same = |(_, model): (&str, &ModelStep)| is_same(place, model.file().path());
        if pipeline.models().any(same) {
            return Err(format!("`{}` is a model of this pipeline, and is not written over", place.display()));
        }
        if places[..at].contains(place) {
            return Err(format!("two models would become `{}`: give --model and --output", place.display()));
        }
    }
    Ok(places)
}

/// The file of a model, as gpux.yml names it: where a link leads belongs to others.
fn source_of(pipeline: &Pipeline, name: &str) -> PathBuf {
    let spec = pipeline.spec().models.iter().find(|model| model.name.value == name);
    let source = spec.map_or(Path::new(""), |model| Path::new(&model.source.value));
    pipeline.path().with_file_name(source.strip_prefix(".").unwrap_or(source))
}

/// One model that is to be changed.
struct ModelChange<'a> {
    asked: &'a ChangeArguments,
    precision: Option<Precision>,
    pipeline: &'a Pipeline,
    load_options: &'a LoadOptions,
    name: &'a str,
    original: &'a ModelStep,
    place: PathBuf,
    printer: Printer,
}

impl ModelChange<'_> {
    fn make(self, arguments: &Arguments, samples: &samples::Samples) -> Result<Report, ChangeError> {
        let folder = parent_folder(&self.place);
        std::fs::create_dir_all(folder).map_err(|error| ChangeError::output(&self.place, &error))?;
        // In the folder where it will lie: it moves there in one step, or is gone.
        let staged = tempfile::Builder::new().prefix(".gpux-").tempdir_in(folder);
        let staged = staged.map_err(|error| ChangeError::output(&self.place, &error))?;
        let made = ChangedModel::create(&self, staged.path(), samples)?;
        // The whole pipeline is checked again, with this model in it.
        let mut load_options = self.load_options.clone();
        load_options.model_files = vec![(self.name.to_owned(), made.path.clone())];
        let changed = arguments.pipeline.open_without_warnings(&load_options).map_err(ChangeError::Pipeline)?;
        let Some((_, step)) = changed.models().find(|(name, _)| *name == self.name) else {
            return Err(ChangeError::Nothing);
        };
        let Evaluation { comparison, over } = samples.evaluate(self.name, self.original, step)?;
        let tolerance = self.asked.tolerance(self.precision);
        let off = comparison.worst().filter(|(_, error)| *error > tolerance);
        let is_zero =
            |wanted: &str| comparison.outputs.iter().any(|(output, accuracy)| output == wanted && accuracy.is_zero());
        let refused = off.map(|(output, error)| {
            let scale =
                if is_zero(output) { ", where the original gives only zeros," } else { " of its largest number," };
            format!("the output `{output}` is off by {error:.2e}{scale} and {tolerance} is accepted")
        });
        if refused.is_none() {
            made.persist(&self.place)?;
        }
        Ok(Report {
            model: self.name.to_owned(),
            source: source_of(self.pipeline, self.name),
            bytes: (self.original.file().info().size_bytes, step.file().info().size_bytes),
            providers: (self.original.provider(), step.provider()),
            precision: self.precision,
            inputs: step.file().info().inputs.clone(),
            line: if arguments.pipeline.file_with_extension("onnx").is_some() { None } else { self.line() },
            place: self.place,
            tools: made.tools,
            comparison,
            over,
            tolerance,
            refused,
        })
    }

    /// The line for gpux.yml.
    fn line(&self) -> Option<String> {
        let folder = resolve_path(parent_folder(self.pipeline.path())).ok()?;
        let place = resolve_path(parent_folder(&self.place)).ok()?.join(self.place.file_name()?);
        let source = match place.strip_prefix(&folder) {
            Ok(inside) => format!("./{}", inside.display()),
            Err(_) => place.display().to_string(),
        };
        Some(format!("source: {source}"))
    }
}

/// The folder of a file: a bare name has an empty parent, which is the working folder.
fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
