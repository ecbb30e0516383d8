//! JavaScript: the folder's own `build.mjs`, which makes a component with componentize-qjs.

use super::Tool;
use crate::author::build::{BuildError, OUTPUT, Workspace};
use crate::author::template::{TemplateFile, template_files};

const NODE: &str = "install Node.js 20 or newer as https://nodejs.org says";

pub(super) const TOOLS: &[Tool] = &[
    Tool { name: "node", checks: &[&["node", "--version"]], install: NODE },
    Tool { name: "npm", checks: &[&["npm", "--version"]], install: NODE },
];

const FILES: &[TemplateFile] = template_files!("templates/js":
    ".gitignore.template",
    "README.md",
    "build.mjs",
    "package.json.template",
    "src/step.js",
    "step.yml",
    "tests/best/case.yml",
    "tests/empty/case.yml",
    "wit/world.wit",
);

const SDK: &[TemplateFile] = template_files!("../guest-sdk/js" => "gpux-step":
    "gpux-builtins.d.ts",
    "gpux-builtins.js",
    "gpux-lent.js",
    "gpux-models.d.ts",
    "gpux-models.js",
    "gpux-step.d.ts",
    "gpux-step.js",
    "package.json",
);

const CONTRACT: &[TemplateFile] = template_files!("../wit" => "wit/deps": "pipeline.wit");

pub(super) fn template() -> Vec<TemplateFile> {
    [FILES, SDK, CONTRACT].concat()
}

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    if !workspace.folder().join("node_modules").is_dir() {
        let locked = workspace.folder().join("package-lock.json").is_file();
        let mut npm = workspace.command("npm");
        npm.args([if locked { "ci" } else { "install" }, "--no-audit", "--no-fund"]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::template::tests::assert_complete;

    #[test]
    fn the_template_is_what_lies_in_its_folder() {
        assert_complete(FILES, "templates/js");
    }
}
