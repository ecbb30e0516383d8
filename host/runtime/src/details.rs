//! Types in signatures of this crate that few programs name.

pub use gpux_core::{
    Benchmark, BenchmarkOptions, CancelCheck, Color, Element, ElementSet, ElementsOwner, Geometry, Layout, Metadata,
    PlanInput, PlanOutput, PlanSignature, Signature, TensorKind, WaitObserver,
};
pub use gpux_inference::{InputShapes, InputSpec, NarrowType, OnnxType, OutputSpec, PluginName};
