//! A model as a step of a pipeline.

mod inputs;
mod load;

use std::sync::Arc;

use serde_json::json;

use super::batch::{self, BatchOptions, BatchVerdict, Batcher};
use super::engine::{Engine, RunFailure};
use super::graph::OnnxType;
use super::model_file::ModelFile;
use super::providers::{ExecutionProvider, Fallback};
use super::sessions::{ModelInputs, SessionRunError, SessionSet};
use super::value::OnnxValue;
use gpux_core::{
    Context, Deadline, DeviceStep, Dim, ElementType, HostOrDevice, InputConversions, Kind, Memory, Mismatch, Precision,
    Signature, Step, StepFailure, Tensor, TensorKind, Value, run_one_by_one,
};

pub use load::ModelOptions;

/// The shape of each input of a model, where it is known.
pub type InputShapes = Vec<Option<Vec<usize>>>;

/// A loaded model.
pub struct ModelStep {
    file: Arc<ModelFile>,
    engine: Arc<dyn Engine>,
    signature: Signature,
    /// the tensor kind of each input; no element type for inputs that are not tensors
    wanted: Vec<TensorKind>,
    /// whether all inputs and outputs are plain tensors
    plain: bool,
    sessions: Arc<SessionSet>,
    /// the device memory in which tensors can stay; none with batching, which concatenates on the host
    memory: Option<Memory>,
    /// the batcher, if batching was asked for; or the reason why it is off
    batcher: Option<Result<Batcher, String>>,
    /// what trials found about requests that share a run, if batching was asked for
    batch_verdict: Option<BatchVerdict>,
    fallbacks: Vec<Fallback>,
}

impl ModelStep {
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

    /// The provider's options, as JSON.
    pub fn provider_options(&self) -> serde_json::Value {
        let options = &self.sessions.options().provider_options;
        options.values(self.provider()).map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }

    /// What float32 operators are computed in.
    pub fn precision(&self) -> Precision {
        self.sessions.options().precision
    }

    /// The providers that were tried before, and why they are not used.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Its sessions.
    pub fn sessions(&self) -> &SessionSet {
        &self.sessions
    }

    /// Threads that one run may use, including the calling one.
    pub fn threads(&self) -> usize {
        self.engine.threads(self.sessions.options().threads)
    }

    /// Whether these, except the calling one, belong to the pool of all models without threads of their
    /// own.
    pub fn shares_threads(&self) -> bool {
        self.sessions.options().threads.is_none()
    }

    /// Whether it was loaded from the cached optimized graph.
    pub fn is_optimized(&self) -> bool {
        self.sessions.options().optimized.is_some()
    }

    /// Each input as the model takes it; `None` for one that is left out, that is no tensor, or that the
    /// model does not take.
    pub fn tensors(&self, inputs: &[Option<Value>]) -> Vec<Option<Tensor>> {
        let tensor = |(index, value): (usize, &Option<Value>)| {
            let value = value.clone().filter(|_| index < self.wanted.len())?;
            self.adapt_input(index, value, &Deadline::default()).ok()
        };
        inputs.iter().enumerate().map(tensor).collect()
    }

    /// Their shapes.
    pub fn shapes(&self, inputs: &[Option<Value>]) -> InputShapes {
        self.tensors(inputs).into_iter().map(|tensor| tensor.map(|tensor| tensor.shape().to_vec())).collect()
    }

    /// The batcher, if batching was asked for; or the reason why it is off.
    pub fn batcher(&self) -> Option<Result<&Batcher, &str>> {
        self.batcher.as_ref().map(|batcher| batcher.as_ref().map_err(String::as_str))
    }

    /// What trials found about requests that share a run, if batching was asked for.
    pub fn batch_verdict(&self) -> Option<&BatchVerdict> {
        self.batch_verdict.as_ref()
    }

    /// Runs a model of other values than plain tensors.
    fn run_values(&self, values: Vec<(usize, OnnxValue)>, context: &Context) -> Result<Vec<Value>, StepFailure> {
        let outputs = self.sessions.run_values(values, context.deadline).map_err(unavailable)?;
        let types = self.file.info().outputs.iter().map(|output| output.value.as_ref());
        let value = |(value, kind): (OnnxValue, Option<&OnnxType>)| kind.map(|kind| value.into_value(kind));
        Ok(outputs.into_iter().zip(types).filter_map(value).collect())
    }
}

