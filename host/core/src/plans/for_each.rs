//! A step that runs a plan for each item of a list.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value as Json;

use super::condition::Condition;
use super::inner_step::{InnerPlace, InnerStep};
use super::plan::{Plan, PlannedStep};
use super::run::Frame;
use super::step::{Context, LimitExceeded, Step, StepFailure};
use super::text_counts::TextCounts;
use crate::values::device_tensor::HostOrDevice;
use crate::values::element::ElementType;
use crate::values::encoded_size;
use crate::values::signature::{Dim, Kind, Port, Signature, TensorKind};
use crate::values::tensor::{Metadata, Tensor, TensorElement, TensorError};
use crate::values::value::Value;

/// The most bytes that the results of all items take together.
const MAX_RESULTS: usize = 256 << 20;

/// How items are run.
#[derive(Clone, Debug)]
pub struct ForEachOptions {
    /// the most items of a request
    pub max_items: usize,
    /// whether more are left out; otherwise the request fails
    pub truncates: bool,
    /// items that run together
    pub batch: usize,
    /// only items for which all of these hold have results; the values are the last outputs of the plan, in this order
    pub conditions: Vec<Condition>,
}

/// A value that a [`ForEach`] reads.
#[derive(Clone, Debug)]
pub struct ForEachInput {
    /// its name within
    pub name: String,
    /// the kind of the value outside
    pub kind: Kind,
    /// whether the steps get its items one by one
    pub is_list: bool,
}

impl ForEachInput {
    /// The kind of the value within, or why the value outside has no items.
    pub fn inner_kind(&self) -> Result<Kind, String> {
        if self.is_list { item_kind(&self.kind) } else { Ok(self.kind.clone()) }
    }
}

/// An output of the inner plan that cannot be collected.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CollectError {
    /// the number of the output
    pub output: usize,
    /// the reason
    pub message: String,
    /// what to do about it
    pub hint: &'static str,
}

/// Runs a plan for each item of one or several lists.
///
/// An item is an element of a JSON list (texts become text), or an index of axis 0 of a tensor (texts of a tensor with
/// one axis become text). The results are lists: texts and JSON become a JSON list, tensors are stacked along a new
/// axis 0.
pub struct ForEach {
    plan: Plan,
    signature: Signature,
    options: ForEachOptions,
    is_list: Vec<bool>,
    /// names of the inner steps in statistics: their numbers within and their names
    labels: Vec<String>,
}

/// The kind of an item of a value of this kind.
fn item_kind(kind: &Kind) -> Result<Kind, String> {
    match kind {
        Kind::Any | Kind::Json => Ok(Kind::Any),
        Kind::Text | Kind::Bytes => Err(format!("its items are those of a JSON list or of a tensor, but it is {kind}")),
        Kind::Tensor(tensor) => match tensor.shape.as_deref() {
            Some([]) => Err("it has no axes, so it has no items".to_owned()),
            Some([_]) if tensor.element() == Some(ElementType::String) => Ok(Kind::Text),
            Some([_, rest @ ..]) => Ok(Kind::Tensor(TensorKind {
                shape: Some(rest.to_vec()),
                layout: tensor.layout.filter(|_| rest.len() == 3),
                ..tensor.clone()
            })),
            None if tensor.element() == Some(ElementType::String) => Ok(Kind::Any),
            None => Ok(Kind::Tensor(TensorKind { layout: None, ..tensor.clone() })),
        },
    }
}

/// The kind of the results of all items; `count` is their number, where it is known.
fn collected_kind(output: usize, name: &str, kind: &Kind, count: Option<usize>) -> Result<Kind, CollectError> {
    let fault = |message, hint| Err(CollectError { output, message, hint });
    match kind {
        Kind::Any | Kind::Text | Kind::Json => Ok(Kind::Json),
        Kind::Bytes => fault(
            format!("`{name}` is bytes, which make no list"),
            "give a tensor or JSON, such as with `json-template`",
        ),
        Kind::Tensor(tensor) => match &tensor.shape {
            Some(shape) if shape.iter().all(|dim| matches!(dim, Dim::Fixed(_))) => {
                let mut dims = vec![count.map_or(Dim::Dynamic, Dim::Fixed)];
                dims.extend(shape.iter().cloned());
                Ok(Kind::Tensor(TensorKind { elements: tensor.elements, shape: Some(dims), layout: None }))
            }
            _ => fault(
                format!("`{name}` is {tensor}, whose shape is open, so the results of the items cannot be stacked"),
                "give it a fixed shape (`reshape`, `pad-tensor`), or make JSON of it (`json-template`, `top-k`)",
            ),
        },
    }
}

