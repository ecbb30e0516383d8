//! Files that a pipeline names outside of its folder: where they lie in a bundle, and how its gpux.yml then names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpux_config::{Content, Node};
use gpux_core::files::resolve_path;

use super::BundleError;

/// The folder of a bundle for files from elsewhere.
const FOLDER: &str = "vendor";
/// Keys whose values are not read.
const TEXTS: [&str; 2] = ["description", "metadata"];

/// The places of files that are named outside of the folder.
#[derive(Debug, Default)]
pub(super) struct OutsideFiles {
    /// the new path of each, by the path that it was opened by
    places: BTreeMap<PathBuf, String>,
}

impl OutsideFiles {
    /// Finds a place for each file in a folder that `root` does not have. Files of one folder stay beside each other.
    pub(super) fn new(paths: &[PathBuf], root: &Path) -> Result<Self, BundleError> {
        let parent = |path: &PathBuf| {
            let parent = path.parent().unwrap_or(Path::new("."));
            resolve_path(parent).map_err(|source| BundleError::Io { path: parent.to_owned(), source })
        };
        let mut folders = BTreeMap::new();
        for path in paths {
            let count = folders.len() + 1;
            folders.entry(parent(path)?).or_insert(count);
        }
        let numbered = (2..).map(|number: u64| format!("{FOLDER}-{number}"));
        let mut names = std::iter::once(FOLDER.to_owned()).chain(numbered);
        let vendor = names.find(|name| root.join(name).symlink_metadata().is_err()).unwrap_or_default();
        let mut places = BTreeMap::new();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| BundleError::NotUnicode(path.clone()))?;
            let number = folders[&parent(path)?];
            let place =
                if folders.len() == 1 { format!("{vendor}/{name}") } else { format!("{vendor}/{number}/{name}") };
            places.insert(path.clone(), place);
        }
        Ok(Self { places })
    }

    /// The path in the bundle of the file at `path`.
    pub(super) fn place(&self, path: &Path) -> Option<&str> {
        self.places.get(path).map(String::as_str)
    }

    /// The text of gpux.yml with the new paths. Nothing else in it changes.
    pub(super) fn rewrite(&self, text: &str, root: &Node, folder: &Path) -> Result<String, BundleError> {
        let mut changes = Vec::new();
        self.find(root, folder, text, &mut changes)?;
        for (path, place) in &self.places {
            // One that is looked for beside another needs no path of its own.
            let folder_of = |place: &str| place.rsplit_once('/').map(|(folder, _)| folder.to_owned());
            if !changes.iter().any(|(_, changed)| folder_of(changed) == folder_of(place)) {
                return Err(BundleError::Rewrite(path.display().to_string()));
            }
        }
        // An alias and its anchor may be found twice; from the end, no change moves another.
        changes.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        changes.dedup();
        let mut text = text.to_owned();
        for (span, place) in changes {
            text.replace_range(span, &serde_json::Value::from(place).to_string());
        }
        Ok(text)
    }

    fn find(
        &self,
        node: &Node,
        folder: &Path,
        text: &str,
        changes: &mut Vec<(std::ops::Range<usize>, String)>,
    ) -> Result<(), BundleError> {
        match &node.content {
            Content::String(value) => {
                let Some(place) = self.place(&folder.join(&**value)) else { return Ok(()) };
                let written = text.get(node.span.clone()).unwrap_or_default();
                if written.trim_matches(['"', '\'']) != &**value {
                    return Err(BundleError::Rewrite(value.to_string()));
                }
                changes.push((node.span.clone(), place.to_owned()));
                Ok(())
            }
            Content::Sequence(items) => items.iter().try_for_each(|item| self.find(item, folder, text, changes)),
            Content::Mapping(entries) => {
                // What is only read by people names no files.
                let mut named = entries.iter().filter(|(key, _)| !TEXTS.contains(&&*key.value));
                named.try_for_each(|(_, value)| self.find(value, folder, text, changes))
            }
            _ => Ok(()),
        }
    }
}