/// Why there is no result, as the step's failure.
fn unavailable(why: SessionRunError) -> StepFailure {
    match why {
        SessionRunError::Timeout | SessionRunError::Run(RunFailure::Timeout) => StepFailure::Timeout,
        SessionRunError::Run(RunFailure::Failed(reason)) => StepFailure::Failed(format!("the model failed: {reason}")),
        SessionRunError::Run(failure) if failure.is_unsupported() => {
            StepFailure::Unsupported(format!("{failure}; run `gpux engine install` to use ONNX Runtime"))
        }
        other => StepFailure::Failed(other.to_string()),
    }
}

impl ModelStep {
    /// Tries whether requests may share runs; `None` where they never do.
    pub(super) fn examine_batching(&self, options: &BatchOptions) -> Option<BatchVerdict> {
        if options.is_off() || !self.plain {
            return None;
        }
        batch::examine(&self.sessions, &self.signature, options).ok()
    }

    /// The batching in force as JSON, or why it is off, with the differences that trials measured; `None` if it was
    /// not asked for.
    pub fn batching(&self) -> Option<serde_json::Value> {
        let difference = self.batch_verdict.as_ref().map(|verdict| {
            verdict.to_json(self.batcher().and_then(Result::ok).map_or(0.0, |batcher| batcher.options().tolerance))
        });
        Some(match self.batcher()? {
            Err(reason) => json!({ "off": reason, "difference": difference }),
            Ok(batcher) => json!({
                "max_size": batcher.options().max_size,
                "max_tokens": Some(batcher.options().max_tokens).filter(|tokens| *tokens != usize::MAX),
                "lengths": batcher.options().shapes.lengths(),
                "sizes": batcher.options().shapes.sizes(),
                "max_delay_ms": batcher.options().max_delay.as_secs_f64() * 1e3,
                "pads": batcher.pads(),
                "tolerance": batcher.options().tolerance,
                "difference": difference,
            }),
        })
    }
}

