//! C: zig's `clang`, which brings a C library for WebAssembly along. It is asked for WASI, which
//! only says which library it takes: a step that opens no file imports nothing of it.

use std::path::PathBuf;

use crate::build_error::BuildError;
use crate::tool::{Package, Tool};
use crate::workspace::Workspace;

/// `python -m ziglang`, but for a module of that name in the step's folder, which may be a
/// stranger's. Python has a switch for that (`-P`) since 3.11.
const MODULE: &str = "import sys; sys.path[:] = filter(None, sys.path); \
    import runpy; runpy.run_module('ziglang', run_name='__main__', alter_sys=True)";

const ZIG: Tool = Tool {
    name: "zig",
    checks: &[
        &["zig", "version"],
        &["python3", "-c", MODULE, "version"],
        &["python", "-c", MODULE, "version"],
        // What the package installs.
        &["python-zig", "version"],
    ],
    by_hand: "install it as https://ziglang.org says",
    package: Some(Package::ZIG),
};

pub(super) const TOOLS: &[Tool] = &[ZIG];

const OPTIONS: &[&str] = &[
    "-target",
    "wasm32-wasi",
    "-mexec-model=reactor",
    // SIMD of 128 bits is in every engine since 2021; loops over pixels need it.
    "-mcpu=generic+simd128",
    "-O2",
    "-Wall",
    "-Wextra",
    // Its default of 16 MiB would be memory of every request.
    "-Wl,-z,stack-size=65536",
    "-Isrc",
    "-Igpux-step",
];

/// The C bindings of the contract.
const BINDINGS: &[&str] = &["gpux-step/pipeline_step.c", "gpux-step/pipeline_step_component_type.o"];

pub(super) fn build(workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
    let sources = sources(workspace)?;
    // The check ends in `version`, where a build says `cc`.
    let check = workspace.check(&ZIG)?.check;
    let (program, arguments) = check.split_first().unwrap_or((&"zig", &[]));
    let draft = Workspace::draft()?;
    let module = draft.path().join("module.wasm");
    let mut zig = workspace.command(program);
    zig.args(arguments.iter().take(arguments.len().saturating_sub(1))).arg("cc").args(OPTIONS);
    zig.args(sources).args(BINDINGS).arg("-o").arg(&module);
    workspace.run(&mut zig)?;
    workspace.read(&module)
}

/// The `.c` files of `src/`, in the order of their names.
fn sources(workspace: &Workspace<'_>) -> Result<Vec<PathBuf>, BuildError> {
    let folder = workspace.folder().join("src");
    let fail = |source| BuildError::Io { what: "read", path: folder.clone(), source };
    let mut sources = Vec::new();
    for entry in folder.read_dir().map_err(fail)? {
        let name = PathBuf::from(entry.map_err(fail)?.file_name());
        if name.extension().is_some_and(|ending| ending == "c") {
            sources.push(PathBuf::from("src").join(name));
        }
    }
    sources.sort();
    if sources.is_empty() {
        return Err(BuildError::NoModule("there is no `.c` file in `src/`".to_owned()));
    }
    Ok(sources)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::Command;

    use super::*;

    /// On a machine without any Python, nothing can come from there.
    #[test]
    fn python_ignores_zig_in_the_step_folder() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = folder.path().join("loaded");
        std::fs::write(folder.path().join("ziglang.py"), "open('loaded', 'w')").unwrap();
        for check in ZIG.checks.iter().filter(|check| check[0].starts_with("python")) {
            let _ = Command::new(check[0]).args(&check[1..]).current_dir(folder.path()).output();
            assert!(!loaded.exists(), "{check:?}");
        }
    }
}
