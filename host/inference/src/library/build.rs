//! The builds of ONNX Runtime.

use std::fmt;
use std::str::FromStr;

use crate::providers::ExecutionProvider;

/// A build of ONNX Runtime that gpux can install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LibraryBuild {
    /// for every machine
    Cpu,
    /// NVIDIA, with the CUDA and cuDNN libraries
    Cuda,
    /// AMD, through MIGraphX
    MiGraphX,
    /// Windows, through DirectML
    DirectMl,
    /// any GPU, through WebGPU
    WebGpu,
    /// Intel, with OpenVINO's libraries
    OpenVino,
}

impl LibraryBuild {
    /// Every build.
    pub const ALL: [Self; 6] = [Self::Cpu, Self::Cuda, Self::MiGraphX, Self::DirectMl, Self::WebGpu, Self::OpenVino];

    /// Its name on the command line, which its folder ends with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::MiGraphX => "migraphx",
            Self::DirectMl => "directml",
            Self::WebGpu => "webgpu",
            Self::OpenVino => "openvino",
        }
    }

    /// The execution providers that it adds to the CPU, best first.
    pub const fn providers(self) -> &'static [ExecutionProvider] {
        match self {
            Self::Cpu if cfg!(target_os = "macos") => &[ExecutionProvider::CoreMl],
            Self::Cpu => &[],
            Self::Cuda => &[ExecutionProvider::TensorRt, ExecutionProvider::Cuda],
            Self::MiGraphX => &[ExecutionProvider::Rocm],
            Self::DirectMl => &[ExecutionProvider::DirectMl],
            Self::WebGpu => &[ExecutionProvider::WebGpu],
            Self::OpenVino => &[ExecutionProvider::OpenVino],
        }
    }

    /// The machine's requirements beside the build.
    pub const fn needs(self) -> &'static str {
        match self {
            Self::Cpu => "nothing",
            Self::Cuda => "an NVIDIA driver of version 580 or newer; for TensorRT, its own libraries (version 10)",
            Self::MiGraphX => "ROCm 7.2 with MIGraphX, and a GPU that it supports",
            Self::DirectMl => "a GPU with DirectX 12",
            Self::WebGpu => "a GPU, and under Linux its Vulkan driver with Vulkan's loader (libvulkan.so.1)",
            Self::OpenVino => "nothing for the CPU; for a GPU or NPU, Intel's driver",
        }
    }

    /// The build that brings `provider`.
    pub fn with(provider: ExecutionProvider) -> Self {
        match provider {
            ExecutionProvider::TensorRt | ExecutionProvider::Cuda => Self::Cuda,
            ExecutionProvider::Rocm => Self::MiGraphX,
            ExecutionProvider::DirectMl => Self::DirectMl,
            ExecutionProvider::WebGpu => Self::WebGpu,
            ExecutionProvider::OpenVino => Self::OpenVino,
            // Apple's provider is in the one build that there is for macOS.
            ExecutionProvider::CoreMl | ExecutionProvider::Cpu | ExecutionProvider::Plugin(_) => Self::Cpu,
        }
    }
}

impl fmt::Display for LibraryBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for LibraryBuild {
    type Err = String;

    /// Reads its name, or that of a provider that it brings.
    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|build| build.name().eq_ignore_ascii_case(text));
        let brought = || text.parse().ok().map(Self::with);
        named
            .or_else(brought)
            .ok_or_else(|| format!("there is no build `{text}`; these are: {}", Self::ALL.map(Self::name).join(", ")))
    }
}
