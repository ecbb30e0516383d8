//! The builds of ONNX Runtime and the plug-ins of its providers.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::hardware::Hardware;
use crate::providers::ExecutionProvider;

/// How the folders of plug-ins begin, in the cache below `engines`.
const PLUGIN_FOLDER: &str = "onnxruntime-ep-";

/// What gpux can install: a build of ONNX Runtime, or a provider's plug-in beside the build for the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LibraryBuild {
    /// for every machine
    Cpu,
    /// NVIDIA, with the CUDA and cuDNN libraries
    Cuda,
    /// AMD, through MIGraphX
    MiGraphX,
    /// Windows, through DirectML
    DirectMl,
    /// any GPU, through WebGPU: a plug-in where there is one, else a build
    WebGpu,
    /// Intel, with OpenVINO's libraries: a plug-in on Intel's hardware, else a build
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

    /// The folder of a version in the cache, below `engines`.
    pub(crate) fn folder(self, plugin: bool, version: &str) -> String {
        if plugin { format!("{PLUGIN_FOLDER}{self}-{version}") } else { format!("onnxruntime-{version}-{self}") }
    }

    /// The build that was installed in this folder, and whether it is its plug-in.
    pub(crate) fn of_folder(folder: &Path) -> Option<(Self, bool)> {
        let name = folder.file_name()?.to_str()?;
        let plugin = name.strip_prefix(PLUGIN_FOLDER);
        let is_of = |build: &Self| match plugin {
            Some(name) => name.starts_with(&format!("{build}-")),
            None => name.ends_with(&format!("-{build}")),
        };
        Self::ALL.into_iter().find(is_of).map(|build| (build, plugin.is_some()))
    }

    /// The provider that its plug-in adds to any build; `None` if there is only a build with the provider built in.
    pub(crate) const fn plugin_provider(self) -> Option<ExecutionProvider> {
        match self {
            Self::WebGpu => Some(ExecutionProvider::WebGpu),
            Self::OpenVino => Some(ExecutionProvider::OpenVino),
            Self::Cpu | Self::Cuda | Self::MiGraphX | Self::DirectMl => None,
        }
    }

    /// The file name of the plug-in's library, in gpux's cache and in its Python package `onnxruntime_ep_NAME`.
    pub(crate) fn plugin_file(self) -> String {
        // Intel's maker names it so that it can lie beside the provider of a whole build.
        let suffix = if self == Self::OpenVino { "_plugin" } else { "" };
        format!("{DLL_PREFIX}onnxruntime_providers_{self}{suffix}{DLL_SUFFIX}")
    }

    /// Whether the plug-in finds a device on such a machine. OpenVINO's looks for Intel's devices alone, while the
    /// whole build runs on any x86-64 processor; WebGPU's needs a GPU that the system shows, while the whole build
    /// runs on a software driver, too.
    pub(crate) fn has_plugin_device(self, hardware: &Hardware) -> bool {
        self.plugin_provider().is_some_and(|provider| hardware.is_suited_to(provider))
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

    /// The provider that it was made for.
    pub const fn provider(self) -> ExecutionProvider {
        match self {
            Self::Cpu => ExecutionProvider::Cpu,
            Self::Cuda => ExecutionProvider::Cuda,
            Self::MiGraphX => ExecutionProvider::Rocm,
            Self::DirectMl => ExecutionProvider::DirectMl,
            Self::WebGpu => ExecutionProvider::WebGpu,
            Self::OpenVino => ExecutionProvider::OpenVino,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_builds_by_name_and_provider() {
        assert_eq!("OpenVINO".parse(), Ok(LibraryBuild::OpenVino));
        assert_eq!("tensorrt".parse(), Ok(LibraryBuild::Cuda));
        assert_eq!("rocm".parse(), Ok(LibraryBuild::MiGraphX));
        assert!("warp".parse::<LibraryBuild>().unwrap_err().contains("cpu, cuda, migraphx"));
    }
}
