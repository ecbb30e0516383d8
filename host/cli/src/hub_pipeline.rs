//! Pipelines that are named by a model of the hub: fetched, made, and kept in the store.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use indicatif::{MultiProgress, ProgressBar};

use crate::exit::Exit;
use crate::printer::Printer;
use gpux_author::{HubModelError, HubModelReport};
use gpux_core::{Size, child_process};
use gpux_hub::{FileProgress, HubError, HubReference, TransferProgress};
use gpux_store::{Store, StoreError, StoredPipeline};

/// What a pull fetches at most, unless `--max-size` says otherwise.
pub(crate) const MAX_SIZE: Size = Size(32 << 30);
/// Files beyond this size get a line where there is no terminal.
const LARGE: u64 = 8 << 20;

/// Whether a model of the hub is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PullPolicy {
    /// if it is not in the store
    Missing,
    /// in any case: its revision may be another commit now
    Always,
    /// not at all
    Never,
}

/// How commands that run pipelines take models of the hub.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PullArguments {
    /// Whether `hf:OWNER/NAME` is fetched
    #[arg(long, value_enum, default_value_t = PullPolicy::Missing, value_name = "WHEN")]
    pull: PullPolicy,
}

/// Why there is no pipeline for a name of the hub.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    #[error(transparent)]
    Reference(#[from] gpux_hub::ReferenceError),
    #[error(transparent)]
    Model(#[from] HubModelError),
    #[error("`{0}` is not in the store, and `--pull never` forbids to fetch it: `gpux pull {0}` does")]
    Never(String),
    #[error(
        "there is no gpux.lock in `{}`: name a model of the hub, as `gpux pull hf:OWNER/NAME`, or a folder that has one", .0.display()
    )]
    NoLock(PathBuf),
    #[error(
        "`{}` has a gpux.lock, whose files are fetched into it: leave out --output, --store-only and what says how a \
         pipeline is made", .0.display()
    )]
    HasLock(PathBuf),
    #[error("`{}` has no gpux.lock yet, and --locked forbids to write one", .0.display())]
    Unlocked(PathBuf),
    #[error(
        "`{folder}` is a pipeline of {locked}, not of {named}: name another folder with --output, or replace it with --force"
    )]
    OtherModel { folder: String, locked: String, named: String },
    #[error(
        "{revision}: was {was}, is {is}. `{folder}` is left as it is: --force makes it of the new commit, and `gpux pull \
         {folder}` restores the old one's files"
    )]
    Moved { folder: String, revision: String, was: String, is: String },
    /// files are other than the lock says
    #[error(
        "{} {} not what gpux.lock says: --force replaces {}", files.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(", "),
        if files.len() == 1 { "is" } else { "are" }, if files.len() == 1 { "it" } else { "them" }
    )]
    Changed { files: Vec<String> },
    #[error("`gpux pull` cannot be started: {0}")]
    Start(std::io::Error),
    /// it has said why
    #[error("`gpux pull` has failed")]
    Child(Exit),
}

impl From<HubError> for PullError {
    fn from(error: HubError) -> Self {
        Self::Model(error.into())
    }
}

impl From<StoreError> for PullError {
    fn from(error: StoreError) -> Self {
        HubError::from(error).into()
    }
}

impl PullArguments {
    /// Has the store hold the model of the hub that `name` is, if it is one, and makes it the name in the store. What is
    /// not there is fetched by a child process, as it is run once: this process may be one that loads no model.
    pub(crate) fn fetch(self, name: &mut String, printer: Printer) -> Result<(), PullError> {
        if !name.starts_with(HubReference::SCHEME) {
            return Ok(());
        }
        let reference: HubReference = name.parse()?;
        let stored = store_name(&reference);
        let is_stored = Store::existing()?.map(|store| store.resolve_digest(&stored)).transpose()?.flatten().is_some();
        match self.pull {
            PullPolicy::Never if !is_stored => return Err(PullError::Never(std::mem::take(name))),
            PullPolicy::Missing | PullPolicy::Never if is_stored => {}
            _ => pull_in_child(&reference, printer)?,
        }
        *name = stored;
        Ok(())
    }
}

