//! The packages that hold ONNX Runtime's builds: which versions, which files, which digests.

mod cpu;
mod cuda;
mod others;

use std::fmt;
use std::str::FromStr;

use crate::providers::ExecutionProvider;

use super::client::Client;

/// A build of ONNX Runtime that gpux can install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Build {
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

impl Build {
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

    /// What a machine needs beside the build.
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

    /// Whether there is one for this machine.
    pub fn is_for_this_machine(self) -> bool {
        !bundles(self).is_empty()
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

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Build {
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

/// A build for one platform, from packages that one client fetches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bundle {
    pub(super) build: Build,
    /// `std::env::consts::OS` and `ARCH`
    pub(super) os: &'static str,
    pub(super) arch: &'static str,
    pub(super) client: Client,
    /// the version of ONNX Runtime
    pub(super) version: &'static str,
    /// the file that is loaded
    pub(super) library: &'static str,
    pub(super) packages: &'static [Package],
}

impl Bundle {
    /// The folder that it is kept in.
    pub(super) fn folder(&self) -> String {
        format!("onnxruntime-{}-{}", self.version, self.build)
    }
}

/// One package of a bundle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    /// pip's name for the platform; empty for npm
    pub(super) platform: &'static str,
    /// the name of its archive
    pub(super) archive: &'static str,
    /// SHA-256 of the archive, in hexadecimal
    pub(super) sha256: &'static str,
    /// size of the archive, in bytes, for the progress shown
    pub(super) size: u64,
    /// the folder in the archive
    pub(super) folder: &'static str,
    /// what is taken from that folder
    pub(super) files: &'static [&'static str],
}

/// What there is of `build` for this machine, in the order of trying.
pub(super) fn bundles(build: Build) -> Vec<&'static Bundle> {
    let all = cpu::BUNDLES.iter().chain(cuda::BUNDLES).chain(others::BUNDLES);
    let fits = |bundle: &&Bundle| {
        bundle.build == build && bundle.os == std::env::consts::OS && bundle.arch == std::env::consts::ARCH
    };
    all.filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sound() {
        for bundle in cpu::BUNDLES.iter().chain(cuda::BUNDLES).chain(others::BUNDLES) {
            let (folder, archives) = (bundle.folder(), bundle.packages.iter().map(|package| package.archive));
            assert!(archives.clone().all(|archive| archives.clone().filter(|other| *other == archive).count() == 1));
            assert!(bundle.packages.iter().any(|package| package.files.contains(&bundle.library)), "{folder}");
            for package in bundle.packages {
                let hexadecimal = package.sha256.len() == 64 && package.sha256.chars().all(|c| c.is_ascii_hexdigit());
                assert!(
                    hexadecimal && package.folder.ends_with('/') && !package.files.is_empty(),
                    "{}",
                    package.archive
                );
                assert!(package.archive.contains(package.version), "{}", package.archive);
                assert!((bundle.client == Client::Pip) != package.platform.is_empty(), "{}", package.archive);
                assert!(package.files.iter().all(|file| !file.contains(['/', '\\'])), "{}", package.archive);
            }
        }
    }

    #[test]
    fn builds_are_read_by_their_names_and_by_what_they_bring() {
        assert_eq!("OpenVINO".parse(), Ok(Build::OpenVino));
        assert_eq!("tensorrt".parse(), Ok(Build::Cuda));
        assert_eq!("rocm".parse(), Ok(Build::MiGraphX));
        assert!("warp".parse::<Build>().unwrap_err().contains("cpu, cuda, migraphx"));
    }
}
