//! `gpux cache`: what gpux keeps on disk, and how to remove it.

use std::fs::File;
use std::time::{Duration, SystemTime};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use crate::exit::Exit;
use crate::printer::{Printer, pretty, size, table};
use gpux_core::{CacheDir, CacheEntry, CacheFolder, Size};

/// Files of running processes that are older were left behind by processes that were killed.
const LEFT_BEHIND: Duration = Duration::from_hours(24);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what is kept, what it takes and what it may take
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove what gpux makes again by itself, or the named folders
    ///
    /// Running processes keep what they have loaded; tools that a build is installing, and folders that pipelines of a
    /// read-only store run from, stay.
    Clean {
        /// Folders of the cache, as `gpux cache list` names them
        #[arg(value_name = "FOLDER", value_parser = PossibleValuesParser::new(CacheFolder::ALL.map(CacheFolder::name)))]
        folders: Vec<String>,

        /// Engines, tools, downloads and chosen precisions as well
        #[arg(long, conflicts_with = "folders")]
        all: bool,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove what was not used for a time, packages of engines among it, and what killed processes left behind;
    /// engines and tools stay
    Prune {
        /// Days without use
        #[arg(long, value_name = "DAYS", default_value_t = 30)]
        older_than: u32,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let (Command::List { json } | Command::Clean { json, .. } | Command::Prune { json, .. }) = arguments.command;
    let printer = crate::printer(json, false);
    let Some(cache) = CacheDir::from_environment() else {
        let message = format!("there is no folder for a cache: set {}", CacheDir::VARIABLE);
        return printer.fail("EnvironmentError", &message, Exit::Environment);
    };
    let is_removal = !matches!(arguments.command, Command::List { .. });
    if is_removal && cache.root().exists() && !cache.is_tagged() {
        let message = format!(
            "`{}` held other things before gpux used it, so nothing is removed: give gpux a folder of its own with {}",
            cache.root().display(),
            CacheDir::VARIABLE
        );
        return printer.fail("UsageError", &message, Exit::Usage);
    }
    let unused = |entry: &CacheEntry| SystemTime::now().duration_since(entry.used).unwrap_or_default();
    match &arguments.command {
        Command::List { .. } => list(&cache, printer),
        Command::Clean { folders, all, .. } => {
            let is_named = |folder: CacheFolder| match folders.as_slice() {
                [] => *all || !folder.is_made_by_command(),
                names => names.iter().any(|name| name == folder.name()),
            };
            remove(&cache, printer, |folder, entry| match folder {
                CacheFolder::Work => is_named(folder) && unused(entry) > LEFT_BEHIND,
                CacheFolder::Tools => is_named(folder) && !is_being_installed(entry),
                CacheFolder::Unpacked => is_named(folder) && !is_run_from(entry),
                _ => is_named(folder),
            })
        }
        Command::Prune { older_than, .. } => {
            let most = Duration::from_hours(24) * *older_than;
            remove(&cache, printer, |folder, entry| match folder {
                CacheFolder::Engines | CacheFolder::Tools => false,
                CacheFolder::Work => unused(entry) > LEFT_BEHIND,
                CacheFolder::Unpacked => unused(entry) >= most && !is_run_from(entry),
                _ => unused(entry) >= most,
            })
        }
    }
}

/// Whether this is the lock of a tool, or a tool whose lock is held.
fn is_being_installed(entry: &CacheEntry) -> bool {
    const LOCK: &str = "lock";
    let mut lock = entry.path.clone().into_os_string();
    lock.push(format!(".{LOCK}"));
    let is_lock = entry.path.extension().is_some_and(|extension| extension == LOCK);
    is_lock || File::open(lock).is_ok_and(|lock| lock.try_lock().is_err())
}

/// Whether a process runs the pipeline of this folder.
fn is_run_from(entry: &CacheEntry) -> bool {
    File::open(&entry.path).is_ok_and(|folder| folder.try_lock().is_err())
}

fn list(cache: &CacheDir, printer: Printer) -> Exit {
    let folders = CacheFolder::ALL.map(|folder| {
        let entries = cache.entries(folder);
        (folder, entries.len(), entries.iter().map(|entry| entry.bytes).sum::<u64>())
    });
    let total = folders.iter().map(|(.., bytes)| bytes).sum();
    if printer.json {
        let folders: Vec<_> = folders
            .iter()
            .map(|(folder, entries, bytes)| {
                json!({
                    "name": folder.name(),
                    "content": folder.content(),
                    "entries": entries,
                    "bytes": bytes,
                    "limit": folder.limit(),
                })
            })
            .collect();
        let json = json!({ "path": cache.root().display().to_string(), "bytes": total, "folders": folders });
        return printer.print_result(&pretty(&json));
    }
    let rows = folders.iter().map(|(folder, entries, bytes)| {
        let limit = folder.limit().map(|limit| Size(limit).to_string()).unwrap_or_default();
        vec![folder.name().to_owned(), entries.to_string(), size(*bytes), limit, folder.content().to_owned()]
    });
    let listed = table(&["folder", "entries", "size", "limit", ""], &[1, 2, 3], rows);
    printer.print_result(&format!("{listed}\n\n{} in {}", size(total), cache.root().display()))
}

/// Removes the entries that `is_removed` picks.
fn remove(cache: &CacheDir, printer: Printer, is_removed: impl Fn(CacheFolder, &CacheEntry) -> bool) -> Exit {
    let (mut removed, mut bytes, mut failures) = (0, 0, Vec::new());
    for folder in CacheFolder::ALL {
        for entry in cache.entries(folder).iter().filter(|entry| is_removed(folder, entry)) {
            match entry.remove() {
                Ok(()) => (removed, bytes) = (removed + 1, bytes + entry.bytes),
                Err(error) => failures.push(format!("cannot remove `{}`: {error}", entry.path.display())),
            }
        }
    }
    let exit = if printer.json {
        let json: Json = json!({ "removed": removed, "bytes": bytes, "failures": failures });
        printer.print_result(&pretty(&json))
    } else {
        let entries = if removed == 1 { "1 entry".to_owned() } else { format!("{removed} entries") };
        printer.print_result(&format!("removed {entries}, {} of {}", size(bytes), cache.root().display()))
    };
    if failures.is_empty() {
        return exit;
    }
    printer.fail("EnvironmentError", &failures.join("\n"), Exit::Environment)
}
