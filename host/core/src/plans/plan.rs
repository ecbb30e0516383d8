//! A checked pipeline: every step made, every value connected.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::failure_counts::FailureCounts;
use super::step::{InputConversions, Step};
use crate::json::json_conversion::{JsonError, from_json, tensor_to_exact_json, to_json};
use crate::values::signature::{Kind, Port};
use crate::values::value::Value;

/// Where a value of the frame lies while a plan runs.
pub(crate) type Slot = usize;

/// A value that a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef {
    pub(crate) slot: Slot,
    /// whether nothing reads it afterwards
    pub(crate) last: bool,
}

/// Which columns of a table are the elements of an input, as gpux.yml says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableColumns {
    /// the names of its columns, in the order of its elements; none: one column, named like the input
    pub names: Vec<String>,
    /// whether a table may have columns that no input takes
    pub ignores_extra: bool,
}

/// An input of the pipeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "SerializedInput", into = "SerializedInput")]
pub struct PlanInput {
    /// its name and kind
    pub port: Port,
    /// what stands for it when a request leaves it out
    pub default: Option<Value>,
    /// which columns of a table are its elements, where gpux.yml says so
    #[doc(hidden)]
    pub columns: Option<TableColumns>,
}

impl PlanInput {
    /// Whether every request must give it.
    pub const fn is_required(&self) -> bool {
        !self.port.optional && self.default.is_none()
    }
}

/// [`PlanInput`] with its default as JSON.
#[derive(Serialize, Deserialize)]
struct SerializedInput {
    port: Port,
    default: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<TableColumns>,
}

impl From<PlanInput> for SerializedInput {
    fn from(input: PlanInput) -> Self {
        let default = input.default.as_ref().map(|value| match value {
            Value::Tensor(tensor) => tensor_to_exact_json(tensor),
            other => to_json(other),
        });
        Self { port: input.port, default, columns: input.columns }
    }
}

impl TryFrom<SerializedInput> for PlanInput {
    type Error = JsonError;

    fn try_from(input: SerializedInput) -> Result<Self, JsonError> {
        let default = input.default.map(|json| from_json(json, &input.port.kind)).transpose()?;
        Ok(Self { port: input.port, default, columns: input.columns })
    }
}

/// An output of the pipeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanOutput {
    /// its name in the result
    pub name: String,
    /// its kind
    pub kind: Kind,
    pub(crate) slot: Slot,
}

impl PlanOutput {
    /// The number of the value in the plan's frame, as [`PlannedStep::output_slots`] counts.
    pub const fn slot(&self) -> usize {
        self.slot
    }
}

/// A step in its place.
#[derive(Clone)]
pub struct PlannedStep {
    /// its tag in gpux.yml, or the component's name
    pub name: String,
    /// the step itself
    #[doc(hidden)]
    pub step: Arc<dyn Step>,
    /// its outputs, in order
    pub kinds: Vec<Kind>,
    /// conversions of its inputs
    #[doc(hidden)]
    pub conversions: InputConversions,
    /// how often requests ended here
    #[doc(hidden)]
    pub failures: Arc<FailureCounts>,
    pub(crate) inputs: Vec<Option<SlotRef>>,
    /// the condition under which it runs, and the value that it is about
    pub(crate) condition: Option<(Condition, SlotRef)>,
    pub(crate) outputs: Vec<(String, Slot)>,
    /// for each output, whether it stays on the device that computes it
    pub(crate) outputs_on_device: Vec<bool>,
    /// whether any output does, or any input comes from a device
    pub(crate) on_device: bool,
}

impl PlannedStep {
    /// The plan that it runs for each item, if it does.
    pub fn inner_plan(&self) -> Option<&Plan> {
        self.step.inner_plan()?.downcast_ref()
    }

    /// The names its outputs have in the frame, in order.
    pub fn output_names(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(|(name, _)| name.as_str())
    }

