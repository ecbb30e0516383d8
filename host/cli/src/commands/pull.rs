//! `gpux pull`: a pipeline of a model as the hub has it.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::exit::Exit;
use crate::hub_pipeline::{MAX_SIZE, PullError, PullProgress, keep, report};
use crate::interrupt;
use crate::printer::{Printer, pretty};
use gpux::LoadOptions;
use gpux_author::{
    FilePlacement, HubModelReport, HubModelRequest, HubTask, ImageBackend, PRECISIONS, Pooling, folder_name,
    pipeline_for_hub_model,
};
use gpux_core::{Size, child_process};
use gpux_hub::{HubReference, HubSettings, Repository};
use gpux_store::Store;

/// Examples:
///   gpux pull hf:sentence-transformers/all-MiniLM-L6-v2
///   gpux pull hf:BAAI/bge-reranker-base@main --output reranker
///   optimum-cli export onnx --model MODEL exported && gpux pull ./exported
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A model of the hub, as hf:OWNER/NAME or hf:OWNER/NAME@REVISION; or a folder that is laid out like one, such as
    /// what Optimum exports
    #[arg(value_name = "MODEL")]
    model: String,

    /// The new folder [default: the model's name, in this folder]
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// Make no folder: only the store has the pipeline then, for `gpux run` and `gpux serve` with the model's name
    #[arg(long, conflicts_with = "output")]
    store_only: bool,

    /// What the model does [default: as its files say]
    #[arg(long, value_name = "TASK", value_parser = task_parser())]
    task: Option<HubTask>,

    /// Which of its ONNX files [default: onnx/model.onnx, else model.onnx, else the only one]
    #[arg(long, value_name = "PATH", conflicts_with = "precision")]
    file: Option<String>,

    /// The ONNX file of this precision, by the names of transformers.js: onnx/model_fp16.onnx, _quantized for q8
    #[arg(long, value_name = "PRECISION", value_parser = PossibleValuesParser::new(PRECISIONS))]
    precision: Option<String>,

    /// How the vectors of tokens become one, where no file says it
    #[arg(long, value_name = "HOW")]
    pooling: Option<PoolingName>,

    /// `none` leaves out the prompt that the model's files put before each text
    #[arg(long, value_name = "PROMPT", value_parser = ["none"])]
    prompt: Option<String>,

    /// Whose numbers pictures are resized with: transformers 5's, or those of the versions before
    #[arg(long, value_name = "LIBRARY", default_value = "torch")]
    image_backend: ImageBackendName,

    /// The most that is fetched
    #[arg(long, value_name = "SIZE", default_value_t = MAX_SIZE)]
    max_size: Size,

    /// The result, and errors, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PoolingName {
    Mean,
    Cls,
    Lasttoken,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ImageBackendName {
    Torch,
    Pillow,
}

fn task_parser() -> impl TypedValueParser<Value = HubTask> {
    PossibleValuesParser::new(HubTask::ALL.map(HubTask::name)).try_map(|name| name.parse::<HubTask>())
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(arguments.json, false);
    // Ctrl-C removes what is half made; what is fetched stays, and the next pull goes on from there.
    interrupt::install_handler();
    match pull(arguments, printer) {
        Ok((made, repository)) => print_report(arguments, &made, &repository, printer),
        Err(error) => report(&error, printer),
    }
}

fn pull(arguments: &Arguments, printer: Printer) -> Result<(HubModelReport, Repository), PullError> {
    let mut progress = PullProgress::new(printer);
    let model = &arguments.model;
    if !model.starts_with(HubReference::SCHEME) {
        let mut repository = Repository::folder(Path::new(model))?;
        let name = Path::new(model).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = arguments.output.clone().unwrap_or_else(|| folder_name(&name).into());
        let made = arguments.make(&folder, FilePlacement::Copies, &mut repository, &mut progress)?;
        return Ok((made, repository));
    }
    let reference: HubReference = model.parse()?;
    let (settings, store) = (HubSettings::from_environment()?, Store::from_environment()?);
    let mut repository = Repository::hub(&reference, &settings, store.clone(), arguments.max_size.0)?;
    let name = folder_name(reference.name());
    if arguments.store_only {
        let scratch = store.scratch()?;
        let folder = scratch.path().join(name);
        let made = arguments.make(&folder, FilePlacement::Links, &mut repository, &mut progress)?;
        keep(&store, &reference, &made)?;
        return Ok((made, repository));
    }
    let folder = arguments.output.clone().unwrap_or_else(|| name.into());
    let made = arguments.make(&folder, FilePlacement::Copies, &mut repository, &mut progress)?;
    keep(&store, &reference, &made)?;
    Ok((made, repository))
}

impl Arguments {
    fn make(
        &self,
        folder: &Path,
        placement: FilePlacement,
        repository: &mut Repository,
        progress: &mut PullProgress,
    ) -> Result<HubModelReport, PullError> {
        let mut load_options = LoadOptions::default();
        load_options.program = child_process::own_program().ok();
        let request = HubModelRequest {
            folder,
            reference: &self.model,
            task: self.task,
            file: self.file.as_deref(),
            precision: self.precision.as_deref(),
            pooling: self.pooling.map(|pooling| match pooling {
                PoolingName::Mean => Pooling::Mean,
                PoolingName::Cls => Pooling::Cls,
                PoolingName::Lasttoken => Pooling::LastToken,
            }),
            without_prompt: self.prompt.is_some(),
            image_backend: match self.image_backend {
                ImageBackendName::Torch => ImageBackend::Torch,
                ImageBackendName::Pillow => ImageBackend::Pillow,
            },
            placement,
            load_options: &load_options,
        };
        Ok(pipeline_for_hub_model(&request, repository, progress)?)
    }
}

fn print_report(arguments: &Arguments, report: &HubModelReport, repository: &Repository, printer: Printer) -> Exit {
    let HubModelReport { made, task, model } = report;
    let (folder, facts) = (made.folder.display(), repository.facts());
    if printer.json {
        let json = json!({
            "name": made.name, "folder": folder.to_string(), "files": made.files, "task": task.name(), "model": model,
            "commit": facts.commit, "license": facts.license,
        });
        return printer.print_result(&pretty(&json));
    }
    if arguments.store_only {
        return printer.print_result(&format!("{} is in the store, for {task}, of {model}", arguments.model));
    }
    let files: Vec<_> = made.files.iter().map(|file| format!("  {folder}/{file}")).collect();
    let commit = facts.commit.as_ref().map_or_else(String::new, |commit| format!(" at {commit}"));
    let license =
        facts.license.as_ref().map_or_else(String::new, |license| format!("\nlicence, as its card says: {license}"));
    printer.print_result(&format!(
        "{folder} is made, for {task}, of {model}{commit}:\n{}{license}\n\nNext:\n  \
         gpux test {folder}     runs it on its sample and compares\n  \
         gpux serve {folder}    answers on HTTP, with a page to try it",
        files.join("\n")
    ))
}
