//! Python: componentize-py, which puts the interpreter and the step's modules into a component.

use crate::build_error::BuildError;
use crate::workspace::{Tool, Workspace};

const COMPONENTIZE: &str = "componentize-py";

pub(super) const TOOLS: &[Tool] = &[Tool {
    name: COMPONENTIZE,
    checks: &[&[COMPONENTIZE, "--version"]],
    install: "run `python3 -m pip install componentize-py==0.25.1`",
}];

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    let draft = Workspace::draft()?;
    let component = draft.path().join("step.wasm");
    let mut componentize = workspace.command(COMPONENTIZE);
    componentize.args(["--quiet", "--wit-path", "wit", "--world", "step", "componentize"]);
    // No WASI: the component imports only granted interfaces.
    componentize.args(["--stub-wasi", "--python-path", ".", "app", "--output"]).arg(&component);
    // Its own stack would hide the step's traceback.
    componentize.env("RUST_BACKTRACE", "0");
    workspace.run(&mut componentize)?;
    workspace.read(&component)
}
