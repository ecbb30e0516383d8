//! Reads `step.yml`, the description of a step's folder.

use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::generated_files::is_generated;
use super::language::Language;
use super::project_name::name_fault;
use gpux_config::{ConfigurationError, Diagnostic, Document, FileKind, LoadError, Spanned};

/// The file's name.
pub(super) const STEP_FILE: &str = "step.yml";

const FORM: FileKind = FileKind { name: STEP_FILE, start: "start with `name:` and `language:`" };

/// The file as written.
#[derive(Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RawStepFile {
    /// The name of the step, and of its component
    name: Spanned<String>,
    /// The language it is written in, whose own build then builds it
    #[serde(default)]
    language: Option<Language>,
    /// Where the component goes, relative to this file
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024))]
    output: Option<Spanned<String>>,
    /// Commands that build it, in place of the language's own; the last writes the module to `$GPUX_OUTPUT`
    #[serde(default)]
    #[schemars(length(min = 1, max = 32))]
    build: Option<Vec<String>>,
}

/// A step's folder: what its `step.yml` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFile {
    /// the folder
    pub folder: PathBuf,
    /// the name of the step
    pub name: String,
    /// how it is built
    pub recipe: Recipe,
    /// the component, relative to the folder
    pub output: PathBuf,
}

/// The recipe for building a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// by its language's own build
    Language(Language),
    /// by these commands; the last writes the module to `$GPUX_OUTPUT`
    Commands(Vec<String>),
}

impl StepFile {
    /// Whether `folder` is the folder of a step.
    pub fn exists_in(folder: &Path) -> bool {
        folder.join(STEP_FILE).is_file()
    }

    /// Reads the `step.yml` of `folder`.
    pub fn load(folder: &Path) -> Result<Self, LoadError> {
        let path = folder.join(STEP_FILE);
        let shown: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
        let (document, written) = gpux_config::load_as::<RawStepFile>(FORM, &shown)?;
        Ok(Self::checked(folder, &document, written)?)
    }

    fn checked(folder: &Path, document: &Document, written: RawStepFile) -> Result<Self, Box<ConfigurationError>> {
        let mut faults = Vec::new();
        let RawStepFile { name, language, output, build } = written;
        if let Some(why) = name_fault(&name.value) {
            let hint = "use small letters, digits and single hyphens";
            faults.push(Diagnostic::new("name", name.span.clone(), format!("`name`: {why}")).hint(hint));
        }
        if let Some(output) = &output {
            faults.extend(output_fault(output));
        }
        let recipe = build.map(Recipe::Commands).or(language.map(Recipe::Language));
        if recipe.is_none() {
            let languages = Language::ALL.map(Language::name).join(", ");
            let hint = format!("add `language: …` ({languages}), or under `build:` the commands that build it");
            faults.push(Diagnostic::new("missing-key", name.span, "nothing says how this step is built").hint(hint));
        }
        let Some(recipe) = recipe.filter(|_| faults.is_empty()) else {
            return Err(Box::new(ConfigurationError::new(document.source.clone(), faults)));
        };
        let output = output.map_or_else(|| PathBuf::from(format!("{}.wasm", name.value)), |output| output.value.into());
        Ok(Self { folder: folder.to_owned(), name: name.value, recipe, output })
    }

    /// The newest file of the step's folder, if the component is older. Files that the build does not read
    /// do not count: cases, documents, and build outputs.
    pub fn newest_stale_source(&self) -> Option<PathBuf> {
        let component = self.component();
        let built = component.metadata().ok()?.modified().ok()?;
        let mut newest = None;
        let mut folders = vec![self.folder.clone()];
        let mut left = MAX_ENTRIES;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).ok()?.flatten() {
                left = usize::checked_sub(left, 1)?;
                let (path, name) = (entry.path(), entry.file_name());
                let (name, Ok(metadata)) = (name.to_string_lossy(), entry.metadata()) else { continue };
                let in_root = folder == self.folder;
                if is_generated(&path, in_root)
                    || (in_root && NOT_BUILT_FROM.contains(&&*name))
                    || name.ends_with(".md")
                    || name.ends_with(".wasm")
                {
                    continue;
                }
                match metadata.modified() {
                    _ if metadata.is_dir() => folders.push(path),
                    Ok(changed) if changed > built => newest = newest.max(Some((changed, path))),
                    _ => {}
                }
            }
        }
        newest.map(|(_, path)| path)
    }

    /// The component's path.
    pub fn component(&self) -> PathBuf {
        self.folder.join(&self.output).components().filter(|part| *part != Component::CurDir).collect()
    }
}

