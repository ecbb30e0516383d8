//! The memory in which a provider's sessions keep tensors, and whether they need exclusive access.

use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};

use crate::providers::{ExecutionProvider, ProviderOptions};
use gpux_core::Memory;

/// `ort`'s name for the provider of WebGPU, built in or as a plug-in.
const WEBGPU: &str = "WebGpuExecutionProvider";

/// Properties of all sessions of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DevicePlacement {
    /// the device memory in which tensors can stay between two models; `None`: host memory only
    pub(super) memory: Option<Memory>,
    /// whether one thread of the process may be at its sessions and tensors at a time. ONNX Runtime's
    /// WebGPU crashes otherwise, also across sessions (its issues 27592 and 32561)
    pub(super) exclusive: bool,
}

impl DevicePlacement {
    /// The placement of a built-in provider, whose memory an old library may not name.
    pub(super) fn for_provider(provider: ExecutionProvider, options: &ProviderOptions) -> Self {
        let memory = |kind: AllocationDevice<'_>, device| {
            let memory = Memory { name: kind.as_str().to_owned(), device };
            memory_info(Some(&memory)).is_ok().then_some(memory)
        };
        match provider {
            // TensorRT's sessions use CUDA's memory.
            ExecutionProvider::Cuda | ExecutionProvider::TensorRt => {
                let number = options.values(provider).find(|(name, _)| *name == "device_id");
                let device = number.and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
                Self { memory: memory(AllocationDevice::CUDA, device), exclusive: false }
            }
            ExecutionProvider::WebGpu => Self { memory: memory(AllocationDevice::WEBGPU_BUFFER, 0), exclusive: true },
            _ => Self::default(),
        }
    }

    /// That of a plug-in that calls itself `name` and keeps tensors in this memory. Each run asks for
    /// the memory by its name, and ONNX Runtime knows the names of its own providers' alone: any
    /// other memory is not used.
    pub(super) fn for_plugin(name: &str, own: Option<&MemoryInfo<'_>>) -> Self {
        let named = |own: &MemoryInfo<'_>| {
            let memory = Memory { name: own.allocation_device().as_str().to_owned(), device: own.device_id() };
            memory_info(Some(&memory)).is_ok_and(|named| named == *own).then_some(memory)
        };
        let memory = own.filter(|own| !own.is_cpu_accessible()).and_then(named);
        Self { memory, exclusive: name == WEBGPU }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::onnxruntime;

    fn named(name: &str, device: i32) -> Memory {
        Memory { name: name.to_owned(), device }
    }

    #[test]
    fn providers_have_their_memory() {
        let Some(_library) = onnxruntime() else { return };
        let options = ProviderOptions::default();
        let of = |provider| DevicePlacement::for_provider(provider, &options);
        assert_eq!(of(ExecutionProvider::Cpu), DevicePlacement::default());
        for provider in [ExecutionProvider::Cuda, ExecutionProvider::TensorRt] {
            assert_eq!(of(provider), DevicePlacement { memory: Some(named("Cuda", 0)), exclusive: false });
        }
        assert_eq!(
            of(ExecutionProvider::WebGpu),
            DevicePlacement { memory: Some(named("WebGPU_Buffer", 0)), exclusive: true }
        );
    }

    #[test]
    fn uses_plugin_memory_only_by_known_name() {
        let Some(_library) = onnxruntime() else { return };
        let own = |name: &str, device, kind| {
            MemoryInfo::new(AllocationDevice::new(name), device, kind, MemoryType::Default).unwrap()
        };
        let of = |own: &MemoryInfo<'_>| DevicePlacement::for_plugin("Plug", Some(own)).memory;
        assert_eq!(of(&own("Cuda", 1, AllocatorType::Device)), Some(named("Cuda", 1)));
        assert_eq!(of(&own("Cuda", 1, AllocatorType::Arena)), None, "another than the one of this name");
        assert_eq!(of(&own("Cpu", 0, AllocatorType::Device)), None, "the host's");
        assert_eq!(DevicePlacement::for_plugin("Plug", None), DevicePlacement::default());
        assert!(DevicePlacement::for_plugin(WEBGPU, None).exclusive);
        assert!(memory_info(Some(&named("Plug_Memory", 0))).is_err(), "names of others are unknown");
    }
}
