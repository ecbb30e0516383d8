//! JavaScript: the folder's own `build.mjs`, which makes a component with componentize-qjs.

use std::path::Path;

use crate::build_error::BuildError;
use crate::workspace::{OUTPUT, Tool, Workspace};

const NODE: &str = "install Node.js 20 or newer as https://nodejs.org says";

pub(super) const TOOLS: &[Tool] = &[
    Tool { name: "node", checks: &[&["node", "--version"]], install: NODE },
    Tool { name: "npm", checks: &[&["npm", "--version"]], install: NODE },
];

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    if !are_packages_installed(workspace.folder()) {
        // Keeps to a package-lock.json where there is one; `npm ci` would refuse a lock made on a
        // machine that was not offered every platform's optional package.
        let mut npm = workspace.command("npm");
        npm.args(["install", "--no-audit", "--no-fund"]);
        workspace.run(&mut npm)?;
    }
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
