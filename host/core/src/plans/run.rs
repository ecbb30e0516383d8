//! Running a plan: one request, one thread, no lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::inner_step::{InnerPlace, InnerStep};
use super::plan::{Plan, PlannedStep, SlotRef};
use super::step::{Context, StepFailure, WaitObserver};
use crate::cancellation::CancelFlag;
use crate::units::TimeSpan;
use crate::values::device_tensor::HostOrDevice;
use crate::values::signature::{Dim, Kind, TensorKind};
use crate::values::value::Value;

/// The named outputs of a run, in the pipeline's order.
pub type Outputs = Vec<(String, Value)>;

/// Observes a run, on the thread of the run: each step that runs is followed by [`after`](Self::after) or
/// [`failed`](Self::failed).
pub trait Observer {
    /// A step is about to run on these inputs.
    fn before(&mut self, step: &PlannedStep, inputs: &[Option<Value>]) {
        let _ = (step, inputs);
    }

    /// A step has failed; the run ends.
    fn failed(&mut self, step: &PlannedStep, failure: &StepFailure, time: Duration, context: &Context) {
        let _ = (step, failure, time, context);
    }

    /// Whether it reads values. If no observer does, values that only models read may stay on a
    /// device, and are not reported.
    fn wants_values(&self) -> bool {
        true
    }

    /// A step has run; or, in no time, its condition has kept it from running.
    fn after(&mut self, step: &PlannedStep, time: Duration, outputs: &[Value], context: &Context);
}

/// Several observers of the same run, called in order.
pub struct Observers<'a>(pub Vec<&'a mut dyn Observer>);

impl Observer for Observers<'_> {
    fn before(&mut self, step: &PlannedStep, inputs: &[Option<Value>]) {
        self.0.iter_mut().for_each(|observer| observer.before(step, inputs));
    }

    fn failed(&mut self, step: &PlannedStep, failure: &StepFailure, time: Duration, context: &Context) {
        self.0.iter_mut().for_each(|observer| observer.failed(step, failure, time, context));
    }

    fn wants_values(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_values())
    }

    fn after(&mut self, step: &PlannedStep, time: Duration, outputs: &[Value], context: &Context) {
        self.0.iter_mut().for_each(|observer| observer.after(step, time, outputs, context));
    }
}

/// How one request is run.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// when it must be done, else it ends with [`StepFailure::Timeout`]; `None` for no limit
    pub deadline: Option<Instant>,
    /// where requests wait for each other, a greater one goes first; 0 is usual
    pub priority: i32,
    /// notified when the run waits
    pub waits: Option<Arc<dyn WaitObserver>>,
    /// the observer; without one, no step is timed
    pub observer: Option<&'a mut dyn Observer>,
    /// cancels the run, which then ends with [`StepFailure::Cancelled`]; checked between steps
    pub cancelled: Option<Arc<dyn CancelFlag>>,
}

/// The instant `timeout` from now; `None` for no limit, also if the clock cannot represent it.
pub fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

/// A request that does not fit the pipeline's inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ValidationError {
    /// the input it is about; `None` for the request as a whole
    pub input: Option<String>,
    /// the error, and the expected value
    pub message: String,
}

impl ValidationError {
    /// An error about the input `name`.
    pub fn input(name: &str, message: impl std::fmt::Display) -> Self {
        Self { input: Some(name.to_owned()), message: format!("input `{name}`: {message}") }
    }

    /// An error about the request as a whole.
    pub fn request(message: impl Into<String>) -> Self {
        Self { input: None, message: message.into() }
    }
}

/// How long a request could take, for the error of one that took longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}, {origin}", TimeSpan(*value))]
pub struct TimeLimit {
    /// the time
    pub value: Duration,
    /// where that comes from, such as `` `runtime.timeout` of gpux.yml ``
    pub origin: String,
}

impl TimeLimit {
    /// A limit of `value`, from an option of this name, or from whoever asked for it.
    pub fn new(value: Duration, origin: impl Into<String>) -> Self {
        Self { value, origin: origin.into() }
    }
}

/// A step that failed.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("step {} ({name}){}: {failure}{}", self.label(), self.items(), self.limit())]
pub struct StepError {
    /// its place in the pipeline, from 1; of a step within others, that of the outermost
    pub number: usize,
    /// its place within others, the outermost first
    pub within: Vec<InnerPlace>,
    /// its name
    pub name: String,
    /// what happened
    pub failure: StepFailure,
    /// the last lines it logged
    pub log: Vec<String>,
    /// of a timeout: the time that the request had, where that is known
    pub time_limit: Option<TimeLimit>,
}

impl StepError {
    /// A failure of the pipeline as a whole.
    pub fn of_pipeline(failure: StepFailure) -> Self {
        Self { number: 0, within: Vec::new(), name: "pipeline".to_owned(), failure, log: Vec::new(), time_limit: None }
    }

    /// The number of the step, with those within others: `4.2`.
    pub fn label(&self) -> String {
        self.within.iter().fold(self.number.to_string(), |label, place| format!("{label}.{}", place.number))
    }

