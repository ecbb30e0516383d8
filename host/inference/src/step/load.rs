//! From a model's file to a step: on which provider, with how many sessions.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::batch::{self, BatchOptions, BatchVerdict, Batcher};
use super::super::engine::{Engine, Optimized, Session, SessionOptions};
use super::super::error::ModelLoadError;
use super::super::graph::OnnxType;
use super::super::hardware::Hardware;
use super::super::model_file::ModelFile;
use super::super::providers::{ExecutionProvider, Fallback, ProviderChoice, ProviderError, ProviderOptions};
use super::super::sessions::SessionSet;
use super::ModelStep;
use gpux_core::{ElementSet, Precision, Signature, TensorKind};

/// How a model is run.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// the execution providers to try
    pub providers: ProviderChoice,
    /// whether anything but the first choice is an error
    pub strict: bool,
    /// the options of each provider
    pub provider_options: ProviderOptions,
    /// what float32 operators are computed in: `exact`, `bf16` or `fp16`; a provider that cannot is passed over
    pub precision: Precision,
    /// the most concurrent runs; each has its own session memory. `None`: one for a few callers,
    /// and, on the CPU without `threads`, one a core for more
    pub instances: Option<usize>,
    /// threads of its own that one operator of each instance may use; `None`: a single instance
    /// uses the threads that models share, of several each has its part of the cores
    pub threads: Option<usize>,
    /// how requests are batched
    pub batch: BatchOptions,
    /// what trials of these options have found; without it, the model is tried as it is loaded
    pub batch_verdict: Option<BatchVerdict>,
    /// where `gpux build` keeps the model's optimized graph for the CPU
    pub optimized: Option<PathBuf>,
}

impl Default for ModelOptions {
    /// The best provider, as many instances as there are callers for.
    fn default() -> Self {
        Self {
            providers: ProviderChoice::Auto,
            strict: false,
            provider_options: ProviderOptions::default(),
            precision: Precision::Exact,
            instances: None,
            threads: None,
            batch: BatchOptions::default(),
            batch_verdict: None,
            optimized: None,
        }
    }
}

impl ModelStep {
    /// Loads the model on the first provider that takes it.
    pub fn load(engine: Arc<dyn Engine>, file: Arc<ModelFile>, options: &ModelOptions) -> Result<Self, ModelLoadError> {
        let signature = file.info().signature()?;
        let chain = options.providers.chain(
            engine.providers(),
            &|provider| engine.unavailable_reason(provider),
            options.strict,
        )?;

        let threads = options.session_threads(&*engine);
        let mut fallbacks = chain.passed_over;
        let mut left = chain.tried.into_iter().peekable();
        while let Some(provider) = left.next() {
            let kept = options.optimized.clone().filter(|_| provider == ExecutionProvider::Cpu);

            let mut precision = options.precision;
            if let Some(reason) = Hardware::detect().lacks_precision(provider, precision) {
                if options.strict {
                    return Err(ProviderError::Unusable { provider, reason }.into());
                }
                if left.peek().is_some() {
                    fallbacks.push(Fallback { provider, reason });
                    continue;
                }
                // The caller compares the step's precision with the one that it asked for.
                precision = Precision::Exact;
            }

            let session_options = SessionOptions {
                provider,
                threads,
                provider_options: options.provider_options.clone(),
                precision,
                optimized: kept.map(Optimized::Read),
            };

            let reason = match engine.load(&file, &session_options) {
                Ok(first) => return Self::with(engine, file, signature, options, session_options, first, fallbacks),
                // The CPU takes every sound model, so its refusal is about the model.
                Err(error) if provider == ExecutionProvider::Cpu => return Err(error),
                Err(ModelLoadError::Engine { reason, .. } | ModelLoadError::Lacking { reason, .. }) => reason,
                Err(other) => other.to_string(),
            };

            let reason = with_options(reason, &options.provider_options, provider);
            if left.peek().is_none() {
                return Err(ProviderError::Unusable { provider, reason }.into());
            }
            fallbacks.push(Fallback { provider, reason });
        }

        Err(ProviderError::Unusable { provider: ExecutionProvider::Cpu, reason: "nothing is left to try".into() }
            .into())
    }

    /// The step around a first session.
    fn with(
        engine: Arc<dyn Engine>,
        file: Arc<ModelFile>,
        signature: Signature,
        options: &ModelOptions,
        session_options: SessionOptions,
        first: Box<dyn Session>,
        fallbacks: Vec<Fallback>,
    ) -> Result<Self, ModelLoadError> {
        let inputs = file.info().inputs.iter().map(|input| input.value.as_ref());
        let none = || TensorKind::of_elements(ElementSet::of(&[]));
        let wanted = inputs.clone().map(|kind| kind.and_then(OnnxType::tensor).cloned().unwrap_or_else(none)).collect();
        let outputs = file.info().outputs.iter().map(|output| output.value.as_ref());
        let plain = inputs.chain(outputs).all(|kind| kind.is_some_and(|kind| kind.plain().is_some()));
        let batching = !options.batch.is_off();
        let memory = first.memory().filter(|_| plain && !batching).cloned();
        let sessions = SessionSet::new(engine.clone(), file.clone(), session_options, first, options.instances)?;
        let mut sessions = Arc::new(sessions);
        let mut verdict = None;
        let mut batcher = None;
        if batching {
            let found = if plain {
                let known = options.batch_verdict.clone().filter(|known| known.provider == sessions.options().provider);
                known.map_or_else(|| batch::examine(&sessions, &signature, &options.batch), Ok)
            } else {
                Err("it takes or gives other values than plain tensors".to_owned())
            };
            if let Ok(found) = &found
                && found.needs_one_thread_mode(options.batch.tolerance)
            {
                let session_options = sessions.options().clone();
                sessions = Arc::new(SessionSet::single_threaded(engine.clone(), file.clone(), session_options)?);
            }
            batcher = Some(match &found {
                Ok(found) => Batcher::new(sessions.clone(), &signature, options.batch.clone(), found),
                Err(reason) => Err(reason.clone()),
            });
            verdict = found.ok();
        }
        let batch_verdict = verdict;
        Ok(Self { file, engine, signature, wanted, plain, sessions, memory, batcher, batch_verdict, fallbacks })
    }
}

impl ModelOptions {
    /// Threads of each session's own.
    pub(in super::super) fn session_threads(&self, engine: &dyn Engine) -> Option<usize> {
        self.threads.or_else(|| share_of_cores(engine.threads(None), self.instances.unwrap_or(1)))
    }
}

/// The part of each of several instances; `None` for a single one, which may have all.
fn share_of_cores(cores: usize, instances: usize) -> Option<usize> {
    (instances > 1).then(|| (cores / instances).max(1))
}

/// The reason with the provider's options, which may be the cause.
fn with_options(reason: String, options: &ProviderOptions, provider: ExecutionProvider) -> String {
    let told: Vec<_> = options.user_values(provider).map(|(name, value)| format!("{name}={value}")).collect();
    if told.is_empty() { reason } else { format!("{reason} (with {})", told.join(", ")) }
}
