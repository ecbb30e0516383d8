//! Values, steps, and the plan that runs them.

#![forbid(unsafe_code)]

mod benchmark;
mod cache;
mod cancellation;
pub mod catch_panic;
pub mod child_process;
mod deadline;
pub mod decoded_size;
mod device;
mod element;
pub mod encoded_size;
mod failure_counts;
pub mod files;
mod json;
mod json_elements;
mod json_request;
mod json_schema_limits;
mod json_text;
mod json_tree;
mod labels;
mod memory_budget;
mod metadata;
mod npy;
mod plan;
mod plan_builder;
pub mod process_exit;
mod project_files;
mod registry;
mod request;
mod run;
pub mod sanitize;
pub mod sealed_file;
mod signature;
mod spelling;
mod step;
mod strided_view;
mod tensor;
pub mod threads;
mod trace;
mod units;
mod value;

pub use benchmark::{Benchmark, BenchmarkOptions, Metrics};
pub use cache::CacheDir;
pub use cancellation::CancelCheck;
pub use deadline::{Deadline, DeadlineExceeded};
pub use device::{DeviceTensor, HostOrDevice, Memory};
pub use element::{Element, ElementSet, ElementType, UnknownElementType};
pub use failure_counts::Failures;
pub use json::{JsonError, float32_to_json, from_json, json_values, tensor_to_exact_json, to_json, to_json_while};
pub use json_elements::{MAX_STRINGS, TensorSeed};
pub use json_schema_limits::usable as usable_schema;
pub use json_text::{write_json, write_json_text};
pub use json_tree::{JsonTree, JsonTreeError};
pub use labels::read_labels;
pub use memory_budget::{BudgetExhausted, MemoryBudget, MemoryPermit};
pub use metadata::{Color, Geometry, Layout, Metadata};
pub use npy::{NpyError, from_npy, to_npy};
pub use plan::{Plan, PlanInput, PlanOutput, PlannedStep};
pub use plan_builder::{Names, PlanBuilder, PortSide, WiringError};
pub use project_files::{FileError, ProjectFiles};
pub use registry::{Build, BuildError, Builtin, Group, OptionOrigin, Registry};
pub use request::{Reader, Request};
pub use run::{Observer, Observers, Outputs, RunError, RunOptions, StepError, ValidationError, deadline_after};
pub use signature::{Dim, Kind, Mismatch, Port, Signature, TensorKind};
pub use spelling::{closest, list};
pub use step::{Context, DeviceStep, InputChanges, LimitExceeded, Step, StepFailure, WaitObserver};
pub use tensor::{
    MAX_AXES, Tensor, TensorData, TensorElement, TensorError, bf16_from_f64, element_count, f16_from_f64, few_axes,
};
pub use trace::{StepTrace, Trace};
pub use units::{Size, TimeSpan, UnitError, shorten};
pub use value::Value;

#[cfg(test)]
mod tests;
