//! Python: componentize-py, which puts the interpreter and the step's modules into a component.

use super::Tool;
use crate::author::build::{BuildError, Workspace};
use crate::author::template::{TemplateFile, template_files};

const COMPONENTIZE: &str = "componentize-py";

pub(super) const TOOLS: &[Tool] = &[Tool {
    name: COMPONENTIZE,
    checks: &[&[COMPONENTIZE, "--version"]],
    install: "run `python3 -m pip install componentize-py==0.25.1`",
}];

const FILES: &[TemplateFile] = template_files!("templates/python":
    ".gitignore.template",
    "README.md",
    "app.py",
    "requirements.txt",
    "step.yml",
    "tests/too-long/case.yml",
    "tests/words/case.yml",
    "wit/world.wit",
);

const SDK: &[TemplateFile] = template_files!("../guest-sdk/python/gpux_step" => "gpux_step":
    "__init__.py",
    "builtins.py",
    "export.py",
    "log.py",
    "models.py",
    "ports.py",
    "tensor.py",
    "values.py",
);

const CONTRACT: &[TemplateFile] = template_files!("../wit" => "wit/deps": "pipeline.wit");

pub(super) fn template() -> Vec<TemplateFile> {
    [FILES, SDK, CONTRACT].concat()
}

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    let draft = Workspace::draft()?;
    let component = draft.path().join("step.wasm");
    let mut componentize = workspace.command(COMPONENTIZE);
    componentize.args(["--wit-path", "wit", "--world", "step", "componentize"]);
    // No WASI: what is not granted is not even imported.
    componentize.args(["--stub-wasi", "--python-path", ".", "app", "--output"]).arg(&component);
    workspace.run(&mut componentize)?;
    workspace.read(&component)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::template::tests::assert_complete;

    #[test]
    fn the_template_is_what_lies_in_its_folder() {
        assert_complete(FILES, "templates/python");
    }
}
