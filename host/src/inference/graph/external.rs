//! Weights that lie outside the model's file: where they may be, checked before an engine looks.

use std::path::{Component, Path, PathBuf};

use super::proto;

/// One file with weights, beside the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExternalFile {
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

fn entry<'a>(tensor: &'a proto::Tensor, key: &str) -> Option<&'a str> {
    tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

fn number(tensor: &proto::Tensor, key: &str) -> Result<Option<u64>, String> {
    entry(tensor, key)
        .map(|text| text.parse().map_err(|_| format!("its `{key}` is `{text}`, not a number of bytes")))
        .transpose()
}

/// Bytes of a tensor's data, from its type and dimensions; `None` for types without a fixed size.
fn expected_size(tensor: &proto::Tensor) -> Result<Option<u64>, String> {
    let overflow = || format!("its dimensions {:?} are absurd", tensor.dims);
    let count = tensor.dims.iter().try_fold(1_u64, |product, dim| {
        product.checked_mul(u64::try_from(*dim).map_err(|_| overflow())?).ok_or_else(overflow)
    })?;
    let Some(size) = super::types::element(tensor.data_type).and_then(crate::pipeline::ElementType::size) else {
        return Ok(None);
    };
    count.checked_mul(size as u64).map(Some).ok_or_else(overflow)
}

/// The file that holds the tensor's data. It must lie in `folder` (links followed) and hold as
/// many bytes as the tensor takes.
pub(super) fn check(folder: &Path, tensor: &proto::Tensor) -> Result<ExternalFile, String> {
    let location = entry(tensor, "location").ok_or("the file is not named")?;
    let relative = Path::new(location);
    let inside = relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if location.is_empty() || !inside || location.contains(['\0', '\\']) {
        return Err(format!("`{location}` does not lie in the model's folder"));
    }
    let root = folder.canonicalize().map_err(|error| format!("the model's folder cannot be read: {error}"))?;
    let path = root.join(relative).canonicalize().map_err(|error| format!("`{location}` cannot be read: {error}"))?;
    if !path.starts_with(&root) {
        return Err(format!("`{location}` leads out of the model's folder"));
    }
    let file = path.metadata().map_err(|error| format!("`{location}` cannot be read: {error}"))?;
    if !file.is_file() {
        return Err(format!("`{location}` is not a file"));
    }
    let offset = number(tensor, "offset")?.unwrap_or(0);
    let expected = expected_size(tensor)?;
    let length = match number(tensor, "length")?.or(expected) {
        Some(length) => length,
        None => file.len().saturating_sub(offset),
    };
    if let Some(expected) = expected
        && expected != length
    {
        return Err(format!("`{location}` gives it {length} bytes, but its shape takes {expected}"));
    }
    if offset.checked_add(length).is_none_or(|end| end > file.len()) {
        return Err(format!(
            "`{location}` has {} bytes, but bytes {offset} to {} are asked for",
            file.len(),
            u128::from(offset) + u128::from(length)
        ));
    }
    Ok(ExternalFile { path, size: file.len() })
}
