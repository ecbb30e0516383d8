//! Checks weights outside the model's file before an engine opens them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::proto;
use gpux_core::catch_panic::shorten;
use gpux_core::files::{lies_in, resolve_path};
use gpux_core::hub_blobs;
use gpux_core::sanitize::is_unsafe_for_terminal;

/// Dimensions that are named in a message.
const SHOWN: usize = 8;
/// In what ONNX Runtime itself writes for a location where weights lie in its memory, in all its
/// spellings: the offset is an address then.
const ADDRESS: &str = "MEM_ADDR_";

/// One file with weights, beside the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExternalFile {
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

/// Where links to weights may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLinks {
    /// to files in the model's folder, and in a Hugging Face cache to those of the same repository
    Inside,
    /// anywhere: the operator named the model, or permits it
    Anywhere,
    /// nowhere: the files need not be there, and only their places are listed
    Unopened,
}

/// Files with weights in the model's folder. Each is looked for once, however many tensors lie in it.
pub(super) struct ExternalFiles<'a> {
    folder: &'a Path,
    /// the folder, links followed
    root: Option<PathBuf>,
    links: WeightLinks,
    /// the tensor at each place
    found: BTreeMap<PathBuf, ExternalFile>,
}

impl<'a> ExternalFiles<'a> {
    pub(super) fn new(folder: &'a Path, links: WeightLinks) -> Self {
        Self { folder, root: None, links, found: BTreeMap::new() }
    }

    /// The path of each file by its place.
    pub(super) fn locations(&self) -> BTreeMap<PathBuf, PathBuf> {
        self.found.iter().map(|(place, file)| (place.clone(), file.path.clone())).collect()
    }

    /// All that were found.
    pub(super) fn into_files(self) -> BTreeSet<ExternalFile> {
        self.found.into_values().collect()
    }

    /// Whether the file at `place` was found already.
    pub(super) fn contains(&self, place: &Path) -> bool {
        self.found.contains_key(place)
    }

    /// The file at `place` in the folder. A link may lead out of it as far as that is allowed.
    pub(super) fn find(&mut self, place: &Path) -> Result<&ExternalFile, String> {
        if !self.contains(place) {
            let file = self.open(place)?;
            self.found.insert(place.to_owned(), file);
        }
        self.found.get(place).ok_or_else(|| unreadable(place, "it is gone"))
    }

    fn open(&mut self, place: &Path) -> Result<ExternalFile, String> {
        if self.links == WeightLinks::Unopened {
            return Ok(ExternalFile { path: place.to_owned(), size: u64::MAX });
        }
        let root = match &mut self.root {
            Some(root) => root,
            none => {
                let root = resolve_path(self.folder);
                none.insert(root.map_err(|error| format!("the model's folder cannot be read: {error}"))?)
            }
        };
        let path = resolve_path(&root.join(place)).map_err(|error| unreadable(place, error))?;
        let is_blob = || hub_blobs(root).is_some_and(|blobs| lies_in(&path, &blobs));
        if self.links == WeightLinks::Inside && !lies_in(&path, root) && !is_blob() {
            let place = shown(place);
            return Err(format!("`{place}` leads out of the model's folder; pass `--allow-outside` to permit that"));
        }
        let file = path.metadata().map_err(|error| unreadable(place, error))?;
        if !file.is_file() {
            return Err(format!("`{}` is not a file", shown(place)));
        }
        Ok(ExternalFile { path, size: file.len() })
    }
}

fn unreadable(place: &Path, why: impl std::fmt::Display) -> String {
    format!("`{}` cannot be read: {why}", shown(place))
}

fn shown(place: &Path) -> String {
    sanitize(&place.to_string_lossy())
}

/// Text from a file, sanitized for an error message.
pub(super) fn sanitize(text: &str) -> String {
    shorten(text).chars().map(|c| if is_unsafe_for_terminal(c) { ' ' } else { c }).collect()
}

/// Whether weights may lie in their file in the order of ONNX Runtime's kernels as well
/// (`prepacked_0` …). It does not check the size of such a block and reads as much as the kernel needs,
/// even beyond the block and the mapped file. So only a graph that gpux itself has written may
/// have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrepackedWeights {
    Refused,
    Allowed,
}

