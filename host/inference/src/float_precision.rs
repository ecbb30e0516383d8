//! The precision that float32 operators are computed in.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hardware::Hardware;
use crate::providers::ExecutionProvider;

/// What a session computes float32 operators in. The model's file stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FloatPrecision {
    /// float32, as the model says, also where a provider would round products by default
    #[default]
    Exact,
    /// bfloat16: the range of float32 with 8 bits of mantissa
    Bf16,
    /// float16: 11 bits of mantissa, up to 65,504
    Fp16,
}

impl FloatPrecision {
    /// Its name in gpux.yml and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// Whether sessions of `provider` on this machine can compute in it.
    pub fn is_available(self, provider: ExecutionProvider, hardware: &Hardware) -> bool {
        self.unavailable_reason(provider, hardware).is_none()
    }

    /// The providers that can run on this machine and compute in it there.
    pub fn providers(self, hardware: &Hardware) -> Vec<ExecutionProvider> {
        let can = |provider: &ExecutionProvider| {
            self.is_available(*provider, hardware) && hardware.unavailable_reason(*provider).is_none()
        };
        ExecutionProvider::ALL.into_iter().filter(can).collect()
    }

    /// Why sessions of `provider` on this machine cannot compute in it; `None` if they can.
    pub(crate) fn unavailable_reason(self, provider: ExecutionProvider, hardware: &Hardware) -> Option<String> {
        let has = |features: &[&str]| hardware.cpu.features.iter().any(|feature| features.contains(feature));
        let is_available = match (self, provider) {
            (Self::Exact, _) => true,
            (Self::Bf16, ExecutionProvider::Cpu) => hardware.cpu.arch == "aarch64" && has(&["bf16"]),
            (Self::Bf16, ExecutionProvider::OpenVino) => has(&["avx512_bf16", "amx_bf16"]),
            (Self::Fp16, ExecutionProvider::OpenVino) => has(&["avx512_fp16"]) || has_intel_gpu(hardware),
            (Self::Bf16 | Self::Fp16, ExecutionProvider::TensorRt) => true,
            (Self::Fp16, ExecutionProvider::Rocm) => true,
            (
                _,
                ExecutionProvider::Cpu
                | ExecutionProvider::Cuda
                | ExecutionProvider::Rocm
                | ExecutionProvider::CoreMl
                | ExecutionProvider::DirectMl
                | ExecutionProvider::WebGpu
                | ExecutionProvider::Plugin(_),
            ) => false,
        };
        (!is_available).then(|| {
            let hint = if self == Self::Fp16 {
                "`gpux build --precision fp16` makes a float16 model"
            } else {
                "processors with avx512_bf16, amx_bf16 or Arm's bf16 have it"
            };
            format!("it does not compute float32 models in {self} on this machine; {hint}")
        })
    }
}

fn has_intel_gpu(hardware: &Hardware) -> bool {
    hardware.gpus.iter().any(|gpu| gpu.vendor == "Intel")
}

impl fmt::Display for FloatPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_the_instructions_of_a_precision() {
        let mut hardware = Hardware::default();
        let reason =
            |provider, precision: FloatPrecision, hardware: &Hardware| precision.unavailable_reason(provider, hardware);
        let (cpu, openvino) = (ExecutionProvider::Cpu, ExecutionProvider::OpenVino);
        assert_eq!(reason(cpu, FloatPrecision::Exact, &hardware), None);
        assert!(reason(openvino, FloatPrecision::Bf16, &hardware).is_some_and(|reason| reason.contains("avx512_bf16")));
        hardware.cpu.features = vec!["avx512_bf16"];
        assert_eq!(reason(openvino, FloatPrecision::Bf16, &hardware), None);
        assert!(reason(cpu, FloatPrecision::Bf16, &hardware).is_some());
        assert!(reason(openvino, FloatPrecision::Fp16, &hardware).is_some());
        (hardware.cpu.arch, hardware.cpu.features) = ("aarch64", vec!["bf16"]);
        assert_eq!(reason(cpu, FloatPrecision::Bf16, &hardware), None);
        assert!(reason(cpu, FloatPrecision::Fp16, &hardware).is_some_and(|reason| reason.contains("gpux build")));
    }
}