impl ForEach {
    /// Runs `plan`, whose inputs are `inputs` in this order.
    pub fn new(plan: Plan, inputs: Vec<ForEachInput>, options: ForEachOptions) -> Result<Self, CollectError> {
        let size = |input: &ForEachInput| match &input.kind {
            Kind::Tensor(TensorKind { shape: Some(shape), .. }) if input.is_list => match shape.first() {
                Some(Dim::Fixed(size)) => Some(*size),
                _ => None,
            },
            _ => None,
        };
        let count = inputs.iter().find_map(size);
        let count = count.filter(|count| *count <= options.max_items && options.conditions.is_empty());
        let results = plan.outputs().len().saturating_sub(options.conditions.len());
        for ((output, value), condition) in plan.outputs().iter().enumerate().skip(results).zip(&options.conditions) {
            let unfit = |message| CollectError { output, message, hint: "make it one, such as with `slice`" };
            condition.check_kind(&value.kind).map_err(unfit)?;
        }
        let outputs = plan.outputs().iter().take(results).enumerate().map(|(index, output)| {
            Ok(Port::new(&output.name, collected_kind(index, &output.name, &output.kind, count)?))
        });
        let outputs = outputs.collect::<Result<_, CollectError>>()?;
        let labels = plan.steps().iter().enumerate();
        let labels = labels.map(|(index, step)| format!("{} {}", index + 1, step.name)).collect();
        let is_list = inputs.iter().map(|input| input.is_list).collect();
        let inputs = inputs.into_iter().map(|input| Port::new(input.name, input.kind)).collect();
        Ok(Self { plan, signature: Signature { inputs, outputs }, options, is_list, labels })
    }

    /// How many items the lists have.
    fn count(&self, lists: &[Option<List>], context: &mut Context) -> Result<usize, StepFailure> {
        let mut named = self.signature.inputs.iter().zip(lists).filter_map(|(port, list)| Some((port, list.as_ref()?)));
        let Some((first, list)) = named.next() else { return Ok(0) };
        let count = list.len();
        for (port, list) in named {
            if list.len() != count {
                let message = format!("`{}` has {count} items, but `{}` has {}", first.name, port.name, list.len());
                return Err(StepFailure::InvalidInput(message));
            }
        }
        let (max_items, truncates) = (self.options.max_items, self.options.truncates);
        if count <= max_items {
            return Ok(count);
        }
        if truncates {
            context.texts.add(TextCounts { truncated: 1, tokens: 0 });
            return Ok(max_items);
        }
        let message = format!("`{}` has {count} items; at most {max_items} are allowed (`max_items`)", first.name);
        Err(StepFailure::InvalidInput(message))
    }

