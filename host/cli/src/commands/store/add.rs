//! `gpux store add`: keeps a pipeline.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::{digest, report};
use crate::commands::bundle::{PIPELINES, report_pipeline};
use crate::exit::Exit;
use crate::load_arguments::{LoadArguments, PipelineArguments};
use crate::printer::{Printer, pluralize, pretty, size};
use gpux::LoadOptions;
use gpux::internal::Definition;
use gpux_author::{BundleError, BundleRequest, bundle_contents};
use gpux_hub::HubReference;
use gpux_store::{DIGEST_SCHEME, Store, StoreError, StoredPipeline, is_bundle, is_name, peek};

/// Examples:
///   gpux store add .
///   gpux store add digits-1.0.0.tar
///   gpux store add digits --name digits:latest
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, mut_arg("pipeline", |argument| argument.help(PIPELINES).long_help(PIPELINES)))]
pub(super) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// What it is called in the store [default: its name and version, as NAME:VERSION]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Keep copies of files from outside of the folder, too, and change their paths in the copy of its gpux.yml
    #[arg(long)]
    vendor: bool,

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
    let mut load_options = arguments.load.options().map_err(|error| printer.error(&error))?;
    load_options.policy.outside_files |= arguments.vendor;
    let store = Store::from_environment().map_err(fail)?;
    let bundle = arguments.pipeline.path();
    let is_new = is_bundle(&bundle) && add_bundle(&store, &bundle, printer).map_err(fail)?;
    let definition = arguments.pipeline.read_for_others(&load_options, printer)?;
    let spec = definition.spec();
    let (own, version) = (&spec.name.value, &spec.version.value);
    let name = arguments.name.clone().unwrap_or_else(|| format!("{own}:{version}"));
    // The operator may choose any name but a hub's; a pipeline cannot pass for one of another name or version.
    let is_plain = arguments.name.is_some() || ![own, version].iter().any(|part| part.contains([':', '@', '/']));
    if !is_name(&name) || !is_plain || name.starts_with(HubReference::SCHEME) {
        return Err(fail(StoreError::Name(name)));
    }
    let before = store.named_digest(&name).map_err(fail)?;
    let kept = match definition.source().digest() {
        // It is there already, and gets one more name.
        Some(digest) => {
            let digits = digest.strip_prefix(DIGEST_SCHEME).unwrap_or(&digest);
            let kept = store.pipeline(digits).map_err(fail)?;
            if !is_new {
                let bar = super::byte_bar(printer, "reading");
                bar.set_length(kept.size());
                let verified = store.verify(&kept, &mut |bytes| bar.inc(bytes));
                bar.finish_and_clear();
                verified.map_err(fail)?;
            }
            store.add_name(&name, digits).map_err(fail)?;
            kept
        }
        None => add_files(arguments, &definition, &load_options, &store, &name, printer)?,
    };
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
    let files = pluralize(kept.files.len(), "file");
    Ok(printer.print_result(&format!(
        "{name} is in the store: {files} of {}{replaced}\n{}",
        size(bytes),
        digest(&kept.manifest)
    )))
}

/// Keeps the files of a bundle, unless they are there.
fn add_bundle(store: &Store, path: &Path, printer: Printer) -> Result<bool, StoreError> {
    let pipeline = peek(path)?;
    if store.pipeline(&pipeline.manifest).is_ok() {
        return Ok(false);
    }
    let bar = super::byte_bar(printer, "adding");
    bar.set_length(pipeline.size());
    let added = store.add_bundle(path, None, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    added.map(|_| true)
}

/// Keeps the files that a bundle of the pipeline would have.
fn add_files(
    arguments: &Arguments,
    definition: &Definition,
    load_options: &LoadOptions,
    store: &Store,
    name: &str,
    printer: Printer,
) -> Result<StoredPipeline, Exit> {
    let (vendor, annotations) = (arguments.vendor, BTreeMap::new());
    let request = BundleRequest { definition, load_options, vendor, annotations };
    let contents = bundle_contents(&request).map_err(|error| match error {
        BundleError::Store(error) => report(&error, printer),
        BundleError::Pipeline(error) => report_pipeline(&error, printer),
        error => printer.usage(&error),
    })?;
    for note in &contents.notes {
        printer.warning(note);
    }
    let bar = super::byte_bar(printer, "adding");
    bar.set_length(contents.plan.size());
    let kept = store.add_files(&contents.plan, Some(name), &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    kept.map_err(|error| report(&error, printer))
}