impl Step for ModelStep {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn offers_optional_inputs(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        // Sizes of named dimensions that the inputs fix.
        let mut sizes: Vec<(&str, usize)> = Vec::new();
        for (index, given) in inputs.iter().enumerate().take(self.wanted.len()) {
            let wanted = &self.wanted[index];
            let port = &self.signature.inputs[index];
            match given {
                Some(Kind::Json) if port.kind == Kind::Json => {}
                Some(Kind::Tensor(given)) if port.kind != Kind::Json || !wanted.elements.is_empty() => {
                    let adaptations = self.adaptations(index, given)?;
                    bind(&mut sizes, wanted, given, &adaptations);
                }
                Some(Kind::Any) => {}
                None if port.optional => {}
                None => {
                    let because = Some(self.missing_input(index));
                    return Err(Mismatch { expected: port.kind.clone(), given: Kind::Any, because });
                }
                Some(other) => {
                    let expected = port.kind.clone();
                    let because = (expected == Kind::Json).then(|| self.describe_input(index));
                    return Err(self.with_input_name(index, Mismatch { expected, given: other.clone(), because }));
                }
            }
        }
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
        self.check_inputs(&inputs)?;
        let mut tensors = ModelInputs::new();
        let mut values = Vec::new();
        let deadline = &Deadline::from_context(context);
        for (index, value) in inputs.into_iter().enumerate() {
            match value {
                Some(value) if self.plain => tensors.push((index, self.adapt_input(index, value, deadline)?)),
                Some(value) => values.push((index, self.to_onnx_value(index, value, deadline)?)),
                None => {}
            }
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

    fn run_items(
        &self,
        items: Vec<Vec<Option<Value>>>,
        context: &mut Context,
    ) -> Result<Vec<Vec<Value>>, (usize, StepFailure)> {
        let Some(Ok(batcher)) = &self.batcher else {
            return run_one_by_one(items, context, |inputs, context| self.run(inputs, context));
        };
        let deadline = &Deadline::from_context(context);
        let adapted = items.into_iter().enumerate().map(|(item, inputs)| {
            self.check_inputs(&inputs).map_err(|failure| (item, failure))?;
            let given = inputs.into_iter().enumerate().filter_map(|(index, value)| Some((index, value?)));
            let adapt = |(index, value)| Ok((index, self.adapt_input(index, value, deadline)?));
            given.map(adapt).collect::<Result<ModelInputs, StepFailure>>().map_err(|failure| (item, failure))
        });
        let adapted = adapted.collect::<Result<Vec<_>, _>>()?;
        let outputs = batcher.run_items(adapted, context.deadline, context.priority, context.waits.as_deref());
        let values = |(item, outputs): (usize, Result<Vec<Tensor>, SessionRunError>)| match outputs {
            Ok(outputs) => Ok(outputs.into_iter().map(Value::Tensor).collect()),
            Err(error) => Err((item, unavailable(error))),
        };
        outputs.into_iter().enumerate().map(values).collect()
    }

    fn conversions(&self, inputs: &[Option<Kind>]) -> InputConversions {
        let change = |(index, given): (usize, &Option<Kind>)| {
            let Some(Kind::Tensor(given)) = given else { return None };
            let adaptations = self.adaptations(index, given).ok().filter(|adaptations| !adaptations.is_empty())?;
            Some((self.signature.inputs[index].name.clone(), adaptations.iter().map(ToString::to_string).collect()))
        };
        inputs.iter().enumerate().take(self.wanted.len()).filter_map(change).collect()
    }

    fn device(&self) -> Option<&dyn DeviceStep> {
        self.memory.is_some().then_some(self)
    }

    fn details(&self) -> serde_json::Value {
        json!({
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

impl DeviceStep for ModelStep {
    fn output_memory(&self, output: usize) -> Option<&Memory> {
        let Kind::Tensor(tensor) = &self.signature.outputs.get(output)?.kind else { return None };
        // Strings are the host's.
        let element = tensor.element().filter(|element| *element != ElementType::String);
        element.and(self.memory.as_ref())
    }

    fn input_memory(&self, input: usize, given: &Kind) -> Option<&Memory> {
        let Kind::Tensor(given) = given else { return None };
        let unchanged =
            given.shape.is_some() && given.element().is_some() && self.adaptations(input, given).ok()?.is_empty();
        self.memory.as_ref().filter(|_| unchanged)
    }

    fn run_placed(
        &self,
        inputs: Vec<Option<HostOrDevice<Value>>>,
        stay: &[bool],
        context: &mut Context,
    ) -> Result<Vec<HostOrDevice<Value>>, StepFailure> {
        self.check_inputs(&inputs)?;
        let deadline = &Deadline::from_context(context);
        let given = inputs.into_iter().enumerate().filter_map(|(index, value)| Some((index, value?)));
        let tensor = |(index, value): (usize, HostOrDevice<Value>)| {
            let tensor = match value {
                HostOrDevice::Host(value) => HostOrDevice::Host(self.adapt_input(index, value, deadline)?),
                HostOrDevice::Device(tensor) => {
                    self.check_unchanged(index, &tensor.kind())?;
                    HostOrDevice::Device(tensor)
                }
            };
            Ok::<_, StepFailure>((index, tensor))
        };
        let tensors = given.map(tensor).collect::<Result<Vec<_>, _>>()?;
        let outputs = self.sessions.run_placed(tensors, stay, context.deadline).map_err(unavailable)?;
        let value = |output| match output {
            HostOrDevice::Host(tensor) => HostOrDevice::Host(Value::Tensor(tensor)),
            HostOrDevice::Device(tensor) => HostOrDevice::Device(tensor),
        };
        Ok(outputs.into_iter().map(value).collect())
    }
}

/// Notes the sizes that `given`, once changed, lends to the names in `wanted`.
fn bind<'a>(
    sizes: &mut Vec<(&'a str, usize)>,
    wanted: &'a TensorKind,
    given: &TensorKind,
    adaptations: &[super::Adaptation],
) {
    let (Some(wanted), Some(given)) = (&wanted.shape, &given.shape) else { return };
    let mut given = given.clone();
    for adaptation in adaptations {
        match adaptation {
            super::Adaptation::Layout(layout) => super::adaptation::move_channels(&mut given, *layout),
            super::Adaptation::Batch => given.insert(0, Dim::Fixed(1)),
            super::Adaptation::Cast(_) => {}
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
