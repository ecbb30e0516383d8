//! For the program `gpux` and the Python package. No other program should use this: it changes without notice.

pub use super::access::PipelineAccess;
pub use super::branches::{MASK, RAW_SCORES, SCORES, TOKEN_VECTORS};
pub use super::endpoints::{ClassifyEndpoint, EmbeddingEndpoint, Endpoints, RerankEndpoint, TokenizerEndpoint};
pub use super::engine::{SelectedEngine, engine_search, select_engine};
pub use super::file_content::FileContent;
pub use super::fork::{engine_library, prepare_for_fork, start_engine_threads};
pub use super::load_options::MAX_THREADS;
pub use super::named_files::NamedFiles;
pub use super::pipeline_info::{ModelSummary, PipelineInfo};
pub use super::precision::{
    ModelPrecision, PrecisionRequest, auto_models, candidates as precision_candidates, converted_path,
    remember as remember_precision,
};
pub use super::source::{Definition, Source, StoredSource};
pub use gpux_config::WasmLimits;
pub use gpux_core::TimeSpan;