    /// Says of a timeout which limit the request had, unless that was said before.
    pub fn explain_timeout(&mut self, limit: impl FnOnce() -> TimeLimit) {
        if self.failure == StepFailure::Timeout {
            self.time_limit.get_or_insert_with(limit);
        }
    }

    fn limit(&self) -> String {
        self.time_limit.as_ref().map(|limit| format!(": {limit}")).unwrap_or_default()
    }

    /// The items it failed on: `, item 17`, counted from 0 as in the lists.
    fn items(&self) -> String {
        self.within.iter().fold(String::new(), |items, place| format!("{items}, item {}", place.item))
    }
}

/// Why a request got no result.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum RunError {
    /// the request does not fit the inputs
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// a step failed
    #[error(transparent)]
    Step(#[from] Box<StepError>),
}

/// Holds the sizes of named dimensions against those of the inputs before.
fn same_names_same_sizes<'a>(
    sizes: &mut Vec<(&'a str, usize, &'a str)>,
    input: &'a str,
    declared: &'a [Dim],
    given: &[usize],
) -> Result<(), ValidationError> {
    for (dim, size) in declared.iter().zip(given) {
        let Dim::Named(name) = dim else { continue };
        match sizes.iter().find(|(known, ..)| known == name) {
            None => sizes.push((name, *size, input)),
            Some((_, known, _)) if known == size => {}
            Some((_, known, other)) => {
                let message = format_args!("its dimension `{name}` is {size}, but that of `{other}` is {known}");
                return Err(ValidationError::input(input, message));
            }
        }
    }
    Ok(())
}

/// The values of a run.
pub(crate) type Frame = Vec<Option<HostOrDevice<Value>>>;

impl PlannedStep {
    /// Runs the step on values in the host's memory.
    fn run(
        &self,
        frame: &mut Frame,
        observer: &mut Option<&mut dyn Observer>,
        context: &mut Context,
    ) -> Result<(), StepFailure> {
        let inputs = self.host_inputs(frame);
        let start = observer.as_mut().map(|observer| {
            observer.before(self, &inputs);
            Instant::now()
        });
        let given = self.step.run(inputs, context).and_then(|given| self.check_count(given));
        self.notify(observer, start, given.as_deref(), context);
        self.store(frame, given?.into_iter().map(HostOrDevice::Host));
        Ok(())
    }

    /// Runs the step on values that are, or stay, on a device in part.
    fn run_on_device(
        &self,
        frame: &mut Frame,
        observer: &mut Option<&mut dyn Observer>,
        context: &mut Context,
    ) -> Result<(), StepFailure> {
        let Some(device) = self.step.device() else {
            return Err(StepFailure::Failed("the step is no longer on a device".to_owned()));
        };
        let start = observer.as_mut().map(|observer| {
            observer.before(self, &[]);
            Instant::now()
        });
        let inputs = self.inputs(frame).collect();
        let given =
            device.run_placed(inputs, &self.outputs_on_device, context).and_then(|given| self.check_count(given));
        self.notify(observer, start, given.as_ref().map(|_| [].as_slice()), context);
        self.store(frame, given?);
        Ok(())
    }

    /// Whether it runs: it has no condition, or its condition is true.
    pub(crate) fn is_due(&self, frame: &mut Frame) -> Result<bool, StepFailure> {
        let Some((condition, source)) = &self.condition else { return Ok(true) };
        let value = take(frame, *source).and_then(HostOrDevice::host);
        value.as_ref().map_or(Ok(false), |value| condition.holds(value))
    }

    /// Gives its first input as its output, instead of running.
    pub(crate) fn pass_on(&self, frame: &mut Frame) {
        let first = self.inputs(frame).collect::<Vec<_>>().into_iter().next().flatten();
        self.store(frame, first);
    }

    /// [`pass_on`](Self::pass_on), reported as a run that took no time.
    fn skip(&self, frame: &mut Frame, observer: &mut Option<&mut dyn Observer>, context: &Context) {
        self.pass_on(frame);
        if let Some(observer) = observer {
            let output = self.output_slots().next().and_then(|slot| frame[slot].clone()).and_then(HostOrDevice::host);
            observer.before(self, std::slice::from_ref(&output));
            observer.after(self, Duration::ZERO, output.as_slice(), context);
        }
    }

    /// The step's inputs in the host's memory.
    pub(crate) fn host_inputs(&self, frame: &mut Frame) -> Vec<Option<Value>> {
        self.inputs(frame).map(|value| value.and_then(HostOrDevice::host)).collect()
    }

    /// The step's inputs, moved out of the frame if no later step reads them.
    fn inputs(&self, frame: &mut Frame) -> impl Iterator<Item = Option<HostOrDevice<Value>>> {
        self.inputs.iter().map(|source| take(frame, (*source)?))
    }

    pub(crate) fn check_count<T>(&self, given: Vec<T>) -> Result<Vec<T>, StepFailure> {
        if given.len() == self.outputs.len() {
            return Ok(given);
        }
        Err(StepFailure::Failed(format!("it gave {} values instead of {}", given.len(), self.outputs.len())))
    }