/// A tensor's `external_data` entries. Duplicate keys are rejected: one engine takes the first and
/// another the last, so the checked value might not be the one that is read.
#[derive(Debug, Default)]
pub(super) struct ExternalData<'a> {
    location: Option<&'a str>,
    offset: Option<&'a str>,
    length: Option<&'a str>,
    checksum: Option<&'a str>,
}

impl<'a> ExternalData<'a> {
    pub(super) fn new(tensor: &'a proto::Tensor, packed: PrepackedWeights) -> Result<Self, String> {
        let mut data = Self::default();
        for proto::Entry { key, value } in &tensor.external_data {
            let place = match key.as_str() {
                "location" => &mut data.location,
                "offset" => &mut data.offset,
                "length" => &mut data.length,
                "checksum" => &mut data.checksum,
                key if key.starts_with("prepacked") => match packed {
                    PrepackedWeights::Allowed => continue,
                    PrepackedWeights::Refused => {
                        return Err(format!("it has a `{}`, which cannot be checked", sanitize(key)));
                    }
                },
                other => return Err(format!("it has a `{}`, which gpux does not know", sanitize(other))),
            };
            if place.replace(value).is_some() {
                return Err(format!("its `{key}` is given twice"));
            }
        }
        Ok(data)
    }

    /// The path of the tensor's data, relative to the model's folder and inside it.
    pub(super) fn place(&self) -> Result<PathBuf, String> {
        let location = self.location.ok_or("the file is not named")?;
        if location.contains(ADDRESS) {
            return Err(format!("`{}` is an address in memory, not a file", sanitize(location)));
        }
        let parts = Path::new(location).components().filter(|part| *part != Component::CurDir);
        let parts = parts.map(|part| if let Component::Normal(name) = part { Some(name) } else { None });
        let place =
            parts.collect::<Option<PathBuf>>().filter(|_| !location.is_empty() && !location.contains(['\0', '\\']));
        place.ok_or_else(|| format!("`{}` does not lie in the model's folder", sanitize(location)))
    }

    /// Whether the file at `place` holds as many bytes as the tensor takes.
    pub(super) fn check(&self, tensor: &proto::Tensor, place: &Path, file: &ExternalFile) -> Result<(), String> {
        let offset = number("offset", self.offset)?.unwrap_or(0);
        let expected = expected_size(tensor)?;
        let length = match number("length", self.length)?.or(expected) {
            Some(length) => length,
            None => file.size.saturating_sub(offset),
        };
        if let Some(expected) = expected
            && expected != length
        {
            return Err(format!("`{}` gives it {length} bytes, but its shape takes {expected}", shown(place)));
        }
        if offset.checked_add(length).is_none_or(|end| end > file.size) {
            return Err(format!(
                "`{}` has {} bytes, but bytes {offset} to {} are asked for",
                shown(place),
                file.size,
                u128::from(offset) + u128::from(length)
            ));
        }
        Ok(())
    }
}

fn number(key: &str, text: Option<&str>) -> Result<Option<u64>, String> {
    text.map(|text| text.parse().map_err(|_| format!("its `{key}` is `{}`, not a number of bytes", sanitize(text))))
        .transpose()
}

