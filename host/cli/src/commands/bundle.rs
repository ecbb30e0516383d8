//! `gpux bundle`: a pipeline with all its files as one file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value as Json, json};

use crate::exit::Exit;
use crate::interrupt;
use crate::load_arguments::{LoadArguments, PipelineArguments, load};
use crate::printer::{Printer, pluralize, pretty, size, table};
use gpux::internal::{Definition, engine_library};
use gpux::{GpuxError, LoadOptions};
use gpux_author::{BundleContents, BundleError, BundleRequest, LeftOutFiles, bundle_contents};
use gpux_core::files::{is_same, open_file};
use gpux_core::process_exit::Scratch;
use gpux_store::{BundlePlan, FileSource, StoreError, StoredPipeline, file_digest};

/// What begins the names of folders for what is half written.
const STAGING: &str = ".gpux-bundle-";
/// The file, or the folder, in it.
const STAGED: &str = "bundle";
/// What its process holds a lock of.
const LOCK: &str = "lock";
/// A lock that nobody holds after so long was left by a process that was killed.
const LEFT_BEHIND: Duration = Duration::from_mins(1);
/// The most entries of what is left out that are shown, and that JSON has.
const SHOWN: usize = 5;
const LISTED: usize = 100;
/// Digits of a digest in the table.
const DIGITS: usize = 12;
/// A model or a component alone has no gpux.yml to bundle.
pub(super) const PIPELINES: &str =
    "A folder with a gpux.yml, such a file, the `name` in one, a bundle, or a name in the store";

/// Put a pipeline with all its files into one file.
///
/// The file has what the pipeline names: gpux.yml, models with their weights, components, tokenizers, labels, golden
/// cases, README, licences, and nothing else. The same files give the same digest, which is printed last.
///
/// Examples:
///   gpux bundle                               NAME-VERSION.tar of the pipeline of this folder
///   gpux bundle digits --dry-run              only say what would be in it
///   gpux bundle digits -o /srv/digits.tar     another name
///   gpux bundle digits -o digits.oci/         a folder with an OCI layout instead of an archive
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, mut_arg("pipeline", |argument| argument.help(PIPELINES).long_help(PIPELINES)))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// The file; a folder, if it ends with a slash or is one that is empty [default: NAME-VERSION.tar in this folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(long)]
    force: bool,

    /// Write nothing; say what would be in the bundle, and its digest
    #[arg(long)]
    dry_run: bool,

    /// Put copies of files from outside of the folder into the bundle, and change their paths in its gpux.yml
    #[arg(long)]
    vendor: bool,

    /// Load the pipeline, and say in the bundle with which engine: its version, its library's digest, the provider
    #[arg(long)]
    pub(crate) with_engine: bool,

    /// The result, and errors, as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    load: LoadArguments,
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(arguments.json, false);
    // Ctrl-C removes what is half written.
    interrupt::install_handler();
    bundle(arguments, printer).unwrap_or_else(|exit| exit)
}

