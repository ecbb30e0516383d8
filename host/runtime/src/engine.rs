//! The inference engine of this process.

use std::path::PathBuf;
use std::sync::Arc;

use super::load_options::{EngineChoice, LoadOptions};
use crate::GpuxError;
use gpux_inference::{
    Embedded, Engine, LibraryError, LibraryFile, LibraryOrigin, LibrarySearch, OnnxRuntime, OtherPlugins,
    ProviderChoice, ProviderLibrary, ProviderManager,
};

/// An engine and the reason for its selection.
#[derive(Clone)]
pub struct SelectedEngine {
    /// the engine
    pub engine: Arc<dyn Engine>,
    /// its library; `None` for the embedded engine
    pub library: Option<PathBuf>,
    /// the plug-ins that are registered with it
    pub plugins: Vec<ProviderLibrary>,
    /// where it comes from, for people
    pub reason: String,
    /// libraries that were found first but cannot be used
    pub warnings: Vec<String>,
}

impl SelectedEngine {
    fn embedded(reason: &str, warnings: Vec<String>) -> Result<Self, GpuxError> {
        if !Embedded::IS_BUILT {
            return Err(GpuxError::NoEngine);
        }
        Ok(Self { engine: Arc::new(Embedded), library: None, plugins: Vec::new(), reason: reason.to_owned(), warnings })
    }
}

/// The search for an engine library and its plug-ins, for this operator and these choices of providers; without
/// any, for `auto`.
pub fn engine_search(load_options: &LoadOptions, choices: &[ProviderChoice]) -> LibrarySearch {
    let mut search = LibrarySearch::from_environment(load_options.engine.library.clone());
    search.cache = load_options.cache.clone().or_else(|| load_options.engine.installed.clone());
    search.plugins.clone_from(&load_options.engine.provider_libraries);
    search.python.splice(0..0, load_options.engine.python_packages.iter().cloned());
    let wanted: Vec<_> = choices.iter().flat_map(|choice| choice.providers().iter().copied()).collect();
    let others = choices.iter().map(|choice| match choice {
        ProviderChoice::These(_) => OtherPlugins::None,
        ProviderChoice::Auto | ProviderChoice::First(_) => OtherPlugins::Suited,
        ProviderChoice::Fastest => OtherPlugins::All,
    });
    search.for_providers(&wanted, others.max().unwrap_or_default())
}

impl LoadOptions {
    /// The execution providers that the engine of these options offers.
    pub fn provider_manager(&self) -> Result<ProviderManager, GpuxError> {
        Ok(ProviderManager::new(&*select_engine(self, &[])?.engine))
    }
}

/// Selects the engine. A library that the operator names must work; a discovered library
/// that fails is replaced by the embedded engine. Of several libraries, the one that comes to the first
/// provider of `choices` is used, else the one that suits this machine.
pub fn select_engine(load_options: &LoadOptions, choices: &[ProviderChoice]) -> Result<SelectedEngine, GpuxError> {
    if load_options.engine.choice == EngineChoice::Embedded {
        return SelectedEngine::embedded("asked for", Vec::new());
    }
    let choice = engine_search(load_options, choices).choose()?;
    let instead = choice.found.as_ref().map_or_else(
        || "the embedded engine is used".to_owned(),
        |found| format!("ONNX Runtime from {} is used", found.origin),
    );
    let mut warnings: Vec<_> =
        choice.passed_over.into_iter().map(|library| format!("{}; {instead}", library.reason)).collect();
    let Some(found) = choice.found else {
        return if load_options.engine.choice == EngineChoice::OnnxRuntime {
            Err(GpuxError::NoEngine)
        } else {
            SelectedEngine::embedded("no ONNX Runtime library was found", warnings)
        };
    };
    let named = matches!(found.origin, LibraryOrigin::Option | LibraryOrigin::Variable);
    // A process holds one library: all pipelines use the first one's.
    let found = match OnnxRuntime::loaded() {
        Some(loaded) if !named => LibraryFile::at(loaded, found.origin),
        _ => found,
    };
    match OnnxRuntime::load_with(&found, &choice.plugins) {
        Ok(engine) => {
            let reason = format!("{}, from {}", found.path.display(), found.origin);
            Ok(SelectedEngine {
                engine: Arc::new(engine),
                library: Some(found.path),
                plugins: choice.plugins,
                reason,
                warnings,
            })
        }
        Err(error @ (LibraryError::Another { .. } | LibraryError::Plugin { .. })) => Err(error.into()),
        Err(error) if named || load_options.engine.choice == EngineChoice::OnnxRuntime => Err(error.into()),
        Err(error) => {
            warnings.push(format!("{error}; the embedded engine is used"));
            SelectedEngine::embedded("the ONNX Runtime library that was found cannot be used", warnings)
        }
    }
}
