//! JavaScript: the folder's own `build.mjs`, which makes a component with componentize-qjs.

use std::path::{Path, PathBuf};

use crate::build_error::BuildError;
use crate::fingerprint::Fingerprint;
use crate::tool::{Package, Tool};
use crate::workspace::{OUTPUT, Workspace};

const NODE: &str = "install Node.js 20 or newer as https://nodejs.org says";

pub(super) const TOOLS: &[Tool] = &[
    Tool { name: "node", checks: &[&["node", "--version"]], by_hand: NODE, package: Some(Package::NODE) },
    Tool { name: "npm", checks: &[&["npm", "--version"]], by_hand: NODE, package: Some(Package::NODE) },
];

/// Installs the packages that the step names.
pub(super) fn prepare(workspace: &mut Workspace<'_>) -> Result<(), BuildError> {
    if are_packages_installed(workspace.folder()) {
        return Ok(());
    }
    // Keeps to a package-lock.json where there is one; `npm ci` would refuse a lock made on a
    // machine that was not offered every platform's optional package.
    let mut npm = workspace.command("npm");
    npm.args(["install", "--no-audit", "--no-fund"]);
    workspace.run(&mut npm).map(drop)
}

/// With what npm installed, and the sources of packages that are only linked. `None` where another program
/// installed them.
pub(super) fn fingerprint(workspace: &Workspace<'_>, fingerprint: Fingerprint) -> Option<Fingerprint> {
    let modules = workspace.folder().join("node_modules");
    let installed = std::fs::read(modules.join(".package-lock.json")).ok()?;
    linked_packages(&modules).try_fold(fingerprint.with("packages", &installed), |fingerprint, package| {
        fingerprint.with_sources(&package, Path::new(""))
    })
}

/// The packages in a folder of modules that are links, as `file:` leaves them.
fn linked_packages(modules: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_scope = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('@'));
    let scopes = entries(modules).filter(is_scope).flat_map(move |scope| entries(&scope).collect::<Vec<_>>());
    let mut linked: Vec<_> = entries(modules).chain(scopes).filter(|path| path.is_symlink() && path.is_dir()).collect();
    linked.sort();
    linked.into_iter()
}

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    let draft = Workspace::draft()?;
    let component = draft.path().join("step.wasm");
    let mut node = workspace.command("node");
    node.arg("build.mjs").env(OUTPUT, &component);
    workspace.run(&mut node)?;
    if !component.is_file() {
        return Err(BuildError::NoModule(format!("build.mjs wrote no component to the path in ${OUTPUT}")));
    }
    workspace.read(&component)
}

/// Whether npm has installed the packages that package.json names. The packages of other managers are left alone.
fn are_packages_installed(folder: &Path) -> bool {
    let modified = |path: &str| folder.join(path).metadata().and_then(|file| file.modified()).ok();
    match (modified("node_modules/.package-lock.json"), modified("package.json")) {
        (Some(installed), Some(named)) => installed >= named,
        _ => folder.join("node_modules").is_dir(),
    }
}