fn bundle(arguments: &Arguments, printer: Printer) -> Result<Exit, Exit> {
    let mut load_options = arguments.load.options().map_err(|error| printer.error(&error))?;
    load_options.policy.outside_files |= arguments.vendor;
    let definition = arguments.pipeline.read_for_others(&load_options, printer)?;
    let annotations = if arguments.with_engine {
        engine_annotations(&definition, &load_options, printer)?
    } else {
        definition.source().engine_annotations().cloned().unwrap_or_default()
    };
    let (vendor, load_options) = (arguments.vendor, &load_options);
    let request = BundleRequest { definition: &definition, load_options, vendor, annotations };
    let contents = bundle_contents(&request).map_err(|error| report(&error, printer))?;

    for note in &contents.notes {
        printer.warning(note);
    }
    if !contents.left_out.groups.is_empty() {
        printer.note(&left_out(&contents.left_out));
    }
    let output = Output::of(arguments, &contents.plan, printer)?;
    let sources = contents.plan.files().filter_map(|(file, _)| match &file.source {
        FileSource::Path(path) => Some(path.as_path()),
        FileSource::Bytes(_) => None,
    });
    if let Some(path) = output.path()
        && sources.chain([definition.source().path()]).any(|source| is_same(source, path))
    {
        let message = format!("`{}` is a file of the pipeline, and is not written over", path.display());
        return Err(printer.fail("UsageError", &message, Exit::Usage));
    }
    let bar = printer.download();
    bar.set_message("bundling");
    bar.set_length(contents.plan.size());
    let written = output.write(&contents.plan, arguments.force, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let written = written.map_err(|error| report(&error.into(), printer))?;
    Ok(print_result(&contents, &written, output.path(), printer))
}

/// What the bundle says of the engine.
fn engine_annotations(
    definition: &Definition,
    load_options: &LoadOptions,
    printer: Printer,
) -> Result<BTreeMap<String, String>, Exit> {
    let pipeline = load(definition.clone(), load_options, printer).map_err(|error| printer.error(&error))?;
    let Some((_, first)) = pipeline.models().next() else {
        return Err(printer.fail("UsageError", "`--with-engine`: the pipeline has no model", Exit::Usage));
    };
    let mut providers: Vec<_> = pipeline.models().map(|(_, step)| step.provider().name()).collect();
    providers.dedup();
    let mut said = vec![
        ("dev.gpux.engine", first.engine().name().to_owned()),
        ("dev.gpux.engine.provider", providers.join(",")),
        ("dev.gpux.engine.platform", format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)),
    ];
    if let Some(library) = engine_library(definition, load_options) {
        let digest = file_digest(&library).map_err(|error| {
            printer.environment(&format!("cannot read the engine's library `{}`: {error}", library.display()))
        })?;
        said.push(("dev.gpux.engine.digest", format!("sha256:{digest}")));
    }
    Ok(said.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Where the bundle goes.
enum Output {
    Nowhere,
    Archive(PathBuf),
    Folder(PathBuf),
}

impl Output {
    fn of(arguments: &Arguments, plan: &BundlePlan, printer: Printer) -> Result<Self, Exit> {
        if arguments.dry_run {
            return Ok(Self::Nowhere);
        }
        let fail = |message: String| Err(printer.fail("UsageError", &message, Exit::Usage));
        let path = arguments.output.clone().unwrap_or_else(|| file_name(plan).into());
        let shown = path.display();
        if path.as_os_str() == "-" {
            return fail("a bundle is written to a file: its first part is known last".to_owned());
        }
        let is_folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if is_folder {
            let is_empty = path.read_dir().map_or(!path.exists(), |mut entries| entries.next().is_none());
            if !is_empty {
                return fail(format!("the folder `{shown}` is not empty; name a new one, or a file in it"));
            }
            return Ok(Self::Folder(path));
        }
        let there = path.symlink_metadata().ok();
        if there.as_ref().is_some_and(|there| !there.is_file() && !there.is_symlink()) {
            return fail(format!("`{shown}` is no file, and is not replaced; `--output` names another"));
        }
        if there.is_some() && !arguments.force {
            return fail(format!("`{shown}` exists; `--force` replaces it, `--output` names another file"));
        }
        Ok(Self::Archive(path))
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Nowhere => None,
            Self::Archive(path) | Self::Folder(path) => Some(path),
        }
    }

    /// Writes it beside its place first: whatever ends the process, there is a whole bundle or none.
    fn write(
        &self,
        plan: &BundlePlan,
        replaces: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<StoredPipeline, StoreError> {
        let Some(path) = self.path() else { return plan.digest(progress) };
        let failed = |source| StoreError::File { action: "write", path: path.to_owned(), source };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        remove_left_behind(parent);
        let scratch =
            Scratch::with_prefix(STAGING, parent).map_err(|error| failed(gpux_core::files::without_path(&error)))?;
        let lock = File::create_new(scratch.path().join(LOCK)).map_err(failed)?;
        // Held while it is written. A file system without locks does without.
        let _ = lock.try_lock();
        let staged = scratch.path().join(STAGED);
        let written = if let Self::Folder(_) = self {
            std::fs::create_dir(&staged).map_err(failed)?;
            plan.write_folder(&staged, progress)?
        } else {
            plan.write_archive(&mut File::create_new(&staged).map_err(failed)?, path, progress)?
        };
        if let Self::Folder(_) = self {
            // Over nothing, or over an empty folder.
            return std::fs::rename(&staged, path).map(|()| written).map_err(failed);
        }
        // Another may have been made there meanwhile. Where there are no links, that one is lost.
        match std::fs::hard_link(&staged, path) {
            Err(error) if !replaces && error.kind() == ErrorKind::AlreadyExists => Err(failed(error)),
            Ok(()) => Ok(written),
            Err(_) => std::fs::rename(&staged, path).map(|()| written).map_err(failed),
        }
    }
}

/// Removes what killed processes were writing beside it. What cannot be removed costs room, no more.
fn remove_left_behind(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let lock = entry.path().join(LOCK);
        let is_old = |file: &File| {
            let made = file.metadata().and_then(|metadata| metadata.modified());
            made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LEFT_BEHIND))
        };
        if entry.file_name().as_encoded_bytes().starts_with(STAGING.as_bytes())
            // A link is no folder here, and none is followed.
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && !lock.is_symlink()
            && open_file(&lock, "it").is_ok_and(|file| is_old(&file) && file.try_lock().is_ok())
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The name of the file by default.
fn file_name(plan: &BundlePlan) -> String {
    let info = plan.info();
    let safe = |text: &str| -> String {
        text.chars().map(|c| if c.is_alphanumeric() || "._+-".contains(c) { c } else { '-' }).collect()
    };
    match &info.version {
        Some(version) => format!("{}-{}.tar", safe(&info.name), safe(version)),
        None => format!("{}.tar", safe(&info.name)),
    }
}

fn left_out(left_out: &LeftOutFiles) -> String {
    let one = |group: &gpux_author::LeftOut| match group.files {
        1 => format!("{} ({})", group.path, size(group.bytes)),
        files => format!("{} ({}, {files} files)", group.path, size(group.bytes)),
    };
    let mut shown: Vec<_> = left_out.groups.iter().take(SHOWN).map(one).collect();
    if left_out.groups.len() > SHOWN {
        shown.push("…".to_owned());
    }
    let least = if left_out.is_incomplete { "at least " } else { "" };
    let files = pluralize(left_out.files(), "file");
    format!("left out: {least}{files}, {}: {}", size(left_out.bytes()), shown.join(", "))
}

fn print_result(contents: &BundleContents, written: &StoredPipeline, path: Option<&Path>, printer: Printer) -> Exit {
    let digest = format!("sha256:{}", written.manifest);
    if printer.json {
        let files: Vec<_> = written
            .files
            .iter()
            .map(|file| {
                let digest = format!("sha256:{}", file.sha256);
                json!({ "path": file.path, "role": file.role.name(), "bytes": file.size, "digest": digest })
            })
            .collect();
        let left_out = &contents.left_out;
        let groups: Vec<Json> = left_out
            .groups
            .iter()
            .take(LISTED)
            .map(|group| json!({ "path": group.path, "files": group.files, "bytes": group.bytes }))
            .collect();
        let json = json!({
            "file": path.map(|path| path.display().to_string()),
            "name": written.name(),
            "version": written.version(),
            "digest": digest,
            "bytes": written.size(),
            "files": files,
            "left_out": {
                "files": left_out.files(), "bytes": left_out.bytes(), "complete": !left_out.is_incomplete,
                "largest": groups,
            },
            "annotations": written.annotations,
        });
        return printer.print_result(&pretty(&json));
    }
    let rows = written.files.iter().map(|file| {
        let digest = file.sha256.chars().take(DIGITS).collect();
        vec![file.path.clone(), file.role.name().to_owned(), size(file.size), digest]
    });
    let files = table(&["path", "role", "size", "sha256"], &[2], rows);
    let name = format!("{} {}", written.name().unwrap_or_default(), written.version().unwrap_or_default());
    let sum = format!("{}, {}", pluralize(written.files.len(), "file"), size(written.size()));
    let place = path.map_or_else(|| "not written".to_owned(), |path| path.display().to_string());
    printer.print_result(&format!("{files}\n\n{name}: {sum}, {place}\n{digest}"))
}

/// Prints why a pipeline's files cannot be gathered.
pub(super) fn report_pipeline(error: &GpuxError, printer: Printer) -> Exit {
    let exit = printer.error(error);
    if error.to_string().contains("--allow-outside") {
        printer.note("`--vendor` takes copies of files from outside of the folder along");
    }
    exit
}

fn report(error: &BundleError, printer: Printer) -> Exit {
    let message = error.to_string();
    match error {
        BundleError::Pipeline(error) => report_pipeline(error, printer),
        BundleError::Store(error) if error.is_environment() => printer.environment(&message),
        BundleError::Store(StoreError::Damaged { .. } | StoreError::Missing { .. }) => {
            printer.fail("StoreError", &message, Exit::Failed)
        }
        BundleError::Store(StoreError::File { action: "write" | "make" | "write into", .. }) => {
            printer.fail("OutputError", &message, Exit::Failed)
        }
        _ => printer.fail("UsageError", &message, Exit::Usage),
    }
}
