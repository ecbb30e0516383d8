//! Detects processor, memory, GPUs and drivers without loading a library.

mod cpu;
mod gpu;
mod memory;
mod precision;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Serialize;

use super::providers::ExecutionProvider;

pub use cpu::Cpu;
pub use gpu::{Drivers, Gpu};
pub use memory::Memory;

/// Processor, memory, GPUs and their drivers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hardware {
    /// the processor
    pub cpu: Cpu,
    /// its memory
    pub memory: Memory,
    /// GPUs and NPUs
    pub gpus: Vec<Gpu>,
    /// what lets programs use them
    pub drivers: Drivers,
}

static DETECTED: LazyLock<Hardware> = LazyLock::new(|| Hardware::read(Path::new("/"), &Hardware::library_folders()));

impl Hardware {
    /// This machine, read once.
    pub fn detect() -> &'static Self {
        &DETECTED
    }

    /// Where shared libraries of drivers and what goes with them lie.
    pub fn library_folders() -> Vec<PathBuf> {
        gpu::library_folders()
    }

    /// The machine whose files lie under `root`, with shared libraries in `libraries`.
    fn read(root: &Path, libraries: &[PathBuf]) -> Self {
        Self {
            cpu: Cpu::read(root),
            memory: Memory::read(root),
            gpus: gpu::read(root),
            drivers: Drivers::read(root, libraries),
        }
    }

    /// Why `provider` cannot run on this machine with any library; `None` if it may.
    pub fn unavailable_reason(&self, provider: ExecutionProvider) -> Option<String> {
        let has_gpu_of = |vendor: &str| self.gpus.iter().any(|gpu| gpu.vendor == vendor);
        match provider {
            ExecutionProvider::TensorRt | ExecutionProvider::Cuda if !self.drivers.has_nvidia() => {
                Some(if has_gpu_of("NVIDIA") {
                    "this machine has an NVIDIA GPU, but no driver for it (libcuda)".to_owned()
                } else {
                    "no NVIDIA driver was found on this machine".to_owned()
                })
            }
            ExecutionProvider::Rocm if !self.drivers.amd => {
                Some("no driver for AMD GPUs was found on this machine (/dev/kfd)".to_owned())
            }
            ExecutionProvider::CoreMl if !cfg!(target_os = "macos") => Some("it is for macOS".to_owned()),
            ExecutionProvider::DirectMl if !cfg!(windows) => Some("it is for Windows".to_owned()),
            ExecutionProvider::WebGpu if cfg!(target_os = "linux") && self.drivers.vulkan_loader.is_none() => {
                Some("Vulkan's loader was not found on this machine (libvulkan.so.1)".to_owned())
            }
            _ => None,
        }
    }

    /// Whether this machine has what `provider` was made for.
    pub fn is_suited_to(&self, provider: ExecutionProvider) -> bool {
        let intel = || self.cpu.vendor == "Intel" || self.gpus.iter().any(|gpu| gpu.vendor == "Intel");
        let any_gpu = || !cfg!(target_os = "linux") || self.gpus.iter().any(|gpu| gpu.driver.is_some());
        self.unavailable_reason(provider).is_none()
            && match provider {
                ExecutionProvider::OpenVino => intel(),
                ExecutionProvider::WebGpu => any_gpu(),
                _ => true,
            }
    }
}

/// The text of a small file, trimmed; `None` if there is none.
fn read_text(path: PathBuf) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
