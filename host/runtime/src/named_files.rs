//! Which files a pipeline is made of, found without an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::load_options::LoadOptions;
use super::source::Definition;
use super::{labels, models, precision, step_factory, warm_up};
use crate::GpuxError;
use gpux_config::{Action, ConfigurationError, Diagnostic};
use gpux_inference::ModelInspector;

/// The files that a pipeline names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedFiles {
    /// models, components, tokenizers, labels and others, as gpux.yml names them from its folder, or as steps find them
    /// beside those
    pub files: BTreeSet<PathBuf>,
    /// for each of the files that is a model, its weights: where they lie from the model's folder, and where they are
    pub weights: BTreeMap<PathBuf, BTreeMap<PathBuf, PathBuf>>,
}

impl Definition {
    /// Opens every file that the pipeline names, as loading it does. Models are parsed and components found, but neither
    /// is run.
    pub fn named_files(&self, load_options: &LoadOptions) -> Result<NamedFiles, GpuxError> {
        let (spec, files) = (self.spec(), self.files(load_options));
        let report = |faults: Vec<Diagnostic>| {
            if faults.is_empty() {
                return Ok(());
            }
            Err(GpuxError::from(ConfigurationError::new(self.document().source.clone(), faults)))
        };
        report(models::check(spec, &files))?;

        let (mut named, mut registry) = (NamedFiles::default(), super::builtins());
        for model in &spec.models {
            let path = files.root().join(&model.source.value);
            let info = ModelInspector::inspect(&path)?;
            registry.model_metadata_mut().insert(&model.name.value, info.metadata, info.omitted_metadata);
            named.weights.insert(path, info.external_locations);
            for converted in precision::variants(model, &files, load_options) {
                let path = files.root().join(converted);
                let info = ModelInspector::inspect(&path)?;
                named.weights.insert(path, info.external_locations);
            }
        }

        let mut faults = labels::read(spec, &files, registry.model_metadata()).err().unwrap_or_default();
        for step in spec.all_steps() {
            match &step.action {
                Action::BuiltIn(options) => {
                    let built = step_factory::builtin(&registry, &files, &step.tag, options);
                    faults.extend(built.err().into_iter().flatten());
                }
                Action::Wasm(wasm) => {
                    let found = files.resolve(Path::new(&wasm.component.value));
                    let fault = |error: gpux_core::FileError| {
                        Diagnostic::new("file", wasm.component.span.clone(), error.to_string())
                    };
                    faults.extend(found.err().map(fault));
                }
                Action::Model(_) | Action::ForEach(_) => {}
            }
        }
        for request in &spec.serving.warmup {
            for path in request.value.values().filter_map(warm_up::file) {
                let fault =
                    |error: gpux_core::FileError| Diagnostic::new("file", request.span.clone(), error.to_string());
                faults.extend(files.resolve(Path::new(path)).err().map(fault));
            }
        }
        report(faults)?;
        named.files = files.named().into_keys().filter(|path| path.is_file()).collect();
        Ok(named)
    }
}