/// Names directly in a step's folder that no build reads: cases, and what tools leave.
const NOT_BUILT_FROM: [&str; 4] = [super::case::CASES_FOLDER, "venv", "dist", "Cargo.lock"];
/// The most entries of a step's folder that are looked at; one with more is not told to be stale.
const MAX_ENTRIES: usize = 20_000;

fn output_fault(output: &Spanned<String>) -> Option<Diagnostic> {
    let path = Path::new(&output.value);
    let fault = |message: &str| Diagnostic::new("output", output.span.clone(), format!("`output` {message}"));
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Some(fault("leads out of the step's folder").hint("name a file in this folder"));
    }
    let is_wasm = path.extension().is_some_and(|ending| ending == "wasm");
    (!is_wasm).then(|| fault("is a component, so it ends in `.wasm`").hint(format!("write `{}.wasm`", output.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StepFile, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(STEP_FILE), text).unwrap();
        assert!(StepFile::exists_in(folder.path()));
        StepFile::load(folder.path()).map_err(|error| match error {
            LoadError::Invalid(error) => {
                error.diagnostics().iter().map(|found| found.message.clone()).collect::<Vec<_>>().join("; ")
            }
            other => other.to_string(),
        })
    }

    #[test]
    fn fills_in_defaults() {
        let step = read("name: blur-faces\nlanguage: rust\n").unwrap();
        assert_eq!(step.output, Path::new("blur-faces.wasm"));
        assert!(step.component().ends_with("blur-faces.wasm"));
        assert_eq!((step.name.as_str(), step.recipe), ("blur-faces", Recipe::Language(Language::Rust)));
        let own = Recipe::Commands(vec!["make".to_owned()]);
        for language in ["", "language: rust\n"] {
            let step = read(&format!("name: x\n{language}output: out/x.wasm\nbuild: [make]\n")).unwrap();
            assert_eq!((step.output.as_path(), &step.recipe), (Path::new("out/x.wasm"), &own));
        }
    }

    #[test]
    fn detects_stale_components() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("src/deep")).unwrap();
        std::fs::create_dir_all(at("tests/case")).unwrap();
        std::fs::write(at(STEP_FILE), "name: x\nlanguage: rust\n").unwrap();
        let step = StepFile::load(folder.path()).unwrap();
        assert_eq!(step.newest_stale_source(), None, "there is no component");
        let now = std::time::SystemTime::now();
        let write = |path: &str, age: u64| {
            std::fs::write(at(path), "").unwrap();
            let file = std::fs::File::options().write(true).open(at(path)).unwrap();
            file.set_modified(now - std::time::Duration::from_secs(age)).unwrap();
        };
        for (path, age) in [("src/deep/lib.rs", 50), (STEP_FILE, 50), ("x.wasm", 40)] {
            write(path, age);
        }
        for path in ["tests/case/case.yml", "README.md", ".hidden", "Cargo.lock"] {
            write(path, 10);
        }
        assert_eq!(step.newest_stale_source(), None);
        write("src/other.rs", 30);
        write("src/deep/lib.rs", 20);
        assert_eq!(step.newest_stale_source(), Some(at("src/deep/lib.rs")));
        write("x.wasm", 20);
        assert_eq!(step.newest_stale_source(), None, "as old is not older");
        std::fs::create_dir_all(at("src/target")).unwrap();
        write("src/target/a.h", 10);
        assert_eq!(step.newest_stale_source(), Some(at("src/target/a.h")));
    }

    #[test]
    fn reports_every_mistake() {
        for (text, message) in [
            ("", "the file is empty"),
            ("[]", "a step.yml is a mapping (`key: value` lines), but this file is a list"),
            ("name: x", "nothing says how this step is built"),
            ("name: x\nlanguage: rust\noptions: {}", "unknown key `options`"),
            ("name: x\nlanguage: cobol", "`language` cannot be `cobol`"),
            (
                "name: X\nlanguage: rust\noutput: ../x.wasm",
                "`name`: it holds other characters; `output` leads out of the step's folder",
            ),
            ("name: x\nlanguage: rust\noutput: /tmp/x.wasm", "`output` leads out of the step's folder"),
            ("name: x\nlanguage: rust\noutput: x.exe", "`output` is a component, so it ends in `.wasm`"),
            ("name: x\nlanguage: rust\nbuild: []", "`build` needs at least 1 item"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.starts_with(message), "{text:?}: {found}");
        }
    }
}
