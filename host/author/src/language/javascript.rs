//! JavaScript: the folder's own `build.mjs`, which makes a component with componentize-qjs.

use crate::build_error::BuildError;
use crate::workspace::{OUTPUT, Tool, Workspace};

const NODE: &str = "install Node.js 20 or newer as https://nodejs.org says";

pub(super) const TOOLS: &[Tool] = &[
    Tool { name: "node", checks: &[&["node", "--version"]], install: NODE },
    Tool { name: "npm", checks: &[&["npm", "--version"]], install: NODE },
];

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    if !workspace.folder().join("node_modules").is_dir() {
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
