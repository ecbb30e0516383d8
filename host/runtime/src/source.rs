//! Where a pipeline is, and what describes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file_content::FileContent;
use super::load_options::LoadOptions;
use super::step_factory;
use crate::GpuxError;
use gpux_config::{Diagnostic, Document, LoadError, Node, SourceFile, Spanned, Spec, Variables};
use gpux_core::ProjectFiles;
use gpux_core::files::FileVersion;
use gpux_store::{DIGEST_SCHEME, Store, StoredFolder, StoredPipeline, is_bundle};

/// What names of models of a hub begin with in the store.
const HUB_SCHEME: &str = "hf:";

/// The annotations of `gpux bundle --with-engine`; what else it says has keys that begin like the first.
const ENGINE_KEY: &str = "dev.gpux.engine";
const PROVIDER_KEY: &str = "dev.gpux.engine.provider";

/// The file that a pipeline is read from. It was found, not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// a gpux.yml
    Configuration(PathBuf),
    /// a model alone
    Model(PathBuf),
    /// a component alone
    Component(PathBuf),
    /// a pipeline of the store, laid out in a folder
    Stored(StoredSource),
}

/// A pipeline of the store that stays there while this exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSource {
    path: PathBuf,
    folder: StoredFolder,
    engine_annotations: BTreeMap<String, String>,
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
    /// Finds the pipeline of a folder, a gpux.yml or a name; a model or a component alone; a bundle, whose files the store
    /// then has; or what a name or a digest means in the store, where nothing here is called so.
    ///
    /// # Errors
    ///
    /// There is no such pipeline.
    pub fn find(wanted: impl AsRef<Path>) -> Result<Self, GpuxError> {
        let wanted = wanted.as_ref();
        if let Some(name) = wanted.to_str().filter(|name| is_only_in_store(name)) {
            let store = Store::existing()?;
            let found = store.map(|store| StoredSource::find(&store, name)).transpose()?.flatten();
            return found.map(Self::Stored).ok_or_else(|| not_in_store(name).into());
        }
        if wanted.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx")) {
            // Loading says what else it is.
            return Ok(Self::Model(wanted.to_owned()));
        }
        match FileContent::detect(wanted) {
            Some(FileContent::Model) => Ok(Self::Model(wanted.to_owned())),
            Some(FileContent::Component) => Ok(Self::Component(wanted.to_owned())),
            Some(FileContent::Archive) => Ok(Self::Stored(StoredSource::of_bundle(wanted)?)),
            _ => match gpux_config::find(wanted, Path::new(".")) {
                Ok(path) => Ok(Self::Configuration(path)),
                // A layout in a folder.
                Err(LoadError::NotFound { .. }) if is_bundle(wanted) => {
                    Ok(Self::Stored(StoredSource::of_bundle(wanted)?))
                }
                Err(LoadError::NotFound { wanted, tried, similar }) => Self::find_in_store(wanted, tried, similar),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Finds what nothing here is called.
    fn find_in_store(wanted: String, mut tried: Vec<String>, mut similar: Option<String>) -> Result<Self, GpuxError> {
        let store = if gpux_store::is_name(&wanted) { Store::existing() } else { Ok(None) };
        match store {
            Ok(None) => {}
            // A file or a folder here goes before a name, whatever it is.
            Ok(Some(store)) if Path::new(&wanted).exists() => similar = store.other_name(&wanted)?.or(similar),
            Ok(Some(store)) => {
                if let Some(stored) = StoredSource::find(&store, &wanted)? {
                    return Ok(Self::Stored(stored));
                }
                tried.push(format!("`{wanted}` in the store"));
                similar = similar.map_or_else(|| store.similar_name(&wanted), |similar| Ok(Some(similar)))?;
            }
            Err(error) => tried.push(format!("`{wanted}` in the store, which does not open ({error})")),
        }
        Err(LoadError::NotFound { wanted, tried, similar }.into())
    }

    /// The digest of the pipeline's manifest, if it is one of the store.
    pub fn digest(&self) -> Option<String> {
        match self {
            Self::Stored(stored) => Some(stored.folder.digest()),
            Self::Configuration(_) | Self::Model(_) | Self::Component(_) => None,
        }
    }

    /// The engine and the provider that its author tried it with, if its bundle says that.
    pub fn tested_engine(&self) -> Option<String> {
        let annotations = self.engine_annotations()?;
        let provider = annotations.get(PROVIDER_KEY).map(|provider| format!(" on {provider}"));
        annotations.get(ENGINE_KEY).map(|engine| format!("{engine}{}", provider.unwrap_or_default()))
    }

    /// What its bundle says of the engine, by the keys of the annotations.
    pub fn engine_annotations(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Stored(stored) => Some(&stored.engine_annotations),
            Self::Configuration(_) | Self::Model(_) | Self::Component(_) => None,
        }
    }

    /// The digest of the manifest that `wanted` means now, in the store or as a bundle, without a look at its files.
    pub fn current_digest(wanted: &str) -> Option<String> {
        let digits = if is_bundle(Path::new(wanted)) {
            gpux_store::peek(Path::new(wanted)).ok()?.manifest
        } else {
            Store::existing_to_read().ok()??.resolve_digest(wanted).ok()??
        };
        Some(format!("{DIGEST_SCHEME}{digits}"))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Configuration(path) | Self::Model(path) | Self::Component(path) => path,
            Self::Stored(stored) => &stored.path,
        }
    }

    /// The folder that paths in the file begin in.
    pub(super) fn folder(&self) -> &Path {
        self.path().parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Whether it is a model or a component, without a gpux.yml.
    pub const fn is_alone(&self) -> bool {
        matches!(self, Self::Model(_) | Self::Component(_))
    }

    /// Reads what describes the pipeline, without opening the files that it names.
    ///
    /// # Errors
    ///
    /// Its gpux.yml cannot be read, or is wrong.
    pub fn read(self, load_options: &LoadOptions) -> Result<Definition, GpuxError> {
        self.read_with(&variables(load_options), load_options)
    }

    /// The same with no variable set: each has its default.
    ///
    /// # Errors
    ///
    /// As [`Self::read`]; or a variable has no default.
    pub fn read_without_variables(self, load_options: &LoadOptions) -> Result<Definition, GpuxError> {
        self.read_with(&Variables::new(load_options.policy.env.clone(), |_| None), load_options)
    }

    fn read_with(self, variables: &Variables<'_>, load_options: &LoadOptions) -> Result<Definition, GpuxError> {
        let version = FileVersion::of(self.path());
        let (document, spec) = match &self {
            Self::Configuration(path) | Self::Stored(StoredSource { path, .. }) => {
                let outside = load_options.policy.outside_files;
                gpux_config::load(path, outside, variables, &check_step)?
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
        let (Self::Configuration(path) | Self::Stored(StoredSource { path, .. })) = &self else {
            return Ok(self.read(load_options)?.spec.name.value);
        };
        let outside = load_options.policy.outside_files;
        Ok(gpux_config::read_name(path, outside, &variables(load_options), &check_step)?)
    }
}

impl StoredSource {
    /// What a name or a digest means in the store, laid out.
    fn find(store: &Store, wanted: &str) -> Result<Option<Self>, GpuxError> {
        store.resolve(wanted)?.map(|pipeline| Self::lay_out(store, &pipeline)).transpose()
    }

    /// The pipeline of a bundle. Of one that the store has, nothing but its index and its manifest is read.
    fn of_bundle(path: &Path) -> Result<Self, GpuxError> {
        let manifest = gpux_store::peek(path)?.manifest;
        let store = Store::from_environment()?;
        let pipeline = store.pipeline(&manifest).or_else(|_| store.add_bundle(path, None, &mut |_| {}))?;
        Self::lay_out(&store, &pipeline)
    }

    fn lay_out(store: &Store, pipeline: &StoredPipeline) -> Result<Self, GpuxError> {
        let folder = store.lay_out(pipeline)?;
        let mut engine_annotations = pipeline.annotations.clone();
        engine_annotations.retain(|key, _| key.starts_with(ENGINE_KEY));
        Ok(Self { path: gpux_config::find(folder.path(), Path::new("."))?, folder, engine_annotations })
    }
}

/// Whether this is a digest, or the name of a model of a hub, which nothing but the store has.
fn is_only_in_store(name: &str) -> bool {
    name.starts_with(DIGEST_SCHEME) || name.starts_with(HUB_SCHEME)
}

fn not_in_store(name: &str) -> LoadError {
    let advice =
        if name.starts_with(HUB_SCHEME) { format!("; `gpux pull {name}` puts it there") } else { String::new() };
    LoadError::NotFound { wanted: name.to_owned(), tried: vec![format!("it in the store{advice}")], similar: None }
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

    /// The values of gpux.yml, each with its place in the text.
    pub const fn root(&self) -> &Node {
        &self.document.root
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
