//! Where the sessions of a provider keep tensors, and whether one thread may be at them at a time.

use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};

use crate::inference::providers::{ExecutionProvider, ProviderOptions};
use crate::pipeline::Memory;

/// What `ort` calls the provider of WebGPU, built in or as a plug-in.
const WEBGPU: &str = "WebGpuExecutionProvider";

/// What holds for all sessions of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// the memory that tensors may stay in between two models; `None`: the host's alone
    pub(super) memory: Option<Memory>,
    /// whether one thread of the process may be at its sessions and tensors at a time. ONNX Runtime's
    /// WebGPU crashes otherwise, also across sessions (its issues 27592 and 32561)
    pub(super) alone: bool,
}

impl Place {
    /// That of a provider of ONNX Runtime's own.
    pub(super) fn of(provider: ExecutionProvider, options: &ProviderOptions) -> Self {
        let memory = |kind: AllocationDevice<'_>, device| Some(Memory { name: kind.as_str().to_owned(), device });
        match provider {
            // TensorRT's sessions use CUDA's memory.
            ExecutionProvider::Cuda | ExecutionProvider::TensorRt => {
                let number = options.of(provider).find(|(name, _)| *name == "device_id");
                let device = number.and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
                Self { memory: memory(AllocationDevice::CUDA, device), alone: false }
            }
            ExecutionProvider::WebGpu => Self { memory: memory(AllocationDevice::WEBGPU_BUFFER, 0), alone: true },
            _ => Self::default(),
        }
    }

    /// That of a plug-in that calls itself `name` and keeps tensors in this memory.
    pub(super) fn of_plugin(name: &str, memory: Option<&MemoryInfo<'_>>) -> Self {
        let memory = memory
            .filter(|memory| !memory.is_cpu_accessible())
            .map(|memory| Memory { name: memory.allocation_device().as_str().to_owned(), device: memory.device_id() });
        Self { memory, alone: name == WEBGPU }
    }
}

/// The memory as ONNX Runtime names it; without one, the host's.
pub(super) fn memory_info(memory: Option<&Memory>) -> ort::Result<MemoryInfo<'static>> {
    let (kind, device) = match memory {
        Some(memory) => (AllocationDevice::new(&memory.name), memory.device),
        None => (AllocationDevice::CPU, 0),
    };
    MemoryInfo::new(kind, device, AllocatorType::Device, MemoryType::Default)
}
