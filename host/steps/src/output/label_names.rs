//! The names of a model's classes, which several steps take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metadata_source::MetadataSource;
use gpux_core::{BuildError, OptionOrigin, read_labels};

/// The option `labels`: a list, the path of a text file with one label a line, or a key of a model's metadata.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum LabelSource {
    File(String),
    List(Vec<String>),
    Metadata(MetadataSource),
}

impl LabelSource {
    /// The labels, at least one.
    pub(super) fn read(&self, site: &OptionOrigin<'_>) -> Result<Vec<String>, BuildError> {
        match self {
            Self::List(labels) if labels.is_empty() => Err(BuildError::option("labels", "there are no labels")),
            Self::List(labels) => Ok(labels.clone()),
            Self::File(path) => read_file(path, site),
            Self::Metadata(source) => {
                let names = source.names("labels", site)?;
                Ok(names.into_iter().map(|name| name.trim().to_owned()).collect())
            }
        }
    }
}

fn read_file(path: &str, site: &OptionOrigin<'_>) -> Result<Vec<String>, BuildError> {
    read_labels(path, |path, limit| site.read(path, limit)).map_err(|why| BuildError::option("labels", why))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::ProjectFiles;

    #[test]
    fn reads_labels_from_a_project_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("labels.txt"), "\u{feff}zero\r\n one \r\n\r\nthree\n").unwrap();
        std::fs::write(folder.path().join("latin1.txt"), [0xe9, b'\n']).unwrap();
        let files = ProjectFiles::new(folder.path(), false);
        let labels = read_file("labels.txt", &OptionOrigin::folder(&files)).unwrap();
        assert_eq!(labels, ["zero", "one", "", "three"]);
        let message = |path: &str| read_file(path, &OptionOrigin::folder(&files)).unwrap_err().to_string();
        assert!(message("latin1.txt").contains("UTF-8"));
        assert!(message("none.txt").contains("no file at `none.txt`"));
        assert!(message("../labels.txt").contains("leads out"));
        let file = LabelSource::File("labels.txt".into());
        assert!(file.read(&OptionOrigin::Component).unwrap_err().message.contains("may not name files"));
        assert!(LabelSource::List(Vec::new()).read(&OptionOrigin::Component).is_err());
    }
}
