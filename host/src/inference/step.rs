//! A model as a step of a pipeline.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use super::adapt::{Adapts, adapt, apply};
use super::batch::{BatchOptions, Batcher};
use super::engine::{Engine, Optimized, RunFailure, SessionOptions};
use super::error::ModelLoadError;
use super::graph::OnnxType;
use super::model_file::ModelFile;
use super::providers::{ExecutionProvider, Fallback, ProviderChoice, ProviderError, ProviderOptions};
use super::sessions::{ModelInputs, SessionSet, Unavailable};
use super::value::OnnxValue;
use crate::pipeline::{
    Context, Dim, ElementSet, Kind, Mismatch, Signature, Step, StepFailure, Tensor, TensorKind, Value,
};

/// How a model is run.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// the execution providers to try
    pub providers: ProviderChoice,
    /// whether anything but the first choice is an error
    pub strict: bool,
    /// what each provider is told
    pub provider_options: ProviderOptions,
    /// how many runs may go on at once; each takes memory of its own. `None`: one for a few callers,
    /// and, on the CPU without `threads`, one a core for more
    pub instances: Option<usize>,
    /// threads of its own that one operator of each instance may use; `None`: a single instance
    /// uses the threads that models share, of several each has its part of the cores
    pub threads: Option<usize>,
    /// how requests of several threads are put together
    pub batch: BatchOptions,
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
            instances: None,
            threads: None,
            batch: BatchOptions::default(),
            optimized: None,
        }
    }
}

/// The shape of each input of a model, where it is known.
pub type Shapes = Vec<Option<Vec<usize>>>;

/// A loaded model.
pub struct ModelStep {
    file: Arc<ModelFile>,
    engine: Arc<dyn Engine>,
    signature: Signature,
    /// the tensor that each input takes; of no element type for one that takes none
    wanted: Vec<TensorKind>,
    /// whether all that the model takes and gives is plain tensors
    plain: bool,
    sessions: Arc<SessionSet>,
    /// puts requests together; or why nothing does, where that was asked for
    batcher: Option<Result<Batcher, String>>,
    fallbacks: Vec<Fallback>,
    /// what the latest plan has to change about each input, for [`Step::details`]
    inserted: Mutex<Vec<(usize, Adapts)>>,
}

