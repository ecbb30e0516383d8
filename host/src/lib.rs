//! gpux runs, serves and ships an ONNX model together with the code around it.

pub mod config;
pub mod inference;
pub mod pipeline;