/// Bytes of a tensor's data, from its type and dimensions; `None` for types without a fixed size.
fn expected_size(tensor: &proto::Tensor) -> Result<Option<u64>, String> {
    let overflow = || {
        let dims = &tensor.dims;
        let more = if dims.len() > SHOWN { format!(" and {} more", dims.len() - SHOWN) } else { String::new() };
        format!("its dimensions {:?}{more} are absurd", &dims[..dims.len().min(SHOWN)])
    };
    let count = tensor.dims.iter().try_fold(1_u64, |product, dim| {
        product.checked_mul(u64::try_from(*dim).map_err(|_| overflow())?).ok_or_else(overflow)
    })?;
    let Some(size) = super::types::element(tensor.data_type).and_then(gpux_core::ElementType::size) else {
        return Ok(None);
    };
    count.checked_mul(size as u64).map(Some).ok_or_else(overflow)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn tensor(entries: &[(&str, &str)]) -> proto::Tensor {
        let entry = |(key, value): &(&str, &str)| proto::Entry { key: (*key).to_owned(), value: (*value).to_owned() };
        proto::Tensor { external_data: entries.iter().map(entry).collect(), ..proto::Tensor::default() }
    }

    fn place(location: &str) -> Result<PathBuf, String> {
        ExternalData::new(&tensor(&[("location", location)]), PrepackedWeights::Refused)?.place()
    }

    #[test]
    fn rejects_unknown_and_duplicate_keys() {
        let whole = [("location", "w"), ("offset", "0"), ("length", "4"), ("checksum", "x")];
        let packed = [("prepacked_0", "a|0;4;x"), ("prepacked_1", "a|0;4;x"), ("prepacked_0", "a|0;4;x")];
        ExternalData::new(&tensor(&[whole.as_slice(), &packed].concat()), PrepackedWeights::Allowed).unwrap();
        let error =
            ExternalData::new(&tensor(&[whole.as_slice(), &packed].concat()), PrepackedWeights::Refused).unwrap_err();
        assert_eq!(error, "it has a `prepacked_0`, which cannot be checked");
        for (key, value) in whole {
            // Whichever an engine takes, and whether it passes over empty ones.
            for (first, second) in [(value, value), (value, "v"), (value, ""), ("", value)] {
                let error = ExternalData::new(
                    &tensor(&[(key, first), ("prepacked_0", ""), (key, second)]),
                    PrepackedWeights::Allowed,
                )
                .unwrap_err();
                assert_eq!(error, format!("its `{key}` is given twice"));
            }
        }
        for key in ["basepath", "Location", ""] {
            let error =
                ExternalData::new(&tensor(&[("location", "w"), (key, "/etc")]), PrepackedWeights::Allowed).unwrap_err();
            assert_eq!(error, format!("it has a `{key}`, which gpux does not know"));
        }
    }

    #[test]
    fn rejects_memory_addresses_as_locations() {
        for tag in ["*/_ORT_MEM_ADDR_/*", "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*", "./*/_ORT_MEM_ADDR_/*"] {
            assert_eq!(place(tag).unwrap_err(), format!("`{tag}` is an address in memory, not a file"));
        }
    }

    #[test]
    fn looks_up_each_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("w");
        std::fs::write(&weights, [0; 7]).unwrap();
        let mut files = ExternalFiles::new(folder.path(), WeightLinks::Inside);
        let first = files.find(Path::new("w")).unwrap().clone();
        std::fs::remove_file(&weights).unwrap();
        for way in ["w", "./w", ".//./w"] {
            let place = place(way).unwrap();
            assert_eq!((files.contains(&place), files.find(&place)), (true, Ok(&first)), "{way}");
        }
        assert!(files.find(Path::new("v")).unwrap_err().starts_with("`v` cannot be read"));
        assert_eq!(files.into_files().into_iter().map(|file| file.size).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn sanitizes_and_shortens_messages() {
        let long = "../\u{1b}[2J".to_owned() + &"x".repeat(1 << 20);
        let error = place(&long).unwrap_err();
        assert!(error.len() < 1000 && error.starts_with("`../ [2Jxxx"), "{error}");
        let many = proto::Tensor { dims: vec![i64::MAX; 1_000_000], ..proto::Tensor::default() };
        let error = expected_size(&many).unwrap_err();
        assert!(error.len() < 300 && error.ends_with("] and 999992 more are absurd"), "{error}");
        let file = ExternalFile { path: PathBuf::new(), size: 0 };
        let offset = "\n7".repeat(1000);
        let tensor = tensor(&[("offset", &offset)]);
        let error = ExternalData::new(&tensor, PrepackedWeights::Refused)
            .unwrap()
            .check(&tensor, Path::new("w"), &file)
            .unwrap_err();
        assert!(error.len() < 1000 && !error.contains('\n'), "{error}");
    }
}
