//! Values, steps, and the plan that runs them.

#![forbid(unsafe_code)]

pub mod authenticated_file;
mod benchmark;
mod bounded_json_tree;
mod cache;
mod cancellation;
pub mod catch_panic;
pub mod child_process;
mod deadline;
mod device_tensor;
mod element;
pub mod encoded_size;
mod failure_counts;
#[cfg(unix)]
pub mod file_passing;
pub mod files;
mod foreign_file;
mod hub;
mod image_type;
mod json_conversion;
pub mod json_decoded_size;
mod json_element;
mod json_elements;
mod json_request;
mod json_schema_limits;
mod json_text;
mod labels;
pub mod lossless_path;
mod memory_budget;
mod moving_estimate;
mod npy;
mod plan;
mod plan_builder;
mod precision;
pub mod process_exit;
mod project_files;
mod registry;
mod request;
mod run;
pub mod sanitize;
mod signature;
mod spelling;
mod step;
mod strided_copy;
mod synthetic_inputs;
mod table;
mod tensor;
pub mod threads;
mod trace;
mod units;
mod value;

pub use benchmark::{Benchmark, BenchmarkOptions, LatencyStatistics};
pub use bounded_json_tree::{BoundedJsonTree, JsonTreeError};
pub use cache::{CacheDir, CacheEntry, CacheFolder, PublicKey, SharedCache};
pub use cancellation::CancelCheck;
pub use deadline::{Deadline, DeadlineExceeded};
pub use device_tensor::{DeviceTensor, HostOrDevice, Memory};
pub use element::{Element, ElementSet, ElementType, UnknownElementType};
pub use failure_counts::FailureCounts;
pub use foreign_file::{foreign_file, what_instead, what_instead_at};
pub use hub::{hub_blobs, hub_folders};
pub use image_type::{image_type, media_file};
pub use json_conversion::{JsonError, from_json, json_value_count, tensor_to_exact_json, to_json, to_json_cancellable};
pub use json_element::float32_to_json;
pub use json_elements::{MAX_STRINGS, TensorSeed};
pub use json_schema_limits::check_schema_limits;
pub use json_text::{write_json, write_json_text};
pub use labels::read_labels;
pub use memory_budget::{BudgetExhausted, MemoryBudget, MemoryPermit};
pub use moving_estimate::MovingEstimate;
pub use npy::{NpyError, from_npy, to_npy};
pub use plan::{Plan, PlanInput, PlanOutput, PlanSignature, PlannedStep, TableColumns};
pub use plan_builder::{Names, PlanBuilder, PortSide, WiringError};
pub use precision::Precision;
pub use project_files::{FileError, ProjectFiles};
pub use registry::{Build, BuildError, Builtin, Group, OptionOrigin, Registry};
pub use request::{Reader, Request};
pub use run::{Observer, Observers, Outputs, RunError, RunOptions, StepError, ValidationError, deadline_after};
pub use signature::{Dim, Kind, Mismatch, Port, Signature, TensorKind};
pub use spelling::{closest, list};
pub use step::{Context, DeviceStep, InputConversions, LimitExceeded, Step, StepFailure, WaitObserver};
pub use synthetic_inputs::SyntheticInputs;
pub use table::{Table, TableOptions, table_header};
pub use tensor::{
    Color, Elements, ElementsOwner, Geometry, Layout, MAX_AXES, Metadata, Tensor, TensorData, TensorElement,
    TensorError, bf16_from_f64, check_axis_count, element_count, f16_from_f64,
};
pub use trace::{RunTrace, StepTrace};
pub use units::{Size, TimeSpan, UnitError, shorten};
pub use value::Value;

#[cfg(test)]
mod tests;
