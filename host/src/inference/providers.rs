//! Execution providers: the names, what is offered, and which one to use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a model can run, in the order in which gpux prefers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// Intel CPUs, GPUs and NPUs
    OpenVino,
    /// any machine
    Cpu,
}

impl ExecutionProvider {
    /// Every provider, best first.
    pub const ALL: [Self; 7] =
        [Self::TensorRt, Self::Cuda, Self::Rocm, Self::CoreMl, Self::DirectMl, Self::OpenVino, Self::Cpu];

    /// The full name, for example `CUDAExecutionProvider`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TensorRt => "TensorrtExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::Rocm => "ROCmExecutionProvider",
            Self::CoreMl => "CoreMLExecutionProvider",
            Self::DirectMl => "DirectMLExecutionProvider",
            Self::OpenVino => "OpenVINOExecutionProvider",
            Self::Cpu => "CPUExecutionProvider",
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
            Self::OpenVino => "openvino",
            Self::Cpu => "cpu",
        }
    }

    /// Whose hardware it is for.
    pub const fn platform(self) -> &'static str {
        match self {
            Self::TensorRt | Self::Cuda => "NVIDIA",
            Self::Rocm => "AMD",
            Self::CoreMl => "Apple",
            Self::DirectMl => "Windows",
            Self::OpenVino => "Intel",
            Self::Cpu => "any",
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
            Self::OpenVino => "Intel OpenVINO: CPU, GPU and NPU",
            Self::Cpu => "CPU, on every machine",
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
            "intel" => "openvino",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|provider| provider.short_name() == canonical)
            .ok_or_else(|| ProviderError::Unknown(text.to_owned()))
    }
}

/// An execution provider that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// no provider has this name
    #[error(
        "`{0}` is not an execution provider; these are: auto, {names}",
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

/// Which providers to try.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderChoice {
    /// the best that works
    #[default]
    Auto,
    /// these, in this order; the CPU comes last unless only these will do
    These(Vec<ExecutionProvider>),
    /// these, in this order, then the best that works
    First(Vec<ExecutionProvider>),
}

impl FromStr for ProviderChoice {
    type Err = ProviderError;

    /// Reads `auto`, a name, or names with commas between them. `auto` among them stands for all
    /// that the engine offers, so names behind it change nothing.
    fn from_str(text: &str) -> Result<Self, ProviderError> {
        let is_auto = |name: &str| name.trim().eq_ignore_ascii_case("auto");
        let read = |names: &mut dyn Iterator<Item = &str>| names.map(str::parse).collect::<Result<Vec<_>, _>>();
        let mut names = text.split(',');
        let first = read(&mut names.by_ref().take_while(|name| !is_auto(name)))?;
        read(&mut names.filter(|name| !is_auto(name)))?;
        Ok(match (text.split(',').any(is_auto), first.is_empty()) {
            (false, _) => Self::These(first),
            (true, true) => Self::Auto,
            (true, false) => Self::First(first),
        })
    }
}

/// A provider that was passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// which one
    pub provider: ExecutionProvider,
    /// why it is not used
    pub reason: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the execution provider `{}` is not used: {}", self.provider, self.reason)
    }
}

impl From<Fallback> for ProviderError {
    fn from(fallback: Fallback) -> Self {
        Self::Unusable { provider: fallback.provider, reason: fallback.reason }
    }
}

/// What to try, in order, and what was passed over already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) tried: Vec<ExecutionProvider>,
    pub(super) passed_over: Vec<Fallback>,
}

impl ProviderChoice {
    /// The chain over what `engine` offers. With `strict`, only the first choice is in it.
    pub(super) fn chain(
        &self,
        engine: &str,
        offered: &[ExecutionProvider],
        strict: bool,
    ) -> Result<Chain, ProviderError> {
        let mut wanted = match self {
            Self::Auto => offered.to_vec(),
            Self::These(providers) => providers.clone(),
            Self::First(first) => {
                let rest = offered.iter().filter(|provider| !first.contains(provider));
                first.iter().chain(rest).copied().collect()
            }
        };
        if strict {
            wanted.truncate(1);
        } else if !wanted.contains(&ExecutionProvider::Cpu) {
            wanted.push(ExecutionProvider::Cpu);
        }
        let (tried, missing): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|provider| offered.contains(provider));
        let passed_over: Vec<_> = missing
            .into_iter()
            .map(|provider| Fallback { provider, reason: format!("{engine} does not offer it; {}", advice(provider)) })
            .collect();
        match passed_over.first() {
            Some(first) if strict || tried.is_empty() => Err(first.clone().into()),
            _ => Ok(Chain { tried, passed_over }),
        }
    }
}

