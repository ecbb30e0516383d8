//! Types in signatures of this crate that few programs name.

pub use gpux_core::{
    Benchmark, BenchmarkOptions, CallStatistics, CancelCheck, Color, Element, ElementSet, ElementsOwner,
    FlattenedCalls, Geometry, Layout, Metadata, PlanInput, PlanOutput, PlanSignature, Signature, StepBenchmark,
    StepCalls, TensorKind, TextCounts, WaitObserver,
};
pub use gpux_inference::{InputShapes, InputSpec, NarrowType, OnnxType, OutputSpec, PluginName};
