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
use gpux_hub::{
    HubError, HubReference, HubSettings, LOCK_FILE, LockedSource, Repository, RestoreOptions, RestoreReport, read_lock,
    replace_files, restore,
};
use gpux_store::Store;

/// Examples:
///   gpux pull hf:sentence-transformers/all-MiniLM-L6-v2
///   gpux pull hf:BAAI/bge-reranker-base@main --output reranker
///   optimum-cli export onnx --model MODEL exported && gpux pull ./exported
///   gpux pull --locked
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Arguments {
    /// A model of the hub, as hf:OWNER/NAME or hf:OWNER/NAME@REVISION; or a folder that is laid out like one, such as
    /// what Optimum exports; or a folder with a gpux.lock, whose missing files are fetched [default: this folder]
    #[arg(value_name = "MODEL")]
    model: Option<String>,

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

    /// Whose numbers pictures are resized with: transformers 5's, or those of the versions before [default:
    /// torch]
    #[arg(long, value_name = "LIBRARY")]
    image_backend: Option<ImageBackendName>,

    /// Replaces files of a folder with a gpux.lock: changed ones, and all of them if the model is named
    #[arg(long, conflicts_with = "store_only")]
    force: bool,

    /// Fails where gpux.lock would change, or is not there
    #[arg(long, conflicts_with_all = ["force", "store_only"])]
    locked: bool,

    /// Follows a repository to its new name, which gpux.lock says then
    #[arg(long)]
    follow_rename: bool,

    /// How many files are fetched at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,

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
        Ok(Pulled::Made { report, repository }) => print_report(arguments, &report, &repository, printer),
        Ok(Pulled::Restored { folder, report }) => print_restored(&folder, &report, printer),
        Err(error) => report(&error, printer),
    }
}

/// What a pull did.
enum Pulled {
    Made { report: HubModelReport, repository: Repository },
    Restored { folder: PathBuf, report: RestoreReport },
}

