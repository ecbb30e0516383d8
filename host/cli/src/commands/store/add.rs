//! `gpux store add`: keeps a pipeline.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::{digest, report};
use crate::exit::Exit;
use crate::load_arguments::{LoadArguments, PipelineArguments};
use crate::printer::{Printer, pretty, size};
use gpux::Pipeline;
use gpux_store::{DIGEST_SCHEME, Store, StoreError, StoredPipeline, is_name};

/// Examples:
///   gpux store add .
///   gpux store add digits-1.0.0.tar
///   gpux store add digits --name digits:latest
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// What it is called in the store [default: its name and version, as NAME:VERSION]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The result, and errors, as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    load: LoadArguments,
}

pub(super) fn main(arguments: &Arguments, printer: Printer) -> Exit {
    match add(arguments, printer) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn add(arguments: &Arguments, printer: Printer) -> Result<Exit, Exit> {
    let fail = |error: StoreError| report(&error, printer);
    let load_options = arguments.load.options().map_err(|error| printer.error(&error))?;
    let definition = arguments.pipeline.read(&load_options).map_err(|error| printer.error(&error))?;
    let store = Store::from_environment().map_err(fail)?;
    let spec = definition.spec();
    let name = arguments.name.clone().unwrap_or_else(|| format!("{}:{}", spec.name.value, spec.version.value));
    if !is_name(&name) {
        return Err(fail(StoreError::Name(name)));
    }
    let before = store.resolve_digest(&name).map_err(fail)?;
    let kept = match definition.source().digest() {
        // It is there already, and gets one more name.
        Some(digest) => {
            let digits = digest.strip_prefix(DIGEST_SCHEME).unwrap_or(&digest);
            let kept = store.pipeline(digits).map_err(fail)?;
            store.add_name(&name, digits).map(|_| kept)
        }
        None => {
            let pipeline = Pipeline::load(definition, &load_options).map_err(|error| printer.error(&error))?;
            add_folder(&store, &pipeline, &name)
        }
    };
    let kept = kept.map_err(fail)?;
    let replaced = before.filter(|before| *before != kept.manifest);
    let bytes = kept.size();
    if printer.json {
        let json = json!({
            "name": name, "digest": digest(&kept.manifest), "files": kept.files.len(), "bytes": bytes,
            "replaced": replaced.as_deref().map(digest),
        });
        return Ok(printer.print_result(&pretty(&json)));
    }
    let replaced = replaced.map(|digits| format!("; it was {} before", digest(&digits))).unwrap_or_default();
    let files = super::plural(kept.files.len(), "file");
    Ok(printer.print_result(&format!(
        "{name} is in the store: {files} of {}{replaced}\n{}",
        size(bytes),
        digest(&kept.manifest)
    )))
}

/// The files that a pipeline names, its tests, and what is there for people.
fn add_folder(store: &Store, pipeline: &Pipeline, name: &str) -> Result<StoredPipeline, StoreError> {
    let folder = pipeline.path().parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut files: BTreeSet<String> = BTreeSet::new();
    let root = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    for path in pipeline.files().keys().filter_map(|path| path.canonicalize().ok()) {
        if let Ok(path) = path.strip_prefix(&root) {
            files.insert(path.to_string_lossy().into_owned());
        }
    }
    store.add_folder(folder, &files.into_iter().collect::<Vec<_>>(), name, &pipeline.spec().name.value)
}
