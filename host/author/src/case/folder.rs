//! The folders of golden cases.

use std::path::{Path, PathBuf};

use super::file::Case;

/// The folder of the cases, in the folder of a step or a pipeline.
pub const CASES_FOLDER: &str = "tests";

/// The folder holds no cases.
#[derive(Debug, thiserror::Error)]
#[error("there are no cases in `{}`; make a folder there with a `case.yml` that says `inputs:`, and let `gpux test --bless` write what it expects", .0.display())]
pub struct NoCasesError(PathBuf);

/// The folders of the cases in `folder`, by name; `folder` alone if it is a case itself.
pub fn cases_in(folder: &Path) -> Result<Vec<PathBuf>, NoCasesError> {
    if Case::exists_in(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cases: Vec<_> = entries.map(|entry| entry.path()).filter(|path| Case::exists_in(path)).collect();
    cases.sort();
    if cases.is_empty() { Err(NoCasesError(folder.to_owned())) } else { Ok(cases) }
}
