//! `gpux store`: pipelines that are kept on this machine, by name.

mod add;
mod list;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde_json::json;

use crate::exit::Exit;
use crate::printer::{Printer, pluralize, pretty, size, table};
use gpux_store::{PruneMode, Store, StoreError};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keep a pipeline, for `gpux run NAME` and `gpux serve NAME`
    Add(Box<add::Arguments>),
    /// List the pipelines by name, with their sizes
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the files of a pipeline, and what its manifest says
    Show {
        /// A name of the store, or sha256: and at least 12 digits
        #[arg(value_name = "NAME")]
        name: String,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Take names away; `gpux store prune` then frees the room
    Rm {
        /// Names, as `gpux store list` shows them
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove what no name needs and no process runs
    Prune {
        /// Only show what would be removed
        #[arg(long)]
        dry_run: bool,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Read every file and compare it with its digest; what is damaged is set aside, so that the next `gpux store add` or
    /// `gpux pull` puts it right
    Check {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let json = match &arguments.command {
        Command::Add(add) => add.json,
        Command::List { json }
        | Command::Show { json, .. }
        | Command::Rm { json, .. }
        | Command::Prune { json, .. }
        | Command::Check { json } => *json,
    };
    let printer = crate::printer(json, false);
    let done = match &arguments.command {
        Command::Add(arguments) => return add::main(arguments, printer),
        Command::List { .. } => list::list(printer),
        Command::Show { name, .. } => list::show(name, printer),
        Command::Rm { names, .. } => rm(names, printer),
        Command::Prune { dry_run, .. } => prune(*dry_run, printer),
        Command::Check { .. } => check(printer),
    };
    done.unwrap_or_else(|error| report(&error, printer))
}

/// Prints why the store did not do it.
pub(super) fn report(error: &StoreError, printer: Printer) -> Exit {
    let (kind, exit) = if error.is_environment() {
        ("EnvironmentError", Exit::Environment)
    } else if error.is_about_name() {
        ("UsageError", Exit::Usage)
    } else {
        ("StoreError", Exit::Failed)
    };
    printer.fail(kind, &error.to_string(), exit)
}

fn wait_note(printer: Printer) -> impl FnOnce() {
    move || printer.note("waiting for another gpux that adds to the store, or begins to run a pipeline of it")
}

fn rm(names: &[String], printer: Printer) -> Result<Exit, StoreError> {
    let store = Store::from_environment()?;
    store.remove_names(names)?;
    if printer.json {
        return Ok(printer.print_result(&pretty(&json!({ "removed": names }))));
    }
    let removed = gpux_core::list(names, "and");
    let verb = if names.len() == 1 { "is no name" } else { "are no names" };
    Ok(printer.print_result(&format!("{removed} {verb} any more; `gpux store prune` frees what no other name needs")))
}

fn prune(is_dry_run: bool, printer: Printer) -> Result<Exit, StoreError> {
    let store = Store::from_environment()?;
    let mode = if is_dry_run { PruneMode::Count } else { PruneMode::Remove };
    let report = store.prune(mode, wait_note(printer))?;
    if printer.json {
        let json = json!({
            "dry_run": is_dry_run, "files": report.blobs, "folders": report.folders, "downloads": report.parts,
            "bytes": report.bytes, "running": report.used.iter().map(|digits| digest(digits)).collect::<Vec<_>>(),
        });
        return Ok(printer.print_result(&pretty(&json)));
    }
    for digits in &report.used {
        printer.note(&format!("{} has no name, and stays while a process runs it", digest(digits)));
    }
    let verb = if is_dry_run { "would free" } else { "freed" };
    let counts = [(report.blobs, "file"), (report.folders, "folder"), (report.parts, "download")];
    let counts: Vec<_> =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| pluralize(count, what)).collect();
    let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
    Ok(printer.print_result(&format!("{verb} {}{counts} of {}", size(report.bytes), store.root().display())))
}

fn check(printer: Printer) -> Result<Exit, StoreError> {
    let store = Store::from_environment()?;
    let bar = byte_bar(printer, "reading");
    bar.set_length(store.blob_bytes());
    let report = store.check(wait_note(printer), |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let report = report?;
    let exit = if report.is_clean() { Exit::Done } else { Exit::Failed };
    let printed = if printer.json {
        let damaged: Vec<_> = report.damaged.iter().map(|path| path.display().to_string()).collect();
        printer.print_result(&pretty(&json!({
            "files": report.blobs, "bytes": report.bytes, "damaged": damaged, "pipelines": report.hurt,
        })))
    } else if report.is_clean() {
        let read = format!("{} of {}", pluralize(report.blobs, "file"), size(report.bytes));
        printer.print_result(&format!("{read}, each as its digest says, in {}", store.root().display()))
    } else {
        let damaged = report.damaged.iter().map(|path| vec![path.display().to_string(), "is damaged".to_owned()]);
        let hurt = report.hurt.iter().map(|(name, reason)| vec![name.clone(), reason.clone()]);
        printer.print_result(&table(&["", ""], &[], damaged.chain(hurt)))
    };
    Ok(if printed == Exit::Done { exit } else { printed })
}

/// A bar for bytes that are read.
fn byte_bar(printer: Printer, what: &'static str) -> ProgressBar {
    let bar = printer.download();
    bar.set_message(what);
    bar
}

/// A digest by its digits.
fn digest(digits: &str) -> String {
    format!("sha256:{digits}")
}