    /// The numbers of the values in the plan's frame that it reads, one for each input port. The inputs of the plan
    /// are the first values.
    pub fn input_slots(&self) -> impl Iterator<Item = Option<usize>> {
        self.inputs.iter().map(|source| source.map(|source| source.slot))
    }

    /// The condition under which it runs, and the number of the value that it is about.
    #[doc(hidden)]
    pub fn condition(&self) -> Option<(&Condition, usize)> {
        self.condition.as_ref().map(|(condition, source)| (condition, source.slot))
    }

    /// The numbers of the values that it gives.
    pub fn output_slots(&self) -> impl Iterator<Item = usize> {
        self.outputs.iter().map(|(_, slot)| *slot)
    }

    /// For each output, whether it stays on the device that computes it, because only models read it. If an
    /// observer asks for values, they are all copied to the host.
    pub fn outputs_on_device(&self) -> &[bool] {
        &self.outputs_on_device
    }
}

/// The inputs and outputs of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanSignature {
    inputs: Vec<PlanInput>,
    outputs: Vec<PlanOutput>,
}

impl PlanSignature {
    /// The inputs of a request.
    pub fn inputs(&self) -> &[PlanInput] {
        &self.inputs
    }

    /// The outputs of a request.
    pub fn outputs(&self) -> &[PlanOutput] {
        &self.outputs
    }
}

/// A plan that runs instead of the one it belongs to, for a request that names it.
pub(crate) struct Branch {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    /// whether its steps are the first ones of the whole plan
    pub(crate) is_part: bool,
}

/// A checked pipeline, which runs any number of requests concurrently.
pub struct Plan {
    signature: PlanSignature,
    steps: Vec<PlannedStep>,
    slots: usize,
    json_depth: usize,
    pub(crate) branches: Vec<Branch>,
    /// names and slots of what requests may give beside the inputs
    pub(crate) internal_inputs: Vec<(String, Slot)>,
}

impl Plan {
    pub(crate) const fn new(
        inputs: Vec<PlanInput>,
        steps: Vec<PlannedStep>,
        outputs: Vec<PlanOutput>,
        slots: usize,
        json_depth: usize,
    ) -> Self {
        let signature = PlanSignature { inputs, outputs };
        Self { signature, steps, slots, json_depth, branches: Vec::new(), internal_inputs: Vec::new() }
    }

    /// Feeds a port of a step from a new slot.
    pub(crate) fn feed(&mut self, name: &str, step: usize, port: usize) {
        let input = self.steps.get_mut(step).and_then(|step| step.inputs.get_mut(port));
        let Some(input) = input.filter(|input| input.is_none()) else { return };
        *input = Some(SlotRef { slot: self.slots, last: true });
        self.internal_inputs.push((name.to_owned(), self.slots));
        self.slots += 1;
    }

    /// Its inputs and outputs.
    pub const fn signature(&self) -> &PlanSignature {
        &self.signature
    }

    /// The inputs of a request.
    pub fn inputs(&self) -> &[PlanInput] {
        self.signature.inputs()
    }

    /// The steps, in the order they run.
    pub fn steps(&self) -> &[PlannedStep] {
        &self.steps
    }

    /// Every step with its number, those within others behind them: `4`, then `4.1`.
    pub fn all_steps(&self) -> Vec<(String, &PlannedStep)> {
        let mut found = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let number = (index + 1).to_string();
            let inner = step.inner_plan().map(Self::all_steps).unwrap_or_default();
            found.push((number.clone(), step));
            found.extend(inner.into_iter().map(|(within, step)| (format!("{number}.{within}"), step)));
        }
        found
    }

    /// The outputs of a request.
    pub fn outputs(&self) -> &[PlanOutput] {
        self.signature.outputs()
    }

    /// How many levels deep the JSON of its outputs may be.
    pub(crate) const fn json_depth(&self) -> usize {
        self.json_depth
    }

    /// How many values a run holds at most.
    pub(crate) const fn slots(&self) -> usize {
        self.slots
    }
}
