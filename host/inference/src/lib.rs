//! Models and the engines that run them. The only crate that depends on `ort` and `tract`.

#![forbid(unsafe_code)]

mod adaptation;
mod background_work;
mod batch;
mod convert;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(not(feature = "embedded"))]
#[path = "no_embedded.rs"]
mod embedded;
mod engine;
mod error;
mod exclusive_device;
mod graph;
mod graph_optimization;
mod hardware;
mod install;
mod library;
mod library_probe;
mod model_file;
mod node_placement;
mod onnxruntime;
mod provider_manager;
mod provider_ranking;
mod providers;
mod sessions;
mod smoke_test;
mod step;
mod synthetic_inputs;
mod tensor_comparison;
mod trial_context;
mod validation;
mod value;

pub use adaptation::{Adaptation, Adaptations};
pub use background_work::PendingDrop;
pub use batch::{BatchOptions, BatchSizes, BatchVerdict, Batcher, ShapeLadder};
pub use convert::{CONVERSION_PACKAGES, Conversion, ConvertError, convert};
pub use embedded::Embedded;
pub use engine::{Device, Engine, Optimized, RunFailure, Session, SessionOptions};
pub use error::ModelLoadError;
pub use graph::{
    FixedShapes, InputSpec, ModelInfo, ModelInspector, NarrowType, OnnxType, OutputSpec, ShapeError, TensorFileError,
    WeightLinks, from_pb,
};
pub use graph_optimization::{Optimization, cached_graph, optimization_child, optimize, should_optimize};
pub use hardware::{Cpu, Drivers, Gpu, Hardware, Memory};
pub use install::{
    InstallError, InstallRequest, Installed, InstalledLibrary, Progress, install, installed, remove, remove_outdated,
};
pub use library::{
    LibraryBuild, LibraryError, LibraryFile, LibraryOrigin, LibrarySearch, LibrarySelection, OtherPlugins, PluginFile,
    SkippedLibrary,
};
pub use library_probe::{ProbeReport, probe, probe_child, probe_in_child};
pub use model_file::{CopiedModel, ModelFile};
pub use node_placement::{NodeReport, OperatorNodes, Placement, node_placement_child, profile_nodes};
pub use onnxruntime::OnnxRuntime;
pub use provider_manager::{ProviderInfo, ProviderManager};
pub use provider_ranking::{ProviderRanking, ProviderTiming, rank_providers};
pub use providers::{
    ExecutionProvider, Fallback, OptionError, OptionKind, OptionSource, PluginName, ProviderChoice, ProviderError,
    ProviderLibrary, ProviderOption, ProviderOptions, options_of,
};
pub use sessions::{ModelInputs, SessionRunError, SessionSet};
pub use sessions::{SessionReservation, with_preferred_session};
pub use step::{InputShapes, ModelOptions, ModelStep};
pub use synthetic_inputs::synthetic_inputs;
pub use tensor_comparison::TensorDifference;
pub use trial_context::Trial;
pub use validation::{TrialReport, ensure_validated, validation_child};
pub use value::{OnnxValue, ValueError};

#[cfg(test)]
mod kind_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
