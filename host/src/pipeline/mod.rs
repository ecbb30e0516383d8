//! Values, steps, and the plan that runs them.

mod cast;
mod element;
mod files;
mod metadata;
mod registry;
mod signature;
mod step;
mod tensor;
mod value;

pub use element::{Element, ElementSet, ElementType, UnknownElementType};
pub use files::{FileError, ProjectFiles};
pub use metadata::{Color, Geometry, Layout, Metadata};
pub use registry::{BuildError, Builtin, Registry, Site};
pub use signature::{Dim, Kind, Mismatch, Port, Signature, TensorKind};
pub use step::{Context, LimitExceeded, Step, StepFailure};
pub use tensor::{Tensor, TensorData, TensorElement, TensorError, element_count};
pub use value::Value;
