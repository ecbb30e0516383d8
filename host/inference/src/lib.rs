//! Models and the engines that run them. The only room that names `ort` and `tract`.

#![forbid(unsafe_code)]

mod adapt;
mod alike;
mod background_work;
mod batch;
mod convert;
mod embedded;
mod engine;
mod error;
mod fastest;
mod graph;
mod hardware;
mod install;
mod library;
mod library_probe;
mod made_up;
mod model_file;
mod nodes;
mod onnxruntime;
mod optimize;
mod provider_manager;
mod providers;
mod rehearsal;
mod sessions;
mod step;
mod trial;
mod turns;
mod value;
mod vet;

pub use adapt::{Adapt, Adapts, adapt};
pub use background_work::Closing;
pub use batch::{BatchOptions, BatchSizes, Batcher};
pub use convert::{Conversion, ConvertError, Precision, convert};
pub use embedded::Embedded;
pub use engine::{Device, Engine, Optimized, RunFailure, Session, SessionOptions};
pub use error::ModelLoadError;
pub use fastest::{Measured, Ranking, rank};
pub use graph::{
    FixedShapes, InputSpec, ModelInfo, ModelInspector, Narrow, OnnxType, OutputSpec, ShapeError, TensorFileError,
    from_pb,
};
pub use hardware::{Cpu, Drivers, Gpu, Hardware, Memory};
pub use install::{InstallError, InstallRequest, Installed, Progress, install};
pub use library::{Build, Choice, Found, LibraryError, Origin, PassedOver, Search};
pub use library_probe::{ProbeReport, probe, probe_answer, probe_in_child};
pub use made_up::{made_up_inputs, made_up_shape, made_up_tensor};
pub use model_file::ModelFile;
pub use nodes::{NodeReport, OperatorNodes, Placement, nodes, nodes_answer};
pub use onnxruntime::OnnxRuntime;
pub use optimize::{Optimization, is_called_for, kept, optimize, optimize_answer};
pub use provider_manager::{ProviderInfo, ProviderManager};
pub use providers::{
    ExecutionProvider, Fallback, Giver, OptionFault, OptionKind, PluginName, ProviderChoice, ProviderError,
    ProviderLibrary, ProviderOption, ProviderOptions, options_of,
};
pub use sessions::in_turn;
pub use sessions::{ModelInputs, SessionSet, Unavailable};
pub use step::{ModelOptions, ModelStep, Shapes};
pub use trial::Trial;
pub use value::{OnnxValue, ValueError};
pub use vet::{VetRequest, ensure_vetted, vet, vet_answer};

#[cfg(test)]
mod kind_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