    fn notify(
        &self,
        observer: &mut Option<&mut dyn Observer>,
        start: Option<Instant>,
        given: Result<&[Value], &StepFailure>,
        context: &Context,
    ) {
        if let (Some(observer), Some(start)) = (observer, start) {
            match given {
                Ok(given) => observer.after(self, start.elapsed(), given, context),
                Err(failure) => observer.failed(self, failure, start.elapsed(), context),
            }
        }
    }

    pub(crate) fn store(&self, frame: &mut Frame, given: impl IntoIterator<Item = HostOrDevice<Value>>) {
        for ((_, slot), value) in self.outputs.iter().zip(given) {
            frame[*slot] = Some(value);
        }
    }
}

/// A value of the frame, moved out if nothing reads it afterwards.
fn take(frame: &mut Frame, source: SlotRef) -> Option<HostOrDevice<Value>> {
    if source.last { frame[source.slot].take() } else { frame[source.slot].clone() }
}

impl Plan {
    /// Runs one request on the calling thread. `values` are the inputs by name, in any order.
    pub fn run(&self, mut values: Vec<(String, Value)>, mut options: RunOptions<'_>) -> Result<Outputs, RunError> {
        if let Some(branch) = self.take_branch(&mut values) {
            // Observers count the steps of the whole plan.
            let observer = options.observer.filter(|_| branch.is_part);
            return branch.plan.run(values, RunOptions { observer, ..options });
        }
        let internal: Vec<_> = self
            .internal_inputs
            .iter()
            .filter_map(|(name, slot)| {
                let index = values.iter().position(|(given, _)| given == name)?;
                Some((*slot, values.remove(index).1))
            })
            .collect();
        let mut frame: Frame = self.bind(values)?.into_iter().map(|value| value.map(HostOrDevice::Host)).collect();
        frame.resize_with(self.slots(), || None);
        for (slot, value) in internal {
            frame[slot] = Some(HostOrDevice::Host(value));
        }
        let wants_values = options.observer.as_ref().is_some_and(|observer| observer.wants_values());
        for (index, planned) in self.steps().iter().enumerate() {
            let mut context = Context {
                deadline: options.deadline,
                priority: options.priority,
                waits: options.waits.clone(),
                cancelled: options.cancelled.clone(),
                ..Context::default()
            };
            let outcome = context.in_time().and_then(|()| planned.is_due(&mut frame)).and_then(|is_due| {
                if !is_due {
                    planned.skip(&mut frame, &mut options.observer, &context);
                    Ok(())
                } else if planned.on_device && !wants_values {
                    planned.run_on_device(&mut frame, &mut options.observer, &mut context)
                } else {
                    planned.run(&mut frame, &mut options.observer, &mut context)
                }
            });
            if let Err(failure) = outcome {
                if context.failed_at.is_none() {
                    planned.failures.count(&failure);
                }
                let of_step = || InnerStep { places: Vec::new(), name: planned.name.clone() };
                let InnerStep { places: within, name } = context.failed_at.take().unwrap_or_else(of_step);
                let (number, log) = (index + 1, context.log);
                return Err(Box::new(StepError { number, within, name, failure, log, time_limit: None }).into());
            }
        }
        let value = |slot: usize| frame[slot].clone().and_then(HostOrDevice::host);
        let outputs = self.outputs().iter().filter_map(|output| Some((output.name.clone(), value(output.slot)?)));
        Ok(outputs.collect())
    }

    /// The request's values in the order of the inputs, with defaults for missing ones.
    fn bind(&self, values: Vec<(String, Value)>) -> Result<Vec<Option<Value>>, ValidationError> {
        let inputs = self.inputs();
        let mut frame = Vec::with_capacity(self.slots());
        frame.resize_with(inputs.len(), || None);
        for (name, value) in values {
            let Some(index) = inputs.iter().position(|input| input.port.name == name) else {
                return Err(ValidationError::input(&name, format_args!("the pipeline has none; {}", self.names())));
            };
            let fits = inputs[index].port.kind.accepts(&value.kind());
            fits.map_err(|mismatch| ValidationError::input(&name, mismatch))?;
            if frame[index].replace(value).is_some() {
                return Err(ValidationError::input(&name, "it is given twice"));
            }
        }
        let mut sizes: Vec<(&str, usize, &str)> = Vec::new();
        for (input, value) in inputs.iter().zip(&mut frame) {
            if value.is_none() {
                value.clone_from(&input.default);
            }
            if value.is_none() && !input.port.optional {
                return Err(ValidationError::input(
                    &input.port.name,
                    format_args!("it is missing; it takes {}", input.port.kind),
                ));
            }
            if let (Some(Value::Tensor(tensor)), Kind::Tensor(TensorKind { shape: Some(shape), .. })) =
                (&*value, &input.port.kind)
            {
                same_names_same_sizes(&mut sizes, &input.port.name, shape, tensor.shape())?;
            }
        }
        Ok(frame)
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.inputs().iter().map(|input| format!("`{}`", input.port.name)).collect();
        format!("it takes {}", names.join(", "))
    }
}