fn pull(arguments: &Arguments, printer: Printer) -> Result<Pulled, PullError> {
    let progress = PullProgress::new(printer);
    let model = arguments.model.as_deref().unwrap_or(".");
    if model.starts_with(HubReference::SCHEME) {
        return pull_model(arguments, &model.parse()?, printer, &progress);
    }
    let path = Path::new(model);
    if let Some(sources) = read_lock(path).map_err(HubError::from)? {
        if arguments.output.is_some() || arguments.store_only || arguments.makes_otherwise() {
            return Err(PullError::HasLock(path.to_owned()));
        }
        return arguments.restore(path, sources, &progress);
    }
    if arguments.model.is_none() || arguments.locked || arguments.force {
        return Err(PullError::NoLock(path.to_owned()));
    }
    let mut repository = Repository::folder(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = arguments.output.clone().unwrap_or_else(|| folder_name(&name).into());
    let report = arguments.make(&folder, model, FilePlacement::Copies, &mut repository, &progress)?;
    Ok(Pulled::Made { report, repository })
}

fn pull_model(
    arguments: &Arguments,
    named: &HubReference,
    printer: Printer,
    progress: &PullProgress,
) -> Result<Pulled, PullError> {
    let (settings, store) = (arguments.settings()?, Store::from_environment()?);
    let folder = arguments.output.clone().unwrap_or_else(|| folder_name(named.name()).into());
    let locked = match read_lock(&folder) {
        _ if arguments.store_only => None,
        Err(_) if arguments.force => None,
        read => read.map_err(HubError::from)?,
    };
    if arguments.locked && locked.is_none() {
        return Err(PullError::Unlocked(folder));
    }
    let mut repository = Repository::hub(named, &settings, store.clone(), arguments.max_size.0)?;
    let reference = match repository.reference() {
        Some(present) if present.id() != named.id() => {
            printer.note(&format!("`{}` is now `{}`", named.id(), present.id()));
            named.revision().map_or_else(|| present.clone(), |revision| present.at(revision))
        }
        _ => named.clone(),
    };
    let shown = reference.to_string();

    if let Some(sources) = locked {
        let same = check_lock(&folder, &sources, &repository);
        match same {
            Ok(()) if !arguments.force && !arguments.makes_otherwise() => {
                return arguments.restore(&folder, sources, progress);
            }
            Err(error) if !arguments.force => return Err(error),
            Err(PullError::Moved { revision, was, is, .. }) => {
                printer.note(&format!("{revision}: was {was}, is {is}"));
            }
            Ok(()) | Err(_) => {}
        }
    }
    if arguments.store_only || arguments.force && folder.join(LOCK_FILE).is_file() {
        let scratch = store.scratch()?;
        let name = folder.file_name().map_or_else(|| named.name().into(), std::ffi::OsStr::to_string_lossy);
        let draft = scratch.path().join(folder_name(&name));
        let mut report = arguments.make(&draft, &shown, FilePlacement::Links, &mut repository, progress)?;
        if !arguments.store_only {
            replace_files(&folder, &draft, &report.made.files)?;
        }
        keep(&store, &reference, &report)?;
        report.made.folder = if arguments.store_only { report.made.folder } else { folder };
        return Ok(Pulled::Made { report, repository });
    }
    let report = arguments.make(&folder, &shown, FilePlacement::Copies, &mut repository, progress)?;
    keep(&store, &reference, &report)?;
    Ok(Pulled::Made { report, repository })
}

/// Whether a folder's lock is about what was named, at the same commit.
fn check_lock(folder: &Path, sources: &[LockedSource], repository: &Repository) -> Result<(), PullError> {
    let (Some(named), Some(is)) = (repository.reference(), repository.facts().commit.clone()) else { return Ok(()) };
    let folder = folder.display().to_string();
    match sources {
        [source] if source.reference.id() == named.id() && source.commit == is => Ok(()),
        [source] if source.reference.id() == named.id() => {
            let revision = named.revision().unwrap_or("main").to_owned();
            Err(PullError::Moved { folder, revision, was: source.commit.clone(), is })
        }
        _ => {
            let locked: Vec<_> = sources.iter().map(LockedSource::from).collect();
            Err(PullError::OtherModel { folder, locked: locked.join(", "), named: named.to_string() })
        }
    }
}

impl Arguments {
    fn settings(&self) -> Result<HubSettings, PullError> {
        let mut settings = HubSettings::from_environment()?;
        settings.follows_renames = self.follow_rename;
        settings.jobs = self.jobs.into();
        Ok(settings)
    }

    /// Whether an option asks for another pipeline than that of the model's name alone.
    const fn makes_otherwise(&self) -> bool {
        self.task.is_some()
            || self.file.is_some()
            || self.precision.is_some()
            || self.pooling.is_some()
            || self.prompt.is_some()
            || self.image_backend.is_some()
    }

    /// Puts the files that a lock names into its folder.
    fn restore(&self, folder: &Path, sources: Vec<LockedSource>, progress: &PullProgress) -> Result<Pulled, PullError> {
        let (settings, store) = (self.settings()?, Store::from_environment()?);
        let options = RestoreOptions { force: self.force, locked: self.locked, max_size: self.max_size.0 };
        let report = restore(folder, sources, &settings, &store, options, progress)?;
        Ok(Pulled::Restored { folder: folder.to_owned(), report })
    }

    fn make(
        &self,
        folder: &Path,
        reference: &str,
        placement: FilePlacement,
        repository: &mut Repository,
        progress: &PullProgress,
    ) -> Result<HubModelReport, PullError> {
        let mut load_options = LoadOptions::default();
        load_options.program = child_process::own_program().ok();
        let request = HubModelRequest {
            folder,
            reference,
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
                None | Some(ImageBackendName::Torch) => ImageBackend::Torch,
                Some(ImageBackendName::Pillow) => ImageBackend::Pillow,
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
        let name = repository.reference().map_or_else(|| made.name.clone(), ToString::to_string);
        return printer.print_result(&format!("{name} is in the store, for {task}, of {model}"));
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

fn print_restored(folder: &Path, report: &RestoreReport, printer: Printer) -> Exit {
    let RestoreReport { sources, restored, changed } = report;
    let shown = folder.display();
    if !changed.is_empty() {
        return crate::hub_pipeline::report(&PullError::Changed { files: changed.clone() }, printer);
    }
    if printer.json {
        let sources: Vec<_> =
            sources.iter().map(|source| json!({ "from": source.from(), "commit": source.commit })).collect();
        let json = json!({ "folder": shown.to_string(), "sources": sources, "restored": restored });
        return printer.print_result(&pretty(&json));
    }
    let sources: Vec<_> = sources.iter().map(|source| format!("{} at {}", source.from(), source.commit)).collect();
    let mut lines = vec![format!("{shown} is what gpux.lock says, of {}", sources.join(", "))];
    lines.extend(restored.iter().map(|file| format!("  {shown}/{file} is restored")));
    printer.print_result(&lines.join("\n"))
}