    /// Whether the conditions hold for the item of this frame.
    fn keeps(&self, frame: &Frame) -> Result<bool, StepFailure> {
        let values = self.plan.outputs().iter().skip(self.signature.outputs.len());
        for (condition, output) in self.options.conditions.iter().zip(values) {
            let value = frame[output.slot].clone().and_then(HostOrDevice::host);
            if !value.map_or(Ok(false), |value| condition.holds(&value))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves the results of an item; returns their bytes.
    fn collect(&self, frame: &mut Frame, results: &mut [Collection]) -> Result<usize, StepFailure> {
        let mut size = 0_usize;
        let outputs = self.plan.outputs();
        for (index, (output, collection)) in outputs.iter().zip(results).enumerate() {
            let is_last = outputs[index + 1..].iter().all(|other| other.slot != output.slot);
            let value = if is_last { frame[output.slot].take() } else { frame[output.slot].clone() };
            let Some(value) = value.and_then(HostOrDevice::host) else { continue };
            size = size.saturating_add(encoded_size::memory(&value));
            collection.push(&output.name, value)?;
        }
        Ok(size)
    }

    /// Notes that the conditions of an item cannot be decided.
    fn fail_condition(&self, context: &mut Context, item: usize, failure: StepFailure) -> StepFailure {
        let number = self.plan.steps().len();
        let name = self.plan.steps().last().map(|step| step.name.clone()).unwrap_or_default();
        context.failed_at = Some(InnerStep { places: vec![InnerPlace { number, item }], name });
        failure
    }

    /// Runs the items of these frames, whose first is number `first`, step by step.
    fn run_chunk(&self, frames: &mut [Frame], first: usize, context: &mut Context) -> Result<(), StepFailure> {
        for (index, step) in self.plan.steps().iter().enumerate() {
            let place = |item: usize| InnerPlace { number: index + 1, item: first + item };
            let mut due = Vec::with_capacity(frames.len());
            let mut inputs = Vec::with_capacity(frames.len());
            for (item, frame) in frames.iter_mut().enumerate() {
                match step.is_due(frame) {
                    Ok(true) => {
                        due.push(item);
                        inputs.push(step.host_inputs(frame));
                    }
                    Ok(false) => step.pass_on(frame),
                    Err(failure) => return Err(fail(context, place(item), step, failure, None)),
                }
            }
            if due.is_empty() {
                continue;
            }

            let mut inner = context.for_inner();
            let (count, start) = (due.len() as u64, Instant::now());
            let outcome = context.in_time().map_err(|failure| (0, failure));
            let outcome = outcome.and_then(|()| step.step.run_items(inputs, &mut inner));
            let label = &self.labels[index];
            context.calls.record_several(label, count, outcome.is_err().into(), start.elapsed());
            context.calls.record_within(label, &std::mem::take(&mut inner.calls));
            let failed_at = inner.failed_at.take();
            context.merge(inner);

            let results = match outcome {
                Ok(results) => results,
                Err((item, failure)) => {
                    let item = due.get(item).copied().unwrap_or_default();
                    return Err(fail(context, place(item), step, failure, failed_at));
                }
            };
            for (item, values) in due.into_iter().zip(results) {
                match step.check_count(values) {
                    Ok(values) => step.store(&mut frames[item], values.into_iter().map(HostOrDevice::Host)),
                    Err(failure) => return Err(fail(context, place(item), step, failure, None)),
                }
            }
        }
        Ok(())
    }
}

/// Notes which inner step failed on which item; `failed_at` is the place within that step.
fn fail(
    context: &mut Context,
    place: InnerPlace,
    step: &PlannedStep,
    failure: StepFailure,
    failed_at: Option<InnerStep>,
) -> StepFailure {
    if failed_at.is_none() {
        step.failures.count(&failure);
    }
    let mut failed = failed_at.unwrap_or_else(|| InnerStep { places: Vec::new(), name: step.name.clone() });
    failed.places.insert(0, place);
    context.failed_at = Some(failed);
    failure
}

impl Step for ForEach {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn json_depth(&self, _: &[usize]) -> usize {
        self.plan.json_depth() + 1
    }

    fn inner_plan(&self) -> Option<&dyn Any> {
        Some(&self.plan)
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let mut lists = Vec::with_capacity(inputs.len());
        for ((port, value), is_list) in self.signature.inputs.iter().zip(&inputs).zip(&self.is_list) {
            let list = value.as_ref().filter(|_| *is_list).map(|value| List::new(&port.name, value)).transpose()?;
            lists.push(list);
        }
        let count = self.count(&lists, context)?;

        let mut results: Vec<_> = self.signature.outputs.iter().map(|port| Collection::new(&port.kind)).collect();
        let mut size = 0_usize;
        let batch = self.options.batch.max(1);
        for first in (0..count).step_by(batch) {
            let frame = |item: usize| {
                let value = |(value, list): (&Option<Value>, &Option<List>)| match list {
                    Some(list) => list.item(item).map(Some),
                    None => Ok(value.clone()),
                };
                let values = inputs.iter().zip(&lists).map(value);
                let mut frame =
                    values.map(|value| Ok(value?.map(HostOrDevice::Host))).collect::<Result<Frame, StepFailure>>()?;
                frame.resize_with(self.plan.slots(), || None);
                Ok(frame)
            };
            let items = first..count.min(first + batch);
            let mut frames = items.map(frame).collect::<Result<Vec<_>, StepFailure>>()?;
            self.run_chunk(&mut frames, first, context)?;
            for (item, frame) in frames.iter_mut().enumerate() {
                if self.keeps(frame).map_err(|failure| self.fail_condition(context, first + item, failure))? {
                    size = size.saturating_add(self.collect(frame, &mut results)?);
                }
            }
            if size > MAX_RESULTS {
                let value = format!("{} MiB", MAX_RESULTS >> 20);
                return Err(StepFailure::Limit(LimitExceeded { limit: "results".into(), value, hint: None }));
            }
        }
        results.into_iter().map(Collection::finish).collect()
    }

    fn details(&self) -> Json {
        let lists = self.signature.inputs.iter().zip(&self.is_list).filter(|(_, is_list)| **is_list);
        serde_json::json!({
            "over": lists.map(|(port, _)| &port.name).collect::<Vec<_>>(),
            "max_items": self.options.max_items,
            "batch": self.options.batch,
            "overflow": if self.options.truncates { "truncate" } else { "error" },
        })
    }
}

/// A value that has items.
enum List {
    Json(Arc<Json>),
    Tensor(Tensor),
}

impl List {
    fn new(name: &str, value: &Value) -> Result<Self, StepFailure> {
        match value {
            Value::Json(json) if json.is_array() => Ok(Self::Json(json.clone())),
            Value::Tensor(tensor) if tensor.rank() > 0 => Ok(Self::Tensor(tensor.clone())),
            other => {
                let given =
                    if matches!(other, Value::Json(_)) { "other JSON".to_owned() } else { other.kind().to_string() };
                let message =
                    format!("`{name}` is a JSON list, or a tensor with an axis of items, but this is {given}");
                Err(StepFailure::InvalidInput(message))
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Json(json) => json.as_array().map_or(0, Vec::len),
            Self::Tensor(tensor) => tensor.shape()[0],
        }
    }

    fn item(&self, index: usize) -> Result<Value, StepFailure> {
        match self {
            Self::Json(json) => Ok(match json.get(index) {
                Some(Json::String(text)) => Value::from(text.as_str()),
                Some(other) => Value::from(other.clone()),
                None => Value::from(Json::Null),
            }),
            Self::Tensor(tensor) if tensor.rank() == 1 && tensor.element() == ElementType::String => {
                let texts = tensor.as_slice::<String>().unwrap_or_default();
                Ok(Value::from(texts.get(index).map_or("", String::as_str)))
            }
            Self::Tensor(tensor) => {
                let strides = tensor.strides();
                let axes: Vec<_> = tensor.shape().iter().copied().zip(strides.iter().copied()).skip(1).collect();
                let item = tensor.pick(index * strides[0].unsigned_abs(), &axes)?;
                let layout = tensor.metadata.layout.filter(|_| item.rank() == 3);
                Ok(Value::Tensor(item.with_metadata(Metadata { layout, ..tensor.metadata })))
            }
        }
    }
}

/// The results of the items so far.
enum Collection {
    List(Vec<Json>),
    Stack { kind: TensorKind, tensors: Vec<Tensor> },
}

impl Collection {
    fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Tensor(kind) => Self::Stack { kind: kind.clone(), tensors: Vec::new() },
            Kind::Any | Kind::Json | Kind::Text | Kind::Bytes => Self::List(Vec::new()),
        }
    }

    fn push(&mut self, name: &str, value: Value) -> Result<(), StepFailure> {
        match (self, value) {
            (Self::List(items), Value::Text(text)) => items.push(Json::from(&*text)),
            (Self::List(items), Value::Json(json)) => items.push(Arc::unwrap_or_clone(json)),
            (Self::Stack { tensors, .. }, Value::Tensor(tensor)) => {
                if let Some(first) = tensors.first()
                    && (first.shape(), first.element()) != (tensor.shape(), tensor.element())
                {
                    let (first, other) = (TensorKind::of(first), TensorKind::of(&tensor));
                    let message =
                        format!("`{name}` is {first} for one item and {other} for another, which do not stack");
                    return Err(StepFailure::Failed(message));
                }
                tensors.push(tensor);
            }
            (_, other) => {
                let message = format!("`{name}` is {}, which its list cannot hold", other.kind());
                return Err(StepFailure::Failed(message));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Value, StepFailure> {
        match self {
            Self::List(items) => Ok(Value::from(Json::Array(items))),
            Self::Stack { kind, tensors } => Ok(Value::Tensor(stack(&kind, &tensors)?)),
        }
    }
}

/// Tensors of one shape along a new axis 0; of none, an empty tensor of this kind.
fn stack(kind: &TensorKind, tensors: &[Tensor]) -> Result<Tensor, TensorError> {
    let Some(first) = tensors.first() else {
        let element = kind.elements.iter().next().unwrap_or(ElementType::Float32);
        let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 0 };
        let rest = kind.shape.iter().flatten().skip(1).map(size);
        return Tensor::zeros(element, std::iter::once(0).chain(rest).collect::<Vec<_>>());
    };
    let mut shape = vec![tensors.len()];
    shape.extend_from_slice(first.shape());
    crate::with_elements!(first.data(), like => concatenate(like, tensors, shape))
}

fn concatenate<T: TensorElement>(_like: &[T], tensors: &[Tensor], shape: Vec<usize>) -> Result<Tensor, TensorError> {
    let mut data = Vec::with_capacity(shape.iter().product());
    for tensor in tensors {
        data.extend_from_slice(tensor.as_slice::<T>().unwrap_or_default());
    }
    Tensor::new(shape, data)
}
