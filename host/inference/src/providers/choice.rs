//! Resolves the requested providers against those that the engine offers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ExecutionProvider, ProviderError};

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
    /// the one that was measured to be the fastest; before it is, as `auto`
    Fastest,
}

impl FromStr for ProviderChoice {
    type Err = ProviderError;

    /// Reads `auto`, `fastest`, a name, or names with commas between them. `auto` among them stands
    /// for all that the engine offers, so names behind it change nothing.
    fn from_str(text: &str) -> Result<Self, ProviderError> {
        if text.trim().eq_ignore_ascii_case("fastest") {
            return Ok(Self::Fastest);
        }
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

/// The providers to try in order, and those that are not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FallbackChain {
    pub(crate) tried: Vec<ExecutionProvider>,
    pub(crate) passed_over: Vec<Fallback>,
}

impl ProviderChoice {
    /// The providers that are requested by name, in order.
    pub fn providers(&self) -> &[ExecutionProvider] {
        match self {
            Self::These(providers) | Self::First(providers) => providers,
            Self::Auto | Self::Fastest => &[],
        }
    }

    /// The chain over what an engine offers; `lacks` says why it does not offer another. With
    /// `strict`, only the first choice is in it.
    pub(crate) fn chain(
        &self,
        offered: &[ExecutionProvider],
        lacks: &dyn Fn(ExecutionProvider) -> String,
        strict: bool,
    ) -> Result<FallbackChain, ProviderError> {
        let mut wanted = match self {
            Self::Auto | Self::Fastest => offered.to_vec(),
            Self::These(providers) => providers.clone(),
            Self::First(first) => {
                let rest = offered.iter().filter(|provider| !first.contains(provider));
                first.iter().chain(rest).copied().collect()
            }
        };
        let (tensorrt, cuda) = (ExecutionProvider::TensorRt, ExecutionProvider::Cuda);
        if let Some(at) = wanted.iter().position(|provider| *provider == tensorrt)
            && offered.contains(&cuda)
            && !wanted.contains(&cuda)
        {
            // The same GPU, without TensorRT.
            wanted.insert(at + 1, cuda);
        }
        if strict {
            wanted.truncate(1);
        } else if !wanted.contains(&ExecutionProvider::Cpu) {
            wanted.push(ExecutionProvider::Cpu);
        }
        let (tried, missing): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|provider| offered.contains(provider));
        let passed_over: Vec<_> =
            missing.into_iter().map(|provider| Fallback { provider, reason: lacks(provider) }).collect();
        match passed_over.first() {
            Some(first) if strict || tried.is_empty() => Err(first.clone().into()),
            _ => Ok(FallbackChain { tried, passed_over }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::ExecutionProvider::{Cpu, Cuda, OpenVino, TensorRt};
    use super::*;

    #[test]
    fn falls_back_to_the_cpu_unless_strict() {
        let offered = [TensorRt, Cuda, Cpu];
        let lacks = |provider: ExecutionProvider| format!("no {provider} here");
        let chain = |text: &str, strict| text.parse::<ProviderChoice>().unwrap().chain(&offered, &lacks, strict);
        assert_eq!(chain("auto", false).unwrap().tried, offered);
        assert_eq!(chain("fastest", false).unwrap().tried, offered);
        assert_eq!(chain("auto", true).unwrap().tried, [TensorRt]);
        assert_eq!(chain("cuda", false).unwrap().tried, [Cuda, Cpu]);
        assert_eq!(chain("tensorrt", false).unwrap().tried, [TensorRt, Cuda, Cpu]);
        assert_eq!(chain("tensorrt", true).unwrap().tried, [TensorRt]);
        assert_eq!(chain("cuda, auto", false).unwrap().tried, [Cuda, TensorRt, Cpu]);
        assert_eq!(chain("cuda, auto", true).unwrap().tried, [Cuda]);
        for text in ["auto,cpu", " AUTO , cuda", "auto,auto,openvino"] {
            assert_eq!(text.parse(), Ok(ProviderChoice::Auto));
        }
        assert_eq!("auto,warp".parse::<ProviderChoice>(), Err(ProviderError::Unknown("warp".to_owned())));
        let missing = chain("openvino, cuda", false).unwrap();
        assert_eq!(missing.tried, [Cuda, Cpu]);
        assert_eq!(missing.passed_over[0].provider, OpenVino);
        assert_eq!(missing.passed_over[0].reason, "no openvino here");
        assert!(matches!(chain("openvino", true), Err(ProviderError::Unusable { provider: OpenVino, .. })));
    }
}
