//! Lists and describes the providers of an engine.

use serde::Serialize;

use super::engine::Engine;
use super::providers::{ExecutionProvider, ProviderChoice, ProviderError};

/// The facts about one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProviderInfo {
    /// full name
    pub provider: &'static str,
    /// whose hardware it is for
    pub platform: &'static str,
    /// whether the engine offers it
    pub available: bool,
    /// why it does not, and what would help
    pub missing: Option<String>,
    /// one line for people
    pub description: &'static str,
}

/// The providers that an engine offers.
#[derive(Clone, Debug)]
pub struct ProviderManager {
    offered: Vec<ExecutionProvider>,
    missing: Vec<(ExecutionProvider, String)>,
}

impl ProviderManager {
    /// The providers of this engine.
    #[doc(hidden)]
    pub fn new(engine: &dyn Engine) -> Self {
        let offered = engine.providers().to_vec();
        let others = ExecutionProvider::ALL.into_iter().filter(|provider| !offered.contains(provider));
        Self { missing: others.map(|provider| (provider, engine.unavailable_reason(provider))).collect(), offered }
    }

    /// Full names of the offered providers, best first.
    pub fn available_providers(&self) -> Vec<&'static str> {
        self.offered.iter().map(|provider| provider.name()).collect()
    }

    /// The preferred provider if it is offered, else the best that is.
    pub fn best_provider(&self, preferred: Option<&str>) -> Result<ExecutionProvider, ProviderError> {
        let choice = preferred.map_or(Ok(ProviderChoice::Auto), str::parse)?;
        let lacks = |provider| self.unavailable_reason(provider).unwrap_or_default().to_owned();
        let chain = choice.chain(&self.offered, &lacks, false)?;
        chain.tried.first().copied().ok_or_else(|| ProviderError::Unknown(preferred.unwrap_or("auto").to_owned()))
    }

    /// Describes a provider.
    pub fn provider_info(&self, provider: ExecutionProvider) -> ProviderInfo {
        ProviderInfo {
            provider: provider.name(),
            platform: provider.platform(),
            available: self.offered.contains(&provider),
            missing: self.unavailable_reason(provider).map(str::to_owned),
            description: provider.description(),
        }
    }

    fn unavailable_reason(&self, provider: ExecutionProvider) -> Option<&str> {
        self.missing.iter().find(|(missing, _)| *missing == provider).map(|(_, why)| why.as_str())
    }
}
