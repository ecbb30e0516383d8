//! The precisions that execution providers compute in on this machine.

use gpux_core::Precision;

use super::Hardware;
use crate::providers::ExecutionProvider;

impl Hardware {
    /// Whether sessions of `provider` on this machine can compute float32 operators in `precision`.
    pub fn has_precision(&self, provider: ExecutionProvider, precision: Precision) -> bool {
        self.lacks_precision(provider, precision).is_none()
    }

    /// The providers that can run on this machine and compute float32 operators in `precision` there.
    pub fn providers_with(&self, precision: Precision) -> Vec<ExecutionProvider> {
        let can = |provider: &ExecutionProvider| {
            self.has_precision(*provider, precision) && self.unavailable_reason(*provider).is_none()
        };
        ExecutionProvider::ALL.into_iter().filter(can).collect()
    }

    /// Why sessions of `provider` on this machine cannot compute float32 operators in `precision`; `None` if they can.
    pub(crate) fn lacks_precision(&self, provider: ExecutionProvider, precision: Precision) -> Option<String> {
        let has = |features: &[&str]| self.cpu.features.iter().any(|feature| features.contains(feature));
        let is_available = match (precision, provider) {
            (Precision::Exact, _) => true,
            (Precision::Bf16, ExecutionProvider::Cpu) => self.cpu.arch == "aarch64" && has(&["bf16"]),
            (Precision::Bf16, ExecutionProvider::OpenVino) => has(&["avx512_bf16", "amx_bf16"]),
            (Precision::Fp16, ExecutionProvider::OpenVino) => has(&["avx512_fp16"]) || self.has_intel_gpu(),
            (Precision::Bf16 | Precision::Fp16, ExecutionProvider::TensorRt) => true,
            (Precision::Fp16, ExecutionProvider::Rocm) => true,
            (
                _,
                ExecutionProvider::Cpu
                | ExecutionProvider::Cuda
                | ExecutionProvider::Rocm
                | ExecutionProvider::CoreMl
                | ExecutionProvider::DirectMl
                | ExecutionProvider::WebGpu
                | ExecutionProvider::OpenVino
                | ExecutionProvider::TensorRt
                | ExecutionProvider::Plugin(_),
            ) => false,
        };
        (!is_available).then(|| {
            let hint = if precision == Precision::Fp16 {
                "`gpux build --precision fp16` makes a float16 model"
            } else {
                "processors with avx512_bf16, amx_bf16 or Arm's bf16 have it"
            };
            format!("it does not compute float32 models in {precision} on this machine; {hint}")
        })
    }

    fn has_intel_gpu(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.vendor == "Intel")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_the_instructions_of_a_precision() {
        let mut hardware = Hardware::default();
        let reason = |provider, precision, hardware: &Hardware| hardware.lacks_precision(provider, precision);
        let (cpu, openvino) = (ExecutionProvider::Cpu, ExecutionProvider::OpenVino);
        assert_eq!(reason(cpu, Precision::Exact, &hardware), None);
        assert!(reason(openvino, Precision::Bf16, &hardware).is_some_and(|reason| reason.contains("avx512_bf16")));
        hardware.cpu.features = vec!["avx512_bf16"];
        assert_eq!(reason(openvino, Precision::Bf16, &hardware), None);
        assert!(reason(cpu, Precision::Bf16, &hardware).is_some());
        assert!(reason(openvino, Precision::Fp16, &hardware).is_some());
        (hardware.cpu.arch, hardware.cpu.features) = ("aarch64", vec!["bf16"]);
        assert_eq!(reason(cpu, Precision::Bf16, &hardware), None);
        assert!(reason(cpu, Precision::Fp16, &hardware).is_some_and(|reason| reason.contains("gpux build")));
    }
}
