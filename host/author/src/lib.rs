//! Tools for authors of steps and pipelines: new folders from templates, builds, golden cases,
//! recordings of component steps, comparisons of changed models, and measurements of precisions.

#![forbid(unsafe_code)]

mod atomic_write;
mod batching;
mod bless;
mod build;
mod build_error;
mod build_record;
mod bundle;
mod case;
mod case_runner;
mod command_runner;
mod diff_statistics;
mod edit_detector;
mod fingerprint;
mod generated_files;
mod hub_model;
mod language;
mod measurement;
mod model_comparison;
mod model_input_capture;
mod model_pipeline;
mod observed_shapes;
mod precision_choice;
mod project_name;
mod recorder;
mod replayer;
mod scaffold;
mod step_file;
mod strip;
mod target;
mod template;
mod tool;
mod tool_environment;
mod value_difference;
mod watched_files;
mod workspace;

pub use atomic_write::write_file;
pub use batching::verify_batching;
pub use build::{BuildOptions, BuildOutput, BuildRequest, build};
pub use build_error::{BuildError, InstallError};
pub use bundle::{BundleContents, BundleError, BundleRequest, LeftOut, LeftOutFiles, bundle_contents};
pub use case::{CASE_FILE, CASES_FOLDER, NoCasesError, cases_in};
pub use case_runner::{CaseOutcome, CaseReport, CaseRunner};
pub use command_runner::Progress;
pub use diff_statistics::DiffStatistics;
pub use edit_detector::EditDetector;
pub use hub_model::{
    FilePlacement, HubModelError, HubModelFault, HubModelReport, HubModelRequest, HubTask, ImageBackend, PRECISIONS,
    Pooling, folder_name, pipeline_for_hub_model,
};
pub use language::Language;
pub use measurement::{
    MeasureError, MeasureRequest, MeasureTarget, MeasuredItem, Measurement, NamedRequest, read_output,
};
pub use model_comparison::{Accuracy, ComparisonError, ModelComparison, compare_models};
pub use model_input_capture::{ModelInputCapture, ModelSample, case_requests, first_case_request};
pub use model_pipeline::{
    ColumnsError, ModelPipelineError, ModelPipelineReport, ModelPipelineRequest, Task, TestFailure, pipeline_for_model,
};
pub use observed_shapes::observed_shapes;
pub use precision_choice::{SYNTHETIC_INPUTS, choose_precision};
pub use recorder::{RecordError, Recorder};
pub use replayer::Replayer;
pub use scaffold::{ScaffoldError, ScaffoldKind, ScaffoldReport, scaffold};
pub use step_file::{Recipe, StepFile};
pub use strip::strip;
pub use tool::{Package, Tool};
pub use tool_environment::ToolEnvironment;
pub use watched_files::WatchedFiles;
