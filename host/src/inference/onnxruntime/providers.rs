//! gpux's execution providers as ONNX Runtime knows them.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::Path;

use ort::ep::{self, ExecutionProvider as _, ExecutionProviderDispatch};

use crate::inference::providers::ExecutionProvider;

/// The providers that the loaded library was built with and whose own libraries lie beside it,
/// best first. Whether the machine has the hardware shows when a session is made.
pub(super) fn offered(library: &Path) -> Vec<ExecutionProvider> {
    let folder = library.parent().unwrap_or(Path::new("."));
    let offers = |provider: &ExecutionProvider| match provider {
        ExecutionProvider::TensorRt => ep::TensorRT::is_available(),
        ExecutionProvider::Cuda => ep::CUDA::is_available(),
        ExecutionProvider::Rocm => ep::MIGraphX::is_available(),
        ExecutionProvider::CoreMl => ep::CoreML::is_available(),
        ExecutionProvider::DirectMl => ep::DirectML::is_available(),
        ExecutionProvider::OpenVino => ep::OpenVINO::is_available(),
        ExecutionProvider::Cpu => Ok(true),
    };
    ExecutionProvider::ALL
        .into_iter()
        .filter(|provider| is_complete(folder, *provider) && offers(provider).unwrap_or(false))
        .collect()
}

/// Whether the libraries that ONNX Runtime would load for `provider` lie in `folder`: it looks for
/// them beside its own, and packages exist that leave them out.
fn is_complete(folder: &Path, provider: ExecutionProvider) -> bool {
    let separate: &[&str] = match provider {
        // Registered together with CUDA.
        ExecutionProvider::TensorRt => &["shared", "tensorrt", "cuda"],
        ExecutionProvider::Cuda => &["shared", "cuda"],
        ExecutionProvider::Rocm => &["shared", "migraphx"],
        ExecutionProvider::OpenVino => &["shared", "openvino"],
        ExecutionProvider::CoreMl | ExecutionProvider::DirectMl | ExecutionProvider::Cpu => &[],
    };
    separate.iter().all(|name| folder.join(file_name(name)).is_file())
}

fn file_name(name: &str) -> String {
    format!("{DLL_PREFIX}onnxruntime_providers_{name}{DLL_SUFFIX}")
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::ExecutionProvider::{CoreMl, Cpu, Cuda, DirectMl, OpenVino, Rocm, TensorRt};
    use super::*;

    #[test]
    fn a_provider_needs_its_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let complete = || -> Vec<_> {
            ExecutionProvider::ALL.into_iter().filter(|provider| is_complete(folder.path(), *provider)).collect()
        };
        let place = |name| std::fs::write(folder.path().join(file_name(name)), "").unwrap();
        assert_eq!(complete(), [CoreMl, DirectMl, Cpu]);
        place("cuda");
        place("tensorrt");
        assert_eq!(complete(), [CoreMl, DirectMl, Cpu], "the shared one is missing");
        place("shared");
        assert_eq!(complete(), [TensorRt, Cuda, CoreMl, DirectMl, Cpu]);
        std::fs::remove_file(folder.path().join(file_name("cuda"))).unwrap();
        place("migraphx");
        place("openvino");
        assert_eq!(complete(), [Rocm, CoreMl, DirectMl, OpenVino, Cpu]);
        if cfg!(target_os = "linux") {
            assert!(folder.path().join("libonnxruntime_providers_shared.so").is_file());
        }
    }
}
