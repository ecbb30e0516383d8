//! Embeds what `gpux new` writes: the folders of `templates/`, and with them the parts of this
//! repository that a new folder carries along.

#![allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// What a template takes from elsewhere: (template, folder or file of the repository, its place in
/// the new folder).
const CARRIED: &[(&str, &str, &str)] = &[
    ("c", "guest-sdk/c/gpux_json.h", "gpux-step/gpux_json.h"),
    ("c", "guest-sdk/c/gpux_step.h", "gpux-step/gpux_step.h"),
    ("c", "guest-sdk/c/pipeline_step.c", "gpux-step/pipeline_step.c"),
    ("c", "guest-sdk/c/pipeline_step.h", "gpux-step/pipeline_step.h"),
    ("c", "guest-sdk/c/pipeline_step_component_type.o", "gpux-step/pipeline_step_component_type.o"),
    ("js", "guest-sdk/js", "gpux-step"),
    ("js", "wit/pipeline.wit", "wit/deps/pipeline.wit"),
    ("python", "guest-sdk/python/gpux_step", "gpux_step"),
    ("python", "wit/pipeline.wit", "wit/deps/pipeline.wit"),
    ("rust", "guest-sdk/Cargo.toml", "gpux-step/Cargo.toml"),
    ("rust", "guest-sdk/README.md", "gpux-step/README.md"),
    ("rust", "guest-sdk/src", "gpux-step/src"),
    ("rust", "wit/pipeline.wit", "wit/pipeline.wit"),
];

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut code = String::new();
    let templates = here.join("templates");
    println!("cargo::rerun-if-changed={}", templates.display());
    for folder in sorted(&templates)? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut files = Vec::new();
        walk(&folder, "", &mut files)?;
        for (_, from, to) in CARRIED.iter().filter(|(template, ..)| *template == name) {
            let from = here.join("../..").join(from);
            println!("cargo::rerun-if-changed={}", from.display());
            if from.is_dir() {
                walk(&from, &format!("{to}/"), &mut files)?;
            } else {
                files.push(((*to).to_owned(), from));
            }
        }
        let _ =
            writeln!(code, "/// `templates/{name}`.\npub(crate) const {}: &[TemplateFile] = &[", name.to_uppercase());
        for (path, file) in files {
            let file = if path == "gpux-step/Cargo.toml" { alone(&file, &out)? } else { file };
            let _ = writeln!(
                code,
                "    TemplateFile::new({path:?}, include_bytes!({:?})),",
                file.canonicalize()?.to_string_lossy()
            );
        }
        code.push_str("];\n");
    }
    fs::write(out.join("templates.rs"), code)
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Every file below `folder`, with its path behind `prefix`.
fn walk(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for path in sorted(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What other tools leave behind.
        if name == "__pycache__" || name == "node_modules" {
            continue;
        }
        if path.is_dir() {
            walk(&path, &format!("{prefix}{name}/"), files)?;
        } else {
            files.push((format!("{prefix}{name}"), path));
        }
    }
    Ok(())
}

/// A manifest of this workspace with what it takes from there written out, so that it stands alone.
fn alone(manifest: &Path, out: &Path) -> io::Result<PathBuf> {
    let taken = [
        ("version", "CARGO_PKG_VERSION"),
        ("rust-version", "CARGO_PKG_RUST_VERSION"),
        ("license", "CARGO_PKG_LICENSE"),
        ("repository", "CARGO_PKG_REPOSITORY"),
    ];
    let mut text = fs::read_to_string(manifest)?.replace("edition.workspace = true", "edition = \"2024\"");
    for (key, variable) in taken {
        let value = env::var(variable).unwrap_or_default();
        text = text.replace(&format!("\n{key}.workspace = true"), &format!("\n{key} = {value:?}"));
    }
    text = text.replace("[lints]\nworkspace = true\n\n", "");
    let path = out.join("gpux-step.toml");
    fs::write(&path, text)?;
    Ok(path)
}