/// Has `gpux pull` put a model into the store; its progress and errors are those of this process.
fn pull_in_child(reference: &HubReference, printer: Printer) -> Result<(), PullError> {
    let program = child_process::own_program().map_err(PullError::Start)?;
    let mut command = Command::new(program);
    command.args(["pull", "--store-only", &reference.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
    if printer.json {
        command.arg("--json");
    }
    let status = command.status().map_err(PullError::Start)?;
    match status.code() {
        Some(0) => Ok(()),
        Some(2) => Err(PullError::Child(Exit::Usage)),
        Some(3) => Err(PullError::Child(Exit::Environment)),
        Some(130) => Err(PullError::Child(Exit::Interrupted)),
        _ => Err(PullError::Child(Exit::Failed)),
    }
}

/// The name of a model in the store.
pub(crate) fn store_name(reference: &HubReference) -> String {
    format!("{}{}@{}", HubReference::SCHEME, reference.id(), reference.revision().unwrap_or("main"))
}

/// Keeps a pipeline under its reference.
pub(crate) fn keep(
    store: &Store,
    reference: &HubReference,
    report: &HubModelReport,
) -> Result<StoredPipeline, PullError> {
    let made = &report.made;
    Ok(store.add_folder(&made.folder, &made.files, &store_name(reference), &made.name)?)
}

/// Prints why there is no pipeline.
pub(crate) fn report(error: &PullError, printer: Printer) -> Exit {
    let message = error.to_string();
    match error {
        PullError::Child(exit) => *exit,
        PullError::Model(HubModelError::Gpux(error)) => printer.error(error),
        PullError::Model(
            HubModelError::Hub(HubError::Store(
                StoreError::Damaged { .. } | StoreError::Missing { .. } | StoreError::Full { .. },
            ))
            | HubModelError::Run { .. },
        ) => printer.fail("PullError", &message, Exit::Failed),
        PullError::Model(HubModelError::Hub(HubError::Store(_))) | PullError::Start(_) => {
            printer.fail("EnvironmentError", &message, Exit::Environment)
        }
        PullError::Model(HubModelError::Hub(error)) if error.is_environment() => {
            printer.fail("EnvironmentError", &message, Exit::Environment)
        }
        PullError::Model(HubModelError::Hub(error)) => {
            printer.fail("PullError", &message, if error.is_about_name() { Exit::Usage } else { Exit::Failed })
        }
        PullError::Changed { .. } => printer.fail("PullError", &message, Exit::Failed),
        PullError::Model(HubModelError::Write { .. }) => printer.fail("OutputError", &message, Exit::Failed),
        PullError::Model(HubModelError::Fault { .. } | HubModelError::Scaffold(_))
        | PullError::Reference(_)
        | PullError::Never(_)
        | PullError::NoLock(_)
        | PullError::HasLock(_)
        | PullError::Unlocked(_)
        | PullError::OtherModel { .. }
        | PullError::Moved { .. } => printer.fail("UsageError", &message, Exit::Usage),
    }
}

/// A bar for each file on a terminal, else a line for each large one.
pub(crate) struct PullProgress {
    bars: MultiProgress,
    printer: Printer,
}

impl PullProgress {
    pub(crate) fn new(printer: Printer) -> Self {
        Self { bars: MultiProgress::new(), printer }
    }
}

impl TransferProgress for PullProgress {
    fn begin(&self, file: &str, size: u64, done: u64) -> Box<dyn FileProgress> {
        let bar = self.printer.download();
        if bar.is_hidden() && size >= LARGE {
            let before = if done > 0 { format!(", {} of it are there", Size(done)) } else { String::new() };
            self.printer.note(&format!("fetching {file} ({}{before})", Size(size)));
        }
        let bar = if bar.is_hidden() { bar } else { self.bars.add(bar) };
        bar.set_message(gpux_core::sanitize::sanitize_for_terminal(file));
        bar.set_length(size);
        bar.set_position(done);
        bar.reset_eta();
        Box::new(FileBar(bar))
    }

    fn note(&self, text: &str) {
        self.printer.note(text);
    }
}

/// The bar of one file, gone when it is dropped.
struct FileBar(ProgressBar);

impl FileProgress for FileBar {
    fn advance(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for FileBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
