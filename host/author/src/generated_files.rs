//! What builds and editors leave in a step's folder.

use std::path::Path;

/// Folders that builds leave in a step's folder itself. Deeper, these are names like any other.
const BUILD_FOLDERS: [&str; 2] = ["target", "node_modules"];

/// Whether nobody edits `path`: a hidden file, a folder of Python's bytecode or, where `in_root`, directly in a step's
/// folder, one of a build's outputs.
pub(crate) fn is_generated(path: &Path, in_root: bool) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_build_folder = name == "__pycache__" || (in_root && BUILD_FOLDERS.contains(&&*name));
    name.starts_with('.') || (is_build_folder && path.is_dir())
}
