//! What of the folder does not go into the bundle.

use std::collections::BTreeSet;
use std::path::Path;

/// The most entries of folders that are counted.
const MAX_COUNTED: usize = 50_000;

/// Files of the pipeline's folder that are not in the bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutFiles {
    /// files, and folders of which nothing is in the bundle; the largest first
    pub groups: Vec<LeftOut>,
    /// whether there are more, which were not counted
    pub is_incomplete: bool,
}

/// A file, or a folder of which nothing is in the bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// its path; that of a folder ends with a slash
    pub path: String,
    /// how many files
    pub files: usize,
    /// their bytes
    pub bytes: u64,
}

impl LeftOutFiles {
    /// How many files.
    pub fn files(&self) -> usize {
        self.groups.iter().map(|group| group.files).sum()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes).sum()
    }

    /// Finds them in `root`; `bundled` are the paths of the others.
    pub(super) fn find(root: &Path, bundled: &BTreeSet<&str>) -> Self {
        let folders = bundled.iter().copied().flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]));
        let mut search = Search { folders: folders.collect(), bundled, left: MAX_COUNTED, found: Self::default() };
        search.folder(root, "");
        search.found.groups.sort_by(|one, other| (other.bytes, &one.path).cmp(&(one.bytes, &other.path)));
        search.found
    }
}

struct Search<'a> {
    bundled: &'a BTreeSet<&'a str>,
    /// folders that have files of the bundle
    folders: BTreeSet<&'a str>,
    /// entries that may still be counted
    left: usize,
    found: LeftOutFiles,
}

impl Search<'_> {
    /// A folder of which something is in the bundle.
    fn folder(&mut self, folder: &Path, place: &str) {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            if !self.count() {
                return;
            }
            let name = entry.file_name();
            let path = format!("{place}{}", name.to_string_lossy());
            // Links are not followed: what they lead to lies elsewhere.
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_dir() {
                if !self.bundled.contains(path.as_str()) {
                    self.found.groups.push(LeftOut { path, files: 1, bytes: metadata.len() });
                }
            } else if self.folders.contains(path.as_str()) {
                self.folder(&entry.path(), &format!("{path}/"));
            } else {
                let (files, bytes) = self.sum(&entry.path());
                if files > 0 {
                    self.found.groups.push(LeftOut { path: path + "/", files, bytes });
                }
            }
        }
    }

    fn sum(&mut self, folder: &Path) -> (usize, u64) {
        let (mut files, mut bytes, mut folders) = (0, 0, vec![folder.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().into_iter().flatten().flatten() {
                if !self.count() {
                    return (files, bytes);
                }
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                    Ok(metadata) => (files, bytes) = (files + 1, bytes + metadata.len()),
                    Err(_) => {}
                }
            }
        }
        (files, bytes)
    }

    fn count(&mut self) -> bool {
        self.found.is_incomplete |= self.left == 0;
        self.left = self.left.saturating_sub(1);
        !self.found.is_incomplete
    }
}
