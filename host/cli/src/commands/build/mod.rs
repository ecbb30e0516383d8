//! `gpux build`: everything that can be done before the first request.

mod componentize;
mod model_change;
mod step;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

pub(crate) use step::build_step;

use crate::exit::Exit;
use crate::input::InputArguments;
use crate::load_arguments::{LoadArguments, PipelineArguments};
use crate::nodes;
use crate::precision;
use crate::printer::{Printer, duration, pluralize, pretty};
use crate::progress::ProgressLine;
use gpux::GpuxError;
use gpux::{LoadOptions, Pipeline};
use gpux_author::choose_precision;
use gpux_core::Precision;
use gpux_inference::InputShapes;

/// Check a pipeline: the file, its models, its components, and that every step fits the next.
/// Compiles the components, tries the models and keeps their graphs optimized, so that the first
/// run finds them ready.
///
/// With the folder of a step (it has a step.yml), builds the step from its sources: runs the
/// build of its language, or its own commands. That is as safe as its sources are. Nothing is built where
/// nothing has changed; missing tools are installed in gpux's cache.
///
/// With --precision fp16 or int8 (dynamic quantization), or with --shape, makes another model beside
/// each, and says what that does to size, speed and results; refuses where results are off by too much.
/// Another precision takes Python with the packages onnx and onnxruntime, which gpux installs in its cache if need be.
///
/// With `precision: auto` in gpux.yml, or --precision auto, measures every provider and precision that
/// this machine has for the models, and remembers the fastest whose results stay close to exact.
///
/// With a .wasm file, checks that it is a step and, with --output, writes it as a component.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// Where to write the component, when a .wasm file is built; the changed model (.onnx), or a
    /// folder for it
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Keep names and debug information in the component
    #[arg(long)]
    no_strip: bool,

    /// Build a step even where its sources, tools and options are those of the last build
    #[arg(long)]
    force: bool,

    /// Measure which execution provider runs each model fastest, and remember it for
    /// `--provider fastest`
    #[arg(long)]
    measure: bool,

    /// Do not keep the graphs of models as ONNX Runtime's optimizations leave them; models then load
    /// as they are, and are optimized at each start
    #[arg(long)]
    no_optimize: bool,

    /// The result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    change: model_change::ChangeArguments,

    #[command(flatten)]
    load: LoadArguments,

    /// Say more: of a step's build, everything it prints; of a pipeline, where the nodes of its models run
    #[arg(long)]
    verbose: bool,
}

impl Arguments {
    /// The precision of a model that is to be made.
    fn converted_precision(&self) -> Option<Precision> {
        self.load.precision.filter(|precision| precision.is_converted())
    }
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(arguments.json, arguments.verbose);
    if let Some(path) = arguments.pipeline.file_with_extension("wasm") {
        return componentize::main(&path, arguments, printer);
    }
    if let Some(flag) = arguments.change.orphan_flag(&arguments.load) {
        let message = format!("{flag} goes with --precision, --shape or --dim");
        return printer.fail("UsageError", &message, Exit::Usage);
    }
    if arguments.change.is_given(arguments.converted_precision()) {
        return model_change::main(arguments, printer);
    }
    if arguments.output.is_some() {
        let message = "--output goes with a .wasm file, --precision or --shape; a pipeline is built into the cache, \
                       and a step to the `output` of its step.yml";
        return printer.fail("UsageError", message, Exit::Usage);
    }
    if let Some(folder) = arguments.pipeline.step_folder() {
        return step::main(&folder, arguments, printer);
    }
    pipeline(arguments, printer)
}

fn pipeline(arguments: &Arguments, printer: Printer) -> Exit {
    let start = Instant::now();
    let load_options = arguments.load.options().map(|mut load_options| {
        load_options.optimize = !arguments.no_optimize;
        if arguments.measure {
            load_options.providers.shapes = shapes(arguments, &load_options);
            load_options.providers.measure = true;
        }
        load_options
    });

    if let Ok(load_options) = &load_options {
        let samples = &arguments.change.sample;
        let (pipeline, input) = (arguments.pipeline.path(), InputArguments::of_files(samples));
        match choose_precision(&pipeline, input, load_options, &|text| printer.detail(text)) {
            Ok(None) => {}
            Ok(Some(report)) => {
                printer.note(&precision::text(&report));
                if let Some(warning) = precision::warning(&report) {
                    printer.warning(warning);
                }
            }
            Err(error) => return printer.fail("PrecisionError", &error.message, error.category.into()),
        }
    }

    let pipeline = match load_options.and_then(|load_options| arguments.pipeline.open_as(load_options, printer)) {
        Ok(pipeline) => pipeline,
        Err(error) => return printer.error(&error),
    };

    let line = ProgressLine::start(printer, "trying the models and the cases");
    if let Err(error) = rehearse(&pipeline) {
        return printer.error(&error);
    }
    if let Err(reason) = gpux_author::verify_batching(&pipeline) {
        return printer.fail("ConfigurationError", &reason, Exit::Usage);
    }
    drop(line);

    for (step, file) in pipeline.tokenizers() {
        printer.note(&format!("{step} reads the tokenizer {file}"));
    }

    let mut report = pipeline.to_json();
    if arguments.verbose {
        nodes_of(arguments, &pipeline, &mut report, printer);
    }

    let text = if arguments.json {
        pretty(&report)
    } else {
        let spec = pipeline.spec();
        let steps = pluralize(pipeline.plan().all_steps().len(), "step");
        format!(
            "{} {}: {steps}, {}; ready in {}",
            spec.name.value,
            spec.version.value,
            pipeline.engine(),
            duration(start.elapsed())
        )
    };
    printer.print_result(&text)
}

/// Runs each model of the embedded engine once: on made-up inputs, or on those of a golden case.
fn rehearse(pipeline: &Pipeline) -> Result<(), GpuxError> {
    for (name, model) in pipeline.models() {
        if let Err(error) = model.smoke_test()
            && !gpux_author::observed_shapes(pipeline).iter().any(|(ran, _)| ran == name)
        {
            return Err(error.into());
        }
    }
    Ok(())
}

/// With `--verbose`: where the nodes of each model run.
fn nodes_of(arguments: &Arguments, pipeline: &Pipeline, report: &mut serde_json::Value, printer: Printer) {
    let Ok(load_options) = arguments.load.options() else { return };
    for (index, (name, step)) in pipeline.models().enumerate() {
        let options = &step.sessions().options().provider_options;
        let file = step.file();
        match nodes::report(&load_options, file, file.info(), &[step.provider()], options) {
            Ok(found) => {
                printer.detail(&format!("model {name}: {}\n", nodes::text(&found)));
                report["models"][index]["nodes"] = serde_json::to_value(&found).unwrap_or_default();
            }
            Err(error) => printer.warning(&format!("where the nodes of `{name}` run is not known: {error}")),
        }
    }
}

/// The inputs of the models in the pipeline's golden cases, run on the CPU. Empty without cases;
/// errors of the pipeline are reported when it is opened for the build.
fn shapes(arguments: &Arguments, load_options: &LoadOptions) -> Vec<(String, InputShapes)> {
    let mut on_cpu = load_options.clone();
    on_cpu.providers.names = Some("cpu".to_owned());
    arguments
        .pipeline
        .open_without_warnings(&on_cpu)
        .map(|pipeline| gpux_author::observed_shapes(&pipeline))
        .unwrap_or_default()
}
