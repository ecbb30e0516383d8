//! Results as a folder of files, one for each output: `.npy` for tensors of numbers.

use std::fs;
use std::path::{Path, PathBuf};

use super::item_result::{ItemResult, WriteError};
use crate::printer;
use gpux_core::{Value, tensor_to_exact_json, to_json, to_npy};

/// Writes the outputs of one run into `folder`: tensors of numbers as `NAME.npy`, other tensors
/// and JSON as `NAME.json`, text as `NAME.txt`, bytes as `NAME.bin`; for a run that failed, `error.json`.
pub(super) fn write(folder: &Path, item: &ItemResult) -> Result<(), WriteError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteError::File { path, source }
    };
    fs::create_dir_all(folder).map_err(fail(folder))?;
    let files = match &item.result {
        Ok(outputs) => outputs.iter().map(|(name, value)| file(folder, name, value)).collect(),
        Err(error) => vec![(folder.join("error.json"), json(&error.to_json()))],
    };
    files.into_iter().try_for_each(|(path, bytes)| {
        fs::write(&path, bytes).map_err(|error| {
            // A part of a file would pass for a result.
            let _ = fs::remove_file(&path);
            fail(&path)(error)
        })
    })
}

/// The existing files that outputs of these names would overwrite; for a batch, those of all its items.
pub(super) fn existing_files(folder: &Path, names: &[&str], batch: bool) -> Vec<PathBuf> {
    let is_item = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.len() >= 6 && name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    let items = || fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_item);
    let folders = if batch { items().collect() } else { vec![folder.to_owned()] };
    let files = |folder: &PathBuf| {
        let names = names.iter().map(|name| file_name(name)).chain(["error".to_owned()]);
        let paths = names.flat_map(|name| ENDINGS.map(|ending| folder.join(format!("{name}.{ending}"))));
        paths.filter(|path| path.is_file()).collect::<Vec<_>>()
    };
    folders.iter().flat_map(files).collect()
}

/// Extensions of the files that [`write`] makes.
const ENDINGS: [&str; 4] = ["npy", "json", "txt", "bin"];

fn file(folder: &Path, name: &str, value: &Value) -> (PathBuf, Vec<u8>) {
    let (ending, bytes) = match value {
        Value::Tensor(tensor) => match to_npy(tensor) {
            Ok(bytes) => ("npy", bytes),
            Err(_) => ("json", json(&tensor_to_exact_json(tensor))),
        },
        Value::Text(text) => ("txt", text.as_bytes().to_vec()),
        Value::Bytes(bytes) => ("bin", bytes.to_vec()),
        Value::Json(_) => ("json", json(&to_json(value))),
    };
    (folder.join(format!("{}.{ending}", file_name(name))), bytes)
}

fn json(value: &serde_json::Value) -> Vec<u8> {
    format!("{}\n", printer::pretty(value)).into_bytes()
}

/// The file name of an output: every byte except letters, digits, `_`, `-` and inner
/// dots as `%` with its two hexadecimal digits.
fn file_name(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => safe.push(char::from(byte)),
            b'.' if index > 0 => safe.push('.'),
            byte => safe.push_str(&format!("%{byte:02x}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn escapes_path_separators_in_output_names() {
        assert_eq!(file_name("scores.0"), "scores.0");
        assert_eq!(file_name("../up"), "%2e.%2fup");
        assert_eq!(file_name("block/add:0 ü"), "block%2fadd%3a0%20%c3%bc");
    }
}
