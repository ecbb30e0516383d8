//! The folders of Python packages: of an environment by its layout, of the `python3` on the search path by asking it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::candidates::{file_name, files};
use gpux_core::child_process;

/// `-I`: without the working folder, the user's variables and `PYTHONPATH`, which may be a stranger's.
const ARGUMENTS: [&str; 3] =
    ["-I", "-c", "import json, site; print(json.dumps(site.getsitepackages() + [site.getusersitepackages()]))"];
/// A Python that starts from a cold disk fits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The folders of packages in the environment at `root`.
pub(super) fn site_folders(root: &Path) -> Vec<PathBuf> {
    let is_python = |path: &PathBuf| file_name(path).starts_with("python3");
    let mut folders: Vec<_> = files(&root.join("lib")).into_iter().filter(is_python).collect();
    folders.push(root.join("Lib"));
    folders.into_iter().map(|folder| folder.join("site-packages")).collect()
}

/// Those of the `python3` on the search path; none where there is no such program.
pub(super) fn ask() -> Vec<PathBuf> {
    let name = if cfg!(windows) { "python" } else { "python3" };
    let arguments = ARGUMENTS.map(AsRef::as_ref);
    child_process::run_json(Path::new(name), &arguments, TIMEOUT).unwrap_or_default()
}
