//! gpux's execution providers as ONNX Runtime knows them.

use ort::ep::{self, ExecutionProvider as _, ExecutionProviderDispatch};

use crate::inference::providers::ExecutionProvider;

/// The providers that the loaded library was built with, best first. Whether the machine has
/// the hardware shows when a session is made.
pub(super) fn offered() -> Vec<ExecutionProvider> {
    let offers = |provider: &ExecutionProvider| match provider {
        ExecutionProvider::TensorRt => ep::TensorRT::is_available(),
        ExecutionProvider::Cuda => ep::CUDA::is_available(),
        ExecutionProvider::Rocm => ep::MIGraphX::is_available(),
        ExecutionProvider::CoreMl => ep::CoreML::is_available(),
        ExecutionProvider::DirectMl => ep::DirectML::is_available(),
        ExecutionProvider::OpenVino => ep::OpenVINO::is_available(),
        ExecutionProvider::Cpu => Ok(true),
    };
    ExecutionProvider::ALL.into_iter().filter(|provider| offers(provider).unwrap_or(false)).collect()
}

/// What a session on `provider` registers, in order; the CPU is always behind them. A failure to
/// register is an error: falling back is decided, and reported, elsewhere.
pub(super) fn registrations(provider: ExecutionProvider) -> Vec<ExecutionProviderDispatch> {
    let dispatches = match provider {
        // CUDA runs what TensorRT does not take.
        ExecutionProvider::TensorRt => vec![ep::TensorRT::default().build(), ep::CUDA::default().build()],
        ExecutionProvider::Cuda => vec![ep::CUDA::default().build()],
        ExecutionProvider::Rocm => vec![ep::MIGraphX::default().build()],
        ExecutionProvider::CoreMl => vec![ep::CoreML::default().build()],
        ExecutionProvider::DirectMl => vec![ep::DirectML::default().build()],
        ExecutionProvider::OpenVino => vec![ep::OpenVINO::default().build()],
        ExecutionProvider::Cpu => Vec::new(),
    };
    dispatches.into_iter().map(ExecutionProviderDispatch::error_on_failure).collect()
}
