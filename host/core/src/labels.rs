//! Files of labels: one a line.

use std::fmt::Display;
use std::path::Path;

/// Largest file of labels that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// Reads the labels in the text file at `path`, at least one; `read` returns its bytes, up to this limit.
pub fn read_labels<E: Display>(
    path: &str,
    read: impl FnOnce(&Path, u64) -> Result<Vec<u8>, E>,
) -> Result<Vec<String>, String> {
    let bytes = read(Path::new(path), MAX_FILE).map_err(|error| error.to_string())?;
    let text =
        String::from_utf8(bytes).map_err(|error| format!("`{path}` is not UTF-8 text: {}", error.utf8_error()))?;
    let lines = text.trim_start_matches('\u{feff}').trim_end().lines();
    let labels: Vec<_> = lines.map(|line| line.trim().to_owned()).collect();
    if labels.is_empty() { Err("there are no labels".to_owned()) } else { Ok(labels) }
}
