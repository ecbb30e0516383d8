//! Python: componentize-py, which puts the interpreter and the step's modules into a component.

use std::path::{Path, PathBuf};

use crate::build_error::BuildError;
use crate::fingerprint::Fingerprint;
use crate::tool::{Package, Tool};
use crate::workspace::Workspace;

const COMPONENTIZE: &str = "componentize-py";

pub(super) const TOOLS: &[Tool] = &[Tool {
    name: COMPONENTIZE,
    checks: &[&[COMPONENTIZE, "--version"]],
    by_hand: "install it as https://github.com/bytecodealliance/componentize-py says",
    package: Some(Package::COMPONENTIZE_PY),
}];

/// Prints the folders in which Python looks for packages.
const SITE: &str = "import site; print(*site.getsitepackages(), site.getusersitepackages(), sep='\\n')";

/// With the packages that componentize-py finds: those of the active environment, else those of Python itself.
pub(super) fn fingerprint(workspace: &Workspace<'_>, fingerprint: Fingerprint) -> Fingerprint {
    let folders = match std::env::var_os("VIRTUAL_ENV") {
        Some(environment) => packages_of(Path::new(&environment)),
        None => packages_of_python(workspace),
    };
    folders.iter().fold(fingerprint, |fingerprint, folder| fingerprint.with_listing(folder))
}

fn packages_of(environment: &Path) -> Vec<PathBuf> {
    let libraries = std::fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    let folders = libraries.map(|library| library.path().join("site-packages"));
    let mut folders: Vec<_> = folders.chain([environment.join("Lib/site-packages")]).collect();
    folders.sort();
    folders
}

fn packages_of_python(workspace: &Workspace<'_>) -> Vec<PathBuf> {
    // Isolated: no module of the step's folder is loaded.
    let output = workspace.command("python3").args(["-I", "-c", SITE]).output();
    let printed = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&printed).lines().map(PathBuf::from).collect()
}

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