/// How to get a provider that the engine lacks.
fn advice(provider: ExecutionProvider) -> String {
    let package = match provider {
        ExecutionProvider::TensorRt | ExecutionProvider::Cuda => "onnxruntime-gpu",
        ExecutionProvider::Rocm => "onnxruntime-migraphx",
        ExecutionProvider::DirectMl => "onnxruntime-directml",
        ExecutionProvider::OpenVino => "onnxruntime-openvino",
        ExecutionProvider::CoreMl | ExecutionProvider::Cpu => "onnxruntime",
    };
    format!("the library of the package `{package}` does: name it with `--engine-library`")
}

/// The facts about one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProviderInfo {
    /// full name
    pub provider: &'static str,
    /// whose hardware it is for
    pub platform: &'static str,
    /// whether the engine offers it
    pub available: bool,
    /// one line for people
    pub description: &'static str,
}

/// The providers that an engine offers.
#[derive(Clone, Debug)]
pub struct ProviderManager {
    offered: Vec<ExecutionProvider>,
}

impl ProviderManager {
    /// The providers of this engine.
    pub fn new(engine: &dyn super::Engine) -> Self {
        Self { offered: engine.providers().to_vec() }
    }

    /// Full names of what is offered, best first.
    pub fn available_providers(&self) -> Vec<&'static str> {
        self.offered.iter().map(|provider| provider.name()).collect()
    }

    /// The preferred provider if it is offered, else the best that is.
    pub fn best_provider(&self, preferred: Option<&str>) -> Result<ExecutionProvider, ProviderError> {
        let choice = preferred.map_or(Ok(ProviderChoice::Auto), str::parse)?;
        let chain = choice.chain("the engine", &self.offered, false)?;
        chain.tried.first().copied().ok_or_else(|| ProviderError::Unknown(preferred.unwrap_or("auto").to_owned()))
    }

    /// What is known about a provider.
    pub fn provider_info(&self, provider: ExecutionProvider) -> ProviderInfo {
        ProviderInfo {
            provider: provider.name(),
            platform: provider.platform(),
            available: self.offered.contains(&provider),
            description: provider.description(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::ExecutionProvider::{Cpu, Cuda, OpenVino, Rocm, TensorRt};
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        for provider in ExecutionProvider::ALL {
            assert_eq!(provider.name().parse(), Ok(provider));
            assert_eq!(provider.short_name().parse(), Ok(provider));
        }
        assert_eq!("MIGraphX".parse(), Ok(Rocm));
        let error = "cudaa".parse::<ExecutionProvider>().unwrap_err().to_string();
        assert!(error.contains("`cudaa`") && error.contains("auto, tensorrt, cuda"), "{error}");
    }

    #[test]
    fn chains_fall_back_to_the_cpu_unless_strict() {
        let offered = [TensorRt, Cuda, Cpu];
        let chain = |text: &str, strict| text.parse::<ProviderChoice>().unwrap().chain("it", &offered, strict);
        assert_eq!(chain("auto", false).unwrap().tried, offered);
        assert_eq!(chain("auto", true).unwrap().tried, [TensorRt]);
        assert_eq!(chain("cuda", false).unwrap().tried, [Cuda, Cpu]);
        assert_eq!(chain("cuda, auto", false).unwrap().tried, [Cuda, TensorRt, Cpu]);
        assert_eq!(chain("cuda, auto", true).unwrap().tried, [Cuda]);
        for text in ["auto,cpu", " AUTO , cuda", "auto,auto,openvino"] {
            assert_eq!(text.parse(), Ok(ProviderChoice::Auto));
        }
        assert_eq!("auto,warp".parse::<ProviderChoice>(), Err(ProviderError::Unknown("warp".to_owned())));
        let missing = chain("openvino, cuda", false).unwrap();
        assert_eq!(missing.tried, [Cuda, Cpu]);
        assert_eq!(missing.passed_over[0].provider, OpenVino);
        assert!(missing.passed_over[0].reason.contains("onnxruntime-openvino"));
        assert!(matches!(chain("openvino", true), Err(ProviderError::Unusable { provider: OpenVino, .. })));
    }
}