impl ModelStep {
    /// Loads the model on the first provider that takes it.
    pub fn load(engine: Arc<dyn Engine>, file: Arc<ModelFile>, options: &ModelOptions) -> Result<Self, ModelLoadError> {
        let signature = file.info().signature()?;
        let inputs = file.info().inputs.iter().map(|input| input.value.as_ref());
        let none = || TensorKind::of_elements(ElementSet::of(&[]));
        let wanted = inputs.clone().map(|kind| kind.and_then(OnnxType::tensor).cloned().unwrap_or_else(none)).collect();
        let outputs = file.info().outputs.iter().map(|output| output.value.as_ref());
        let plain = inputs.chain(outputs).all(|kind| kind.is_some_and(|kind| kind.plain().is_some()));
        let chain = options.providers.chain(engine.providers(), &|provider| engine.lacks(provider), options.strict)?;
        let threads = options.threads.or_else(|| share_of_cores(engine.threads(None), options.instances.unwrap_or(1)));
        let mut fallbacks = chain.passed_over;
        let mut left = chain.tried.into_iter().peekable();
        while let Some(provider) = left.next() {
            let kept = options.optimized.clone().filter(|_| provider == ExecutionProvider::Cpu);
            let session_options = SessionOptions {
                provider,
                threads,
                provider_options: options.provider_options.clone(),
                optimized: kept.map(Optimized::Read),
            };
            match engine.load(&file, &session_options) {
                Ok(first) => {
                    let instances = options.instances;
                    let sessions = SessionSet::new(engine.clone(), file.clone(), session_options, first, instances)?;
                    let sessions = Arc::new(sessions);
                    let batching = options.batch.max_size > 1;
                    let batcher = batching.then(|| {
                        if !plain {
                            return Err("it takes or gives other values than plain tensors".to_owned());
                        }
                        Batcher::new(sessions.clone(), &signature, options.batch)
                    });
                    return Ok(Self {
                        file,
                        engine,
                        signature,
                        wanted,
                        plain,
                        sessions,
                        batcher,
                        fallbacks,
                        inserted: Mutex::default(),
                    });
                }
                // The CPU takes every sound model, so its refusal is about the model.
                Err(error) if provider == ExecutionProvider::Cpu => return Err(error),
                Err(error) => {
                    let reason = match error {
                        ModelLoadError::Engine { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    let reason = with_options(reason, &options.provider_options, provider);
                    if left.peek().is_none() {
                        return Err(ProviderError::Unusable { provider, reason }.into());
                    }
                    fallbacks.push(Fallback { provider, reason });
                }
            }
        }
        Err(ProviderError::Unusable { provider: ExecutionProvider::Cpu, reason: "nothing is left to try".into() }
            .into())
    }

    /// The model's file.
    pub fn file(&self) -> &ModelFile {
        &self.file
    }

    /// The engine that runs it.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Where it runs.
    pub fn provider(&self) -> ExecutionProvider {
        self.sessions.options().provider
    }

    /// What the provider was told: option and value, as JSON.
    pub fn provider_options(&self) -> serde_json::Value {
        let options = &self.sessions.options().provider_options;
        options.of(self.provider()).map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }

    /// What was tried before, and why it is not used.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Its sessions.
    pub fn sessions(&self) -> &SessionSet {
        &self.sessions
    }

    /// Threads that one run may use, the one that calls counted.
    pub fn threads(&self) -> usize {
        self.engine.threads(self.sessions.options().threads)
    }

    /// Whether these, but for the one that calls, are those of all models that have none of their
    /// own.
    pub fn shares_threads(&self) -> bool {
        self.sessions.options().threads.is_none()
    }

    /// Whether its graph and its weights are those that are kept in the cache.
    pub fn is_optimized(&self) -> bool {
        self.sessions.options().optimized.is_some()
    }

    /// The shape of each input as the model takes it; `None` for one that is left out, that is no
    /// tensor, or that the model does not take.
    pub fn shapes(&self, inputs: &[Option<Value>]) -> Shapes {
        let shape = |(index, value): (usize, &Option<Value>)| {
            let value = value.clone().filter(|_| index < self.wanted.len())?;
            Some(self.adapted(index, value).ok()?.shape().to_vec())
        };
        inputs.iter().enumerate().map(shape).collect()
    }

    /// What puts requests together, if anything does; the reason why not, where it was asked for.
    pub fn batcher(&self) -> Option<Result<&Batcher, &str>> {
        self.batcher.as_ref().map(|batcher| batcher.as_ref().map_err(String::as_str))
    }

    /// What is done to input number `index` when it is given as `given`.
    pub fn adapts(&self, index: usize, given: &TensorKind) -> Result<Adapts, Mismatch> {
        adapt(given, &self.wanted[index]).map_err(|fault| self.named(index, fault))
    }

    /// The fault with the input's name in front.
    fn named(&self, index: usize, fault: Mismatch) -> Mismatch {
        let name = &self.signature.inputs[index].name;
        let because = match fault.because {
            Some(because) => format!("input `{name}`: {because}"),
            None => format!("input `{name}`"),
        };
        Mismatch { because: Some(because), ..fault }
    }

    fn missing(&self, index: usize) -> String {
        let port = &self.signature.inputs[index];
        format!("the model's input `{}` is missing; it takes {}", port.name, self.takes(index))
    }

    /// The kind of an input, with its ONNX type where the kind does not tell.
    fn takes(&self, index: usize) -> String {
        let input = &self.file.info().inputs[index];
        match &self.signature.inputs[index].kind {
            Kind::Json => format!("JSON for {}", input.kind),
            kind => kind.to_string(),
        }
    }

    /// The ONNX type of an input that takes JSON, and an optional tensor that it may be given as.
    fn json_input(&self, index: usize) -> Option<&OnnxType> {
        let kind = self.file.info().inputs.get(index)?.value.as_ref()?;
        matches!(kind.kind(), Kind::Json).then_some(kind)
    }

    /// The value as the model takes it.
    fn as_onnx(&self, index: usize, value: Value) -> Result<OnnxValue, StepFailure> {
        match (self.json_input(index), value) {
            (Some(kind), Value::Json(json)) => {
                if json.is_null() && !self.signature.inputs[index].optional {
                    let because = "it must have a value here: the model's loop begins with it";
                    return Err(StepFailure::InvalidInput(format!(
                        "input `{}`, which takes {}: {because}",
                        self.signature.inputs[index].name,
                        self.takes(index)
                    )));
                }
                let json = Arc::try_unwrap(json).unwrap_or_else(|shared| (*shared).clone());
                let value = OnnxValue::from_json(json, kind).map_err(|error| {
                    let name = &self.signature.inputs[index].name;
                    StepFailure::InvalidInput(format!("input `{name}`, which takes {}: {error}", self.takes(index)))
                })?;
                value.tensors().try_for_each(|tensor| self.ends_nowhere(index, tensor))?;
                Ok(value)
            }
            (Some(kind), value) if kind.tensor().is_none() || value.as_tensor().is_none() => {
                let because = Some(self.takes(index));
                Err(self.named(index, Mismatch { expected: Kind::Json, given: value.kind(), because }).into())
            }
            (_, value) => self.adapted(index, value).map(OnnxValue::Tensor),
        }
    }

    /// Runs a model of other values than plain tensors.
    fn run_values(&self, values: Vec<(usize, OnnxValue)>, context: &Context) -> Result<Vec<Value>, StepFailure> {
        let outputs = self.sessions.run_values(values, context.deadline).map_err(unavailable)?;
        let types = self.file.info().outputs.iter().map(|output| output.value.as_ref());
        let value = |(value, kind): (OnnxValue, Option<&OnnxType>)| kind.map(|kind| value.into_value(kind));
        Ok(outputs.into_iter().zip(types).filter_map(value).collect())
    }

    /// Refuses texts that an engine could not be given whole: they end at the character NUL there.
    fn ends_nowhere(&self, index: usize, tensor: &Tensor) -> Result<(), StepFailure> {
        let texts = tensor.as_slice::<String>().unwrap_or_default();
        let Some(place) = texts.iter().position(|text| text.contains('\0')) else { return Ok(()) };
        let name = &self.signature.inputs[index].name;
        let because = "holds the character NUL, which models cannot be given";
        Err(StepFailure::InvalidInput(format!("input `{name}`: element {place} {because}")))
    }

    /// The tensor as the model takes it.
    fn adapted(&self, index: usize, value: Value) -> Result<Tensor, StepFailure> {
        let Value::Tensor(tensor) = value else {
            let expected = Kind::Tensor(self.wanted[index].clone());
            return Err(self.named(index, Mismatch { expected, given: value.kind(), because: None }).into());
        };
        self.ends_nowhere(index, &tensor)?;
        if fits(&tensor, &self.wanted[index]) {
            return Ok(tensor);
        }
        let adapts = self.adapts(index, &TensorKind::of(&tensor))?;
        Ok(apply(tensor, &adapts)?)
    }
}

/// Why there is no result, as the step's failure.
fn unavailable(why: Unavailable) -> StepFailure {
    match why {
        Unavailable::Timeout | Unavailable::Run(RunFailure::Timeout) => StepFailure::Timeout,
        Unavailable::Run(RunFailure::Failed(reason)) => StepFailure::Failed(format!("the model failed: {reason}")),
        other => StepFailure::Failed(other.to_string()),
    }
}

impl ModelStep {
    fn batching(&self) -> serde_json::Value {
        match self.batcher() {
            None => json!(null),
            Some(Err(reason)) => json!({ "off": reason }),
            Some(Ok(batcher)) => json!({
                "max_size": batcher.options().max_size,
                "max_delay_ms": batcher.options().max_delay.as_secs_f64() * 1e3,
                "pads": batcher.pads(),
            }),
        }
    }
}

/// The part of each of several instances; `None` for a single one, which may have all.
fn share_of_cores(cores: usize, instances: usize) -> Option<usize> {
    (instances > 1).then(|| (cores / instances).max(1))
}

/// Whether the tensor needs no change and cannot be refused. Images are left to [`adapt`].
fn fits(tensor: &Tensor, wanted: &TensorKind) -> bool {
    let shape_fits = |shape: &Vec<Dim>| {
        shape.len() == tensor.rank()
            && shape.iter().zip(tensor.shape()).all(|(dim, size)| !matches!(dim, Dim::Fixed(fixed) if fixed != size))
    };
    tensor.metadata.layout.is_none()
        && wanted.elements.contains(tensor.element())
        && wanted.shape.as_ref().is_none_or(shape_fits)
}

impl Step for ModelStep {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        // Sizes of named dimensions, as far as the inputs tell.
        let mut sizes: Vec<(&str, usize)> = Vec::new();
        let mut inserted = Vec::new();
        for (index, given) in inputs.iter().enumerate().take(self.wanted.len()) {
            let wanted = &self.wanted[index];
            let port = &self.signature.inputs[index];
            match given {
                Some(Kind::Json) if port.kind == Kind::Json => {}
                Some(Kind::Tensor(given)) if port.kind != Kind::Json || !wanted.elements.is_empty() => {
                    let adapts = self.adapts(index, given)?;
                    bind(&mut sizes, wanted, given, &adapts);
                    inserted.push((index, adapts));
                }
                Some(Kind::Any) => {}
                None if port.optional => {}
                None => {
                    let because = Some(self.missing(index));
                    return Err(Mismatch { expected: port.kind.clone(), given: Kind::Any, because });
                }
                Some(other) => {
                    let expected = port.kind.clone();
                    let because = (expected == Kind::Json).then(|| self.takes(index));
                    return Err(self.named(index, Mismatch { expected, given: other.clone(), because }));
                }
            }
        }
        *self.inserted.lock().unwrap_or_else(PoisonError::into_inner) = inserted;
        let known = |dim: &Dim| match dim {
            Dim::Named(name) => {
                sizes.iter().find(|(bound, _)| bound == name).map_or(dim.clone(), |(_, size)| Dim::Fixed(*size))
            }
            _ => dim.clone(),
        };
        let output = |kind: &Kind| match kind {
            Kind::Tensor(tensor) => {
                let shape = tensor.shape.as_ref().map(|dims| dims.iter().map(known).collect());
                Kind::Tensor(TensorKind { shape, ..tensor.clone() })
            }
            other => other.clone(),
        };
        Ok(self.signature.outputs.iter().map(|port| output(&port.kind)).collect())
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        if inputs.len() > self.wanted.len() {
            let message = format!("the model takes {} inputs, but gets {}", self.wanted.len(), inputs.len());
            return Err(StepFailure::InvalidInput(message));
        }
        let given = inputs.len();
        let mut tensors = ModelInputs::new();
        let mut values = Vec::new();
        for (index, value) in inputs.into_iter().enumerate() {
            match value {
                Some(value) if self.plain => tensors.push((index, self.adapted(index, value)?)),
                Some(value) => values.push((index, self.as_onnx(index, value)?)),
                None if self.signature.inputs[index].optional => {}
                None => return Err(StepFailure::InvalidInput(self.missing(index))),
            }
        }
        if let Some(index) = (given..self.wanted.len()).find(|index| !self.signature.inputs[*index].optional) {
            return Err(StepFailure::InvalidInput(self.missing(index)));
        }
        if !self.plain {
            return self.run_values(values, context);
        }
        let outputs = match &self.batcher {
            Some(Ok(batcher)) => batcher.run(tensors, context.deadline, context.priority, context.waits.as_deref()),
            _ => self.sessions.run(tensors, context.deadline),
        };
        let outputs = outputs.map_err(unavailable)?;
        Ok(outputs.into_iter().map(Value::Tensor).collect())
    }

    fn details(&self) -> serde_json::Value {
        let inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = |(index, adapts): &(usize, Adapts)| {
            let changes: Vec<_> = adapts.iter().map(ToString::to_string).collect();
            (self.signature.inputs[*index].name.clone(), json!(changes))
        };
        let inserted: serde_json::Map<_, _> =
            inserted.iter().filter(|(_, adapts)| !adapts.is_empty()).map(changes).collect();
        json!({
            "inserted": inserted,
            "model": self.file.path().display().to_string(),
            "digest": self.file.digest(),
            "engine": self.engine.name(),
            "provider": self.provider().name(),
            "provider_options": self.provider_options(),
            "fallbacks": self.fallbacks,
            "instances": self.sessions.instances(),
            "batching": self.batching(),
            "threads": self.threads(),
            "shares_threads": self.shares_threads(),
            "optimized": self.is_optimized(),
        })
    }
}

/// Why a provider does not work, with what it was told: the cause may lie there.
fn with_options(reason: String, options: &ProviderOptions, provider: ExecutionProvider) -> String {
    let told: Vec<_> = options.chosen(provider).map(|(name, value)| format!("{name}={value}")).collect();
    if told.is_empty() { reason } else { format!("{reason} (with {})", told.join(", ")) }
}

/// Notes the sizes that `given`, once changed, lends to the names in `wanted`.
fn bind<'a>(sizes: &mut Vec<(&'a str, usize)>, wanted: &'a TensorKind, given: &TensorKind, adapts: &[super::Adapt]) {
    let (Some(wanted), Some(given)) = (&wanted.shape, &given.shape) else { return };
    let mut given = given.clone();
    for adapt in adapts {
        match adapt {
            super::Adapt::Layout(layout) => super::adapt::move_channels(&mut given, *layout),
            super::Adapt::Batch => given.insert(0, Dim::Fixed(1)),
            super::Adapt::Cast(_) => {}
        }
    }
    for dims in wanted.iter().zip(given) {
        if let (Dim::Named(name), Dim::Fixed(size)) = dims
            && !sizes.iter().any(|(bound, _)| bound == name)
        {
            sizes.push((name, size));
        }
    }
}

#[cfg(test)]
mod tests;
