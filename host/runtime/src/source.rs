//! Where a pipeline is, and what describes it.

use std::path::{Path, PathBuf};

use super::file_content::FileContent;
use super::load_options::LoadOptions;
use super::step_factory;
use crate::GpuxError;
use gpux_config::{Diagnostic, Document, Node, SourceFile, Spanned, Spec, Variables};
use gpux_core::ProjectFiles;
use gpux_core::files::FileVersion;

/// The file that a pipeline is read from. It was found, not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// a gpux.yml
    Configuration(PathBuf),
    /// a model alone
    Model(PathBuf),
    /// a component alone
    Component(PathBuf),
}

/// What describes a pipeline, read once: what is checked is what is loaded.
#[derive(Clone, Debug)]
pub struct Definition {
    source: Source,
    version: FileVersion,
    document: Document,
    pub(super) spec: Spec,
}

impl Source {
    /// Finds the pipeline of a folder, a gpux.yml or a name; or a model or a component alone.
    ///
    /// # Errors
    ///
    /// There is no such pipeline.
    pub fn find(wanted: impl AsRef<Path>) -> Result<Self, GpuxError> {
        let wanted = wanted.as_ref();
        if wanted.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx")) {
            // Loading says what else it is.
            return Ok(Self::Model(wanted.to_owned()));
        }
        match FileContent::detect(wanted) {
            Some(FileContent::Model) => Ok(Self::Model(wanted.to_owned())),
            Some(FileContent::Component) => Ok(Self::Component(wanted.to_owned())),
            _ => Ok(Self::Configuration(gpux_config::find(wanted, Path::new("."))?)),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Configuration(path) | Self::Model(path) | Self::Component(path) => path,
        }
    }

    /// The folder that paths in the file begin in.
    pub(super) fn folder(&self) -> &Path {
        self.path().parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Whether it is a model or a component, without a gpux.yml.
    pub const fn is_alone(&self) -> bool {
        !matches!(self, Self::Configuration(_))
    }

    /// Reads what describes the pipeline, without opening the files that it names.
    ///
    /// # Errors
    ///
    /// Its gpux.yml cannot be read, or is wrong.
    pub fn read(self, load_options: &LoadOptions) -> Result<Definition, GpuxError> {
        let version = FileVersion::of(self.path());
        let (document, spec) = match &self {
            Self::Configuration(path) => {
                let outside = load_options.policy.outside_files;
                gpux_config::load(path, outside, &variables(load_options), &check_step)?
            }
            Self::Model(path) => (empty_document(path), Spec::for_model(file_name(path))),
            Self::Component(path) => (empty_document(path), Spec::for_component(file_name(path))),
        };
        Ok(Definition { source: self, version, document, spec })
    }

    /// The name of the pipeline, also where the rest of its file is wrong.
    ///
    /// # Errors
    ///
    /// It has no name that can be read.
    pub fn name(self, load_options: &LoadOptions) -> Result<String, GpuxError> {
        let Self::Configuration(path) = &self else { return Ok(self.read(load_options)?.spec.name.value) };
        let outside = load_options.policy.outside_files;
        Ok(gpux_config::read_name(path, outside, &variables(load_options), &check_step)?)
    }
}

impl Definition {
    /// The pipeline that `spec` describes. Paths in it are relative to the folder of `path`; diagnostics point into
    /// `document`.
    pub fn new(path: PathBuf, document: Document, spec: Spec) -> Self {
        let version = FileVersion::of(&path);
        Self { source: Source::Configuration(path), version, document, spec }
    }

    /// Where it was read from.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// The version of the source's file before it was read.
    pub const fn version(&self) -> FileVersion {
        self.version
    }

    /// The text of gpux.yml; empty where there is none.
    pub fn text(&self) -> &str {
        &self.document.source.text
    }

    /// The contents of gpux.yml, complete.
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(super) const fn document(&self) -> &Document {
        &self.document
    }

    pub(super) fn into_parts(self) -> (Source, Spec) {
        (self.source, self.spec)
    }

    /// The files that it may name.
    pub(super) fn files(&self, load_options: &LoadOptions) -> ProjectFiles {
        // The operator named a file alone, wherever a link leads.
        let outside = self.source.is_alone() || load_options.policy.outside_files;
        ProjectFiles::new(self.source.folder(), outside)
    }
}

fn empty_document(path: &Path) -> Document {
    Document { source: SourceFile::new(path.display().to_string(), String::new()), root: Node::default() }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The variables that a file may read.
fn variables(load_options: &LoadOptions) -> Variables<'static> {
    let policy = &load_options.policy;
    Variables::from_environment(policy.env.clone(), policy.reserved_env.clone())
}

/// The tag and the options of a built-in step, against the registry.
pub(super) fn check_step(tag: &Spanned<String>, options: &Node) -> Vec<Diagnostic> {
    step_factory::check_builtin(&super::builtins(), tag, options)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::Pipeline;

    const TEXT: &str = "name: t\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [3] } }\npipeline: [softmax]\n";

    #[test]
    fn finds_folders_files_models_and_components() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("gpux.yml"), TEXT).unwrap();
        std::fs::write(path("step"), b"\0asm\x0d\0\x01\0").unwrap();
        for (wanted, source) in [
            (folder.path().to_owned(), Source::Configuration(path("gpux.yml"))),
            (path("gpux.yml"), Source::Configuration(path("gpux.yml"))),
            (path("missing.ONNX"), Source::Model(path("missing.ONNX"))),
            (path("step"), Source::Component(path("step"))),
        ] {
            assert_eq!(Source::find(&wanted).unwrap(), source);
            let name = source.clone().name(&LoadOptions::default()).unwrap();
            assert_eq!(name, source.read(&LoadOptions::default()).unwrap().spec().name.value);
        }
        assert!(matches!(Source::find(path("none")), Err(GpuxError::Configuration(_))));
    }

    #[test]
    fn loads_the_text_that_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpux.yml");
        std::fs::write(&path, TEXT).unwrap();
        let definition = Source::find(&path).unwrap().read(&LoadOptions::default()).unwrap();
        std::fs::write(&path, TEXT.replace("softmax", "no-such-step")).unwrap();
        assert_eq!(definition.text(), TEXT);
        let pipeline = Pipeline::load(definition, &LoadOptions::default()).unwrap();
        assert_eq!(pipeline.plan().steps()[0].name, "softmax");
        assert_ne!(pipeline.files()[&path], FileVersion::of(&path), "a change since it was read is seen");
    }

    #[test]
    fn reads_the_name_of_a_file_that_is_wrong_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpux.yml");
        let name = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Source::find(&path).unwrap().name(&LoadOptions::default())
        };
        assert_eq!(name("name: t\nversion: 1\npipeline: [no-such-step]\n").unwrap(), "t");
        assert!(name("version: 1\npipeline: [softmax]\n").unwrap_err().to_string().contains("name"));
    }
}
