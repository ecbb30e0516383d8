//! Values, steps, and the plan that runs them.

#![forbid(unsafe_code)]

mod cancellation;
mod class_names;
mod json;
mod labels;
mod memory_budget;
mod moving_estimate;
mod plans;
mod platform;
mod precision;
pub mod sanitize;
mod spelling;
mod units;
mod values;

pub use cancellation::{CancelCheck, CancelFlag};
pub use class_names::class_names;
pub use json::bounded_json_tree::{BoundedJsonTree, JsonTreeError};
pub use json::json_conversion::{
    JsonError, from_json, json_value_count, tensor_to_exact_json, to_json, to_json_cancellable,
};
pub use json::json_decoded_size;
pub use json::json_element::float32_to_json;
pub use json::json_elements::{MAX_STRINGS, TensorSeed};
pub use json::json_schema_limits::check_schema_limits;
pub use json::json_text::{write_json, write_json_text};
pub use labels::read_labels;
pub use memory_budget::{BudgetExhausted, MemoryBudget, MemoryPermit};
pub use moving_estimate::MovingEstimate;
pub use plans::benchmark::{Benchmark, BenchmarkOptions, LatencyStatistics, StepBenchmark};
pub use plans::branch::BRANCH;
pub use plans::calls::{CallStatistics, FlattenedCalls, StepCalls};
pub use plans::condition::Condition;
pub use plans::deadline::{Deadline, DeadlineExceeded};
pub use plans::failure_counts::FailureCounts;
pub use plans::for_each::{CollectError, ForEach, ForEachInput, ForEachOptions};
pub use plans::inner_step::{InnerPlace, InnerStep};
pub use plans::model_metadata::{MetadataError, ModelMetadata};
pub use plans::plan::{Plan, PlanInput, PlanOutput, PlanSignature, PlannedStep, TableColumns};
pub use plans::plan_builder::{Names, PlanBuilder, PortSide, WiringError};
pub use plans::registry::{Build, BuildError, Builtin, Group, OptionOrigin, Registry};
pub use plans::request::{Reader, Request};
pub use plans::run::{
    Observer, Observers, Outputs, RunError, RunOptions, StepError, TimeLimit, ValidationError, deadline_after,
};
pub use plans::step::{
    Context, DeviceStep, InputConversions, LimitExceeded, Step, StepFailure, WaitObserver, run_one_by_one,
};
pub use plans::synthetic_inputs::SyntheticInputs;
pub use plans::table::{Table, TableOptions, table_header};
pub use plans::text_counts::TextCounts;
pub use plans::tokenization::{TextOptions, TextSide, TokenizerRequest};
pub use plans::trace::{RunTrace, StepTrace};
pub use platform::cache::{CacheDir, CacheEntry, CacheFolder, PublicKey, SharedCache};
#[cfg(unix)]
pub use platform::file_passing;
pub use platform::foreign_file::{foreign_file, what_instead, what_instead_at};
pub use platform::hub::{hub_blobs, hub_folders};
pub use platform::image_type::{image_type, media_file};
pub use platform::project_files::{FileError, ProjectFiles};
pub use platform::{authenticated_file, catch_panic, child_process, files, lossless_path, process_exit, threads};
pub use precision::Precision;
pub use spelling::{closest, list};
pub use units::{Size, TimeSpan, UnitError, shorten};
pub use values::device_tensor::{DeviceTensor, HostOrDevice, Memory};
pub use values::element::{Element, ElementSet, ElementType, UnknownElementType};
pub use values::encoded_size;
pub use values::npy::{NpyError, from_npy, to_npy};
pub use values::signature::{Dim, Kind, Mismatch, Port, Signature, TensorKind};
pub use values::tensor::{
    Color, Elements, ElementsOwner, Geometry, Layout, MAX_AXES, Metadata, Tensor, TensorData, TensorElement,
    TensorError, Transform, bf16_from_f64, check_axis_count, element_count, f16_from_f64,
};
pub use values::value::Value;

#[cfg(test)]
mod tests;
