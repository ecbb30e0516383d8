//! `gpux store list` and `show`.

use serde_json::json;

use super::digest;
use crate::exit::Exit;
use crate::printer::{Printer, pretty, size, table};
use gpux_store::{Store, StoreDetails, StoreEntry, StoreError};

/// Digits of a digest that people are shown: enough for `sha256:DIGITS` to mean it.
const SHORT: usize = 12;

/// The store, if there is one. It is not made for a look at it.
fn existing() -> Result<Option<Store>, StoreError> {
    match Store::existing_to_read()? {
        None if Store::default_root().is_none() => Err(StoreError::NoFolder),
        store => Ok(store),
    }
}

pub(super) fn list(printer: Printer) -> Result<Exit, StoreError> {
    let store = existing()?;
    let (entries, bytes) = match &store {
        Some(store) => (store.entries()?, store.blob_bytes()),
        None => (Vec::new(), 0),
    };
    let root = Store::default_root().unwrap_or_default().display().to_string();
    if printer.json {
        let entries: Vec<_> = entries.iter().map(entry_json).collect();
        return Ok(printer.print_result(&pretty(&json!({ "path": root, "bytes": bytes, "pipelines": entries }))));
    }
    if entries.is_empty() {
        return Ok(printer.print_result(&format!("no pipelines in {root}; `gpux store add` keeps one")));
    }
    let rows = entries.iter().map(|entry| {
        let state = match (&entry.damage, entry.is_used) {
            (Some(damage), _) => format!("damaged: {damage}"),
            (None, true) => "running".to_owned(),
            (None, false) => String::new(),
        };
        let shared = if entry.shared == 0 { String::new() } else { size(entry.shared) };
        vec![
            entry.name.clone().unwrap_or_else(|| "-".to_owned()),
            entry.version.clone().unwrap_or_default(),
            digest(&entry.manifest[..SHORT]),
            size(entry.size),
            shared,
            state,
        ]
    });
    let listed = table(&["name", "version", "digest", "size", "shared", ""], &[3, 4], rows);
    Ok(printer.print_result(&format!("{listed}\n\n{} in {root}", size(bytes))))
}

fn entry_json(entry: &StoreEntry) -> serde_json::Value {
    json!({
        "name": entry.name, "pipeline": entry.title, "version": entry.version, "digest": digest(&entry.manifest),
        "bytes": entry.size, "shared_bytes": entry.shared, "running": entry.is_used, "damage": entry.damage,
    })
}

pub(super) fn show(name: &str, printer: Printer) -> Result<Exit, StoreError> {
    let no_such = |similar| StoreError::NoSuchName { name: name.to_owned(), similar };
    let Some(store) = existing()? else { return Err(no_such(None)) };
    let Some(digits) = store.resolve_digest(name)? else { return Err(no_such(store.similar_name(name)?)) };
    let StoreDetails { manifest, names, annotations, files } = store.details(&digits)?;
    if printer.json {
        let files: Vec<_> = files
            .iter()
            .map(|file| {
                json!({
                    "path": file.path, "role": file.role.name(), "bytes": file.size, "digest": digest(&file.sha256),
                    "missing": !file.is_there,
                })
            })
            .collect();
        let json = json!({ "digest": digest(&manifest), "names": names, "annotations": annotations, "files": files });
        return Ok(printer.print_result(&pretty(&json)));
    }
    let facts = [("digest", digest(&manifest)), ("names", names.join(", "))];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key.to_owned(), value));
    let facts = table(&[], &[], facts.chain(annotations).map(|(key, value)| vec![key, value]));
    let total: u64 = files.iter().map(|file| file.size).sum();
    let rows = files.iter().map(|file| {
        let state = if file.is_there { "" } else { "missing" };
        vec![
            file.path.clone(),
            file.role.name().to_owned(),
            size(file.size),
            digest(&file.sha256[..SHORT]),
            state.to_owned(),
        ]
    });
    let files = table(&["file", "role", "size", "digest", ""], &[2], rows);
    Ok(printer.print_result(&format!("{facts}\n\n{files}\n\n{} in all", size(total))))
}
