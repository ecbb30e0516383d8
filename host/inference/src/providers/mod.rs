//! Execution providers: names, selection, options and plug-ins.

mod choice;
mod options;
mod plugin;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use choice::{Fallback, ProviderChoice};
pub use options::{OptionError, OptionKind, OptionSource, ProviderOption, ProviderOptions, options_of};
pub use plugin::{PluginName, ProviderLibrary};

/// Where a model can run, in the order in which gpux prefers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ExecutionProvider {
    /// NVIDIA GPUs, through TensorRT
    TensorRt,
    /// NVIDIA GPUs
    Cuda,
    /// AMD GPUs, through MIGraphX
    Rocm,
    /// Apple silicon
    CoreMl,
    /// any GPU under Windows
    DirectMl,
    /// any GPU, through Vulkan, Direct3D 12 or Metal
    WebGpu,
    /// Intel CPUs, GPUs and NPUs
    OpenVino,
    /// any machine
    Cpu,
    /// a library that the operator named
    Plugin(PluginName),
}

impl TryFrom<String> for ExecutionProvider {
    type Error = ProviderError;

    fn try_from(name: String) -> Result<Self, ProviderError> {
        name.parse()
    }
}

impl From<ExecutionProvider> for String {
    fn from(provider: ExecutionProvider) -> Self {
        provider.short_name().to_owned()
    }
}

impl ExecutionProvider {
    /// Every provider of ONNX Runtime's own, best first.
    pub const ALL: [Self; 8] =
        [Self::TensorRt, Self::Cuda, Self::Rocm, Self::CoreMl, Self::DirectMl, Self::WebGpu, Self::OpenVino, Self::Cpu];

    /// The full name, for example `CUDAExecutionProvider`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TensorRt => "TensorrtExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::Rocm => "ROCmExecutionProvider",
            Self::CoreMl => "CoreMLExecutionProvider",
            Self::DirectMl => "DirectMLExecutionProvider",
            Self::WebGpu => "WebGpuExecutionProvider",
            Self::OpenVino => "OpenVINOExecutionProvider",
            Self::Cpu => "CPUExecutionProvider",
            Self::Plugin(name) => name.as_str(),
        }
    }

    /// The name in gpux.yml and on the command line, for example `cuda`.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::TensorRt => "tensorrt",
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
            Self::CoreMl => "coreml",
            Self::DirectMl => "directml",
            Self::WebGpu => "webgpu",
            Self::OpenVino => "openvino",
            Self::Cpu => "cpu",
            Self::Plugin(name) => name.as_str(),
        }
    }

    /// The vendor of its hardware.
    pub const fn platform(self) -> &'static str {
        match self {
            Self::TensorRt | Self::Cuda => "NVIDIA",
            Self::Rocm => "AMD",
            Self::CoreMl => "Apple",
            Self::DirectMl => "Windows",
            Self::OpenVino => "Intel",
            Self::WebGpu | Self::Cpu | Self::Plugin(_) => "any",
        }
    }

    /// One line for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::TensorRt => "NVIDIA TensorRT: compiles the model for the GPU",
            Self::Cuda => "NVIDIA CUDA",
            Self::Rocm => "AMD ROCm, through MIGraphX",
            Self::CoreMl => "Apple Core ML: CPU, GPU and Neural Engine",
            Self::DirectMl => "DirectML: any DirectX 12 GPU under Windows",
            Self::WebGpu => "WebGPU: any GPU, through Vulkan, Direct3D 12 or Metal",
            Self::OpenVino => "Intel OpenVINO: CPU, GPU and NPU",
            Self::Cpu => "CPU, on every machine",
            Self::Plugin(_) => "a library that was named with --provider-library",
        }
    }
}

impl fmt::Display for ExecutionProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short_name())
    }
}

impl FromStr for ExecutionProvider {
    type Err = ProviderError;

    /// Reads the short name, the full name and common aliases, in any case.
    fn from_str(text: &str) -> Result<Self, ProviderError> {
        let lower = text.trim().to_ascii_lowercase();
        let short = lower.strip_suffix("executionprovider").unwrap_or(&lower);
        let canonical = match short {
            "trt" => "tensorrt",
            "gpu" | "nvidia" => "cuda",
            "migraphx" | "amd" | "hip" => "rocm",
            "apple" | "mps" | "metal" => "coreml",
            "dml" => "directml",
            "wgpu" | "vulkan" => "webgpu",
            "intel" => "openvino",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|provider| provider.short_name() == canonical)
            .or_else(|| PluginName::known(text.trim()).map(Self::Plugin))
            .ok_or_else(|| ProviderError::Unknown(text.to_owned()))
    }
}

/// An execution provider that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// no provider has this name
    #[error(
        "`{0}` is not an execution provider; these are: auto, fastest, {names}",
        names = ExecutionProvider::ALL.map(ExecutionProvider::short_name).join(", ")
    )]
    Unknown(String),
    /// it did not work, and nothing else may be used in its place
    #[error("the execution provider `{provider}` cannot be used: {reason}")]
    Unusable {
        /// which one
        provider: ExecutionProvider,
        /// why
        reason: String,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parses_every_name() {
        for provider in ExecutionProvider::ALL {
            assert_eq!(provider.name().parse(), Ok(provider));
            assert_eq!(provider.short_name().parse(), Ok(provider));
        }
        assert_eq!("MIGraphX".parse(), Ok(ExecutionProvider::Rocm));
        let error = "cudaa".parse::<ExecutionProvider>().unwrap_err().to_string();
        assert!(error.contains("`cudaa`") && error.contains("auto, fastest, tensorrt, cuda"), "{error}");
    }
}
