//! Connects the steps' ports by name and builds a checked [`Plan`].

use std::sync::Arc;

use super::condition::Condition;
use super::plan::{Plan, PlanInput, PlanOutput, PlannedStep, Slot, SlotRef};
use super::step::{InputConversions, Step};
use crate::json::json_conversion;
use crate::values::device_tensor::Memory;
use crate::values::signature::{Dim, Kind, Port, TensorKind};
use crate::values::tensor::MAX_AXES;

/// Names given to a step's ports by `in:` or `out:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// by position: the first name is for the first port
    Ordered(Vec<String>),
    /// by port
    ByPort(Vec<(String, String)>),
}

impl Names {
    /// The frame name for each port that is mentioned, as (index of the port, frame name).
    fn resolve<'a>(&'a self, ports: &[Port], at: PortSide) -> Result<Vec<(usize, &'a str)>, WiringError> {
        let known = || ports.iter().map(|port| format!("`{}`", port.name)).collect::<Vec<_>>().join(", ");
        match self {
            Self::Ordered(names) if names.len() > ports.len() => Err(WiringError {
                at,
                message: format!("{} names are given, but the step has {}: {}", names.len(), ports.len(), known()),
                hint: None,
            }),
            Self::Ordered(names) => Ok(names.iter().map(String::as_str).enumerate().collect()),
            Self::ByPort(pairs) => pairs
                .iter()
                .map(|(port, name)| {
                    let index = ports.iter().position(|candidate| candidate.name == *port);
                    index.map(|index| (index, name.as_str())).ok_or_else(|| WiringError {
                        at,
                        message: format!("the step has no `{port}`"),
                        hint: Some(format!("it has {}", known())),
                    })
                })
                .collect(),
        }
    }
}

/// Values by their names.
type Slots<'a> = &'a [(String, Slot)];

/// Which part of a step a wiring error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSide {
    /// its `in:`, or the values it would read
    Inputs,
    /// its `out:`
    Outputs,
}

/// A step that cannot be connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WiringError {
    /// the part that does not fit
    pub at: PortSide,
    /// the reason
    pub message: String,
    /// what to do about it
    pub hint: Option<String>,
}

/// Collects steps into a plan and connects each to earlier values.
pub struct PlanBuilder {
    inputs: Vec<PlanInput>,
    /// whether a value that nothing gives becomes an input of the pipeline
    open: bool,
    kinds: Vec<Kind>,
    /// of each value, how many levels deep its JSON may be
    depths: Vec<usize>,
    names: Vec<(String, Slot)>,
    previous: Vec<(String, Slot)>,
    steps: Vec<PlannedStep>,
}

/// The nesting levels of the JSON of a value of this kind; `own` is that of a JSON value.
fn json_depth(kind: &Kind, own: impl FnOnce() -> usize) -> usize {
    match kind {
        Kind::Any | Kind::Json => own(),
        Kind::Tensor(tensor) => tensor.shape.as_ref().map_or(MAX_AXES, Vec::len),
        // A string, or the base64 of bytes in an object.
        Kind::Text | Kind::Bytes => 1,
    }
}

impl PlanBuilder {
    /// A plan with these inputs; with `None`, the inputs are the values that steps read and no step computes.
    pub fn new(inputs: Option<Vec<PlanInput>>) -> Self {
        let open = inputs.is_none();
        let inputs = inputs.unwrap_or_default();
        let names: Vec<_> = inputs.iter().enumerate().map(|(slot, input)| (input.port.name.clone(), slot)).collect();
        Self {
            open,
            kinds: inputs.iter().map(|input| input.port.kind.clone()).collect(),
            depths: inputs
                .iter()
                .map(|input| json_depth(&input.port.kind, || json_conversion::REQUEST_DEPTH))
                .collect(),
            previous: names.clone(),
            names,
            inputs,
            steps: Vec::new(),
        }
    }

    /// A plan within a step, whose inputs are values with these depths of JSON.
    pub fn within(inputs: Vec<(Port, usize)>) -> Self {
        let (ports, depths): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
        let input = |port| PlanInput { port, default: None, columns: None };
        Self { depths, ..Self::new(Some(ports.into_iter().map(input).collect())) }
    }

    /// The kind of the newest value of this name, and how many levels deep its JSON may be.
    pub fn value(&self, name: &str) -> Result<(&Kind, usize), WiringError> {
        self.find(name).map(|slot| (&self.kinds[slot], self.depths[slot])).ok_or_else(|| self.unknown(name, None))
    }

    /// The names of what the last step gives.
    pub fn last_outputs(&self) -> impl Iterator<Item = &str> {
        self.previous.iter().map(|(name, _)| name.as_str())
    }

    /// Whether there is any value that a step could read.
    pub const fn has_values(&self) -> bool {
        !self.names.is_empty()
    }

    /// Appends a step; a step that cannot be connected is an error, but its outputs stay known
    /// to the steps after it. Each input port reads, in this order: the value that `reads` names for it;
    /// an output of the step before with the port's name; the only output of the step before, if
    /// this is the step's only required port; the newest value of the port's name.
    pub fn push(
        &mut self,
        name: impl Into<String>,
        step: Arc<dyn Step>,
        reads: Option<&Names>,
        gives: Option<&Names>,
    ) -> Result<(), WiringError> {
        self.push_if(name, step, reads, gives, None)
    }

    /// [`push`](Self::push) of a step that runs only if the condition `when` holds, and otherwise gives its first input.
    pub fn push_if(
        &mut self,
        name: impl Into<String>,
        step: Arc<dyn Step>,
        reads: Option<&Names>,
        gives: Option<&Names>,
        when: Option<&Condition>,
    ) -> Result<(), WiringError> {
        let signature = step.signature().clone();
        let mut condition = None;
        let checked = self.connect(&*step, reads).and_then(|slots| {
            let given: Vec<_> = slots.iter().map(|slot| slot.map(|slot| self.kinds[slot].clone())).collect();
            let mut kinds = step.infer(&given).map_err(|mismatch| WiringError {
                at: PortSide::Inputs,
                message: mismatch.to_string(),
                hint: None,
            })?;
            if let Some(when) = when {
                condition = Some((when.clone(), self.condition(when)?));
                kinds = vec![either_kind(given.first().and_then(Option::as_ref), &kinds)?];
            }
            Ok((slots, kinds, step.conversions(&given)))
        });
        // After a mistake the next steps are still checked, as far as they do not depend on it.
        let (slots, kinds, conversions, fault) = match checked {
            Ok((slots, kinds, conversions)) => (slots, kinds, conversions, None),
            Err(fault) => (Vec::new(), vec![Kind::Any; signature.outputs.len()], InputConversions::new(), Some(fault)),
        };

        let mut outputs: Vec<_> = signature.outputs.iter().map(|port| port.name.clone()).collect();
        let renamed = gives.map_or(Ok(Vec::new()), |gives| gives.resolve(&signature.outputs, PortSide::Outputs));
        let fault = match renamed {
            Ok(renamed) => {
                for (index, name) in renamed {
                    name.clone_into(&mut outputs[index]);
                }
                fault
            }
            Err(misnamed) => fault.or(Some(misnamed)),
        };

        let first = self.kinds.len();
        let read: Vec<_> = slots.iter().map(|slot| slot.map_or(0, |slot| self.depths[slot])).collect();
        let own = step.json_depth(&read);
        let fault =
            fault.or_else(|| (own > json_conversion::MAX_DEPTH && kinds.contains(&Kind::Json)).then(|| too_deep(own)));
        self.depths.extend(kinds.iter().map(|kind| json_depth(kind, || own.min(json_conversion::MAX_DEPTH))));
        self.kinds.extend(kinds.iter().cloned());
        self.previous = outputs.into_iter().zip(first..).collect();
        for (name, slot) in &self.previous {
            self.names.retain(|(known, _)| known != name);
            self.names.push((name.clone(), *slot));
        }

        self.steps.push(PlannedStep {
            name: name.into(),
            step,
            conversions,
            failures: Arc::default(),
            inputs: slots.into_iter().map(|slot| slot.map(|slot| SlotRef { slot, last: false })).collect(),
            condition: condition.map(|(condition, slot)| (condition, SlotRef { slot, last: false })),
            outputs: self.previous.clone(),
            kinds,
            outputs_on_device: Vec::new(),
            on_device: false,
        });
        fault.map_or(Ok(()), Err)
    }

    fn connect(&mut self, step: &dyn Step, reads: Option<&Names>) -> Result<Vec<Option<Slot>>, WiringError> {
        let ports = step.signature().inputs.as_slice();
        let mut slots = vec![None; ports.len()];
        if let Some(reads) = reads {
            for (index, name) in reads.resolve(ports, PortSide::Inputs)? {
                slots[index] = Some(self.find_or_open(name, &ports[index])?);
            }
        }
        let only_required = {
            let mut required = ports.iter().enumerate().filter(|(_, port)| !port.optional);
            required.next().filter(|_| required.next().is_none()).map(|(index, _)| index)
        };
        for (index, port) in ports.iter().enumerate() {
            if slots[index].is_some() {
                continue;
            }
            let before = self.previous.iter().find(|(name, _)| *name == port.name).map(|(_, slot)| *slot);
            let straight = || match self.previous.as_slice() {
                [(_, slot)] if only_required == Some(index) => Some(*slot),
                _ => None,
            };
            let named = || self.find(&port.name);
            // What nobody named for an optional port is only taken if it fits.
            let fits = |slot: &Slot| !port.optional || port.kind.accepts(&self.kinds[*slot]).is_ok();
            slots[index] = match before.or_else(straight).or_else(named).filter(fits) {
                Some(slot) => Some(slot),
                None if port.optional && !self.offers(step, port) => None,
                None => Some(self.find_or_open(&port.name, port)?),
            };
        }
        for (port, slot) in ports.iter().zip(&slots).filter(|(port, _)| !port.optional) {
            let input = slot.and_then(|slot| self.inputs.get(slot));
            if let Some(input) = input.filter(|input| input.port.optional && input.default.is_none()) {
                let name = &input.port.name;
                return Err(WiringError {
                    at: PortSide::Inputs,
                    message: format!("it needs `{}`, but the input `{name}` may be left out", port.name),
                    hint: Some(format!("remove `required: false` from `{name}`, or give it a `default`")),
                });
            }
        }
        Ok(slots)
    }

    /// Whether an optional port becomes an input of the pipeline: those of a model do, where the pipeline
    /// begins with the model and says nothing of its inputs.
    fn offers(&self, step: &dyn Step, port: &Port) -> bool {
        self.open && self.steps.is_empty() && (port.kind == Kind::Json || step.offers_optional_inputs())
    }

    fn find(&self, name: &str) -> Option<Slot> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, slot)| *slot)
    }

    fn find_or_open(&mut self, name: &str, port: &Port) -> Result<Slot, WiringError> {
        if let Some(slot) = self.find(name) {
            return Ok(slot);
        }
        // Inputs have the first slots, so they can only be added before the first step.
        if self.open && self.steps.is_empty() {
            let slot = self.inputs.len();
            self.inputs.push(PlanInput {
                port: Port { name: name.to_owned(), ..port.clone() },
                default: None,
                columns: None,
            });
            self.kinds.push(port.kind.clone());
            self.depths.push(json_depth(&port.kind, || json_conversion::REQUEST_DEPTH));
            self.names.push((name.to_owned(), slot));
            return Ok(slot);
        }
        Err(self.unknown(name, Some(&port.kind)))
    }

    /// The error for a name that no value has.
    fn unknown(&self, name: &str, wanted: Option<&Kind>) -> WiringError {
        let there: Vec<_> = self.names.iter().map(|(name, _)| format!("`{name}`")).collect();
        let wanted = wanted.map(|kind| format!(" ({kind})")).unwrap_or_default();
        WiringError {
            at: PortSide::Inputs,
            message: format!("nothing before this step gives `{name}`{wanted}"),
            hint: Some(format!("there is {}; name one with `in:`", there.join(", "))),
        }
    }

    /// The slot of the value that a condition is about.
    fn condition(&self, condition: &Condition) -> Result<Slot, WiringError> {
        let slot = self.find(&condition.value).ok_or_else(|| self.unknown(&condition.value, None))?;
        condition.check_kind(&self.kinds[slot]).map_err(|message| WiringError {
            at: PortSide::Inputs,
            message,
            hint: Some("make it one, such as with `slice`".to_owned()),
        })?;
        Ok(slot)
    }

    /// The plan. Its outputs are the values of these names, or those of the last step.
    pub fn finish(self, outputs: Option<&[String]>) -> Result<Plan, Vec<(usize, WiringError)>> {
        let mut faults = Vec::new();
        let chosen: Vec<(String, Slot)> = match outputs {
            None => self.previous.clone(),
            Some(names) => names
                .iter()
                .enumerate()
                .filter_map(|(index, name)| {
                    if let Some(slot) = self.find(name) {
                        Some((name.clone(), slot))
                    } else {
                        let there: Vec<_> = self.names.iter().map(|(name, _)| format!("`{name}`")).collect();
                        faults.push((
                            index,
                            WiringError {
                                at: PortSide::Outputs,
                                message: format!("no step gives `{name}`"),
                                hint: Some(format!("there is {}", there.join(", "))),
                            },
                        ));
                        None
                    }
                })
                .collect(),
        };
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut steps = self.steps;
        mark_last_reads(&mut steps, &chosen, self.kinds.len());
        mark_device_values(&mut steps, &chosen, self.kinds.len());
        let json_depth = chosen.iter().map(|(_, slot)| self.depths[*slot]).max().unwrap_or_default();
        let outputs =
            chosen.into_iter().map(|(name, slot)| PlanOutput { name, slot, kind: self.kinds[slot].clone() }).collect();
        Ok(Plan::new(self.inputs, steps, outputs, self.kinds.len(), json_depth))
    }
}

/// The kind of what a step gives if it runs, and its first input otherwise.
fn either_kind(first: Option<&Kind>, outputs: &[Kind]) -> Result<Kind, WiringError> {
    let fault = |message: String| WiringError { at: PortSide::Inputs, message, hint: None };
    let (Some(first), [output]) = (first, outputs) else {
        let count = outputs.len();
        return Err(fault(format!("a step with `when` has an input and one output, but this one gives {count}")));
    };
    match (first, output) {
        (Kind::Any, _) | (_, Kind::Any) => Ok(Kind::Any),
        (Kind::Tensor(one), Kind::Tensor(other)) => {
            let dim = |(one, other): (&Dim, &Dim)| if one == other { one.clone() } else { Dim::Dynamic };
            let shapes = one.shape.as_ref().zip(other.shape.as_ref()).filter(|(one, other)| one.len() == other.len());
            Ok(Kind::Tensor(TensorKind {
                elements: one.elements.union(other.elements),
                shape: shapes.map(|(one, other)| one.iter().zip(other).map(dim).collect()),
                layout: one.layout.filter(|layout| other.layout == Some(*layout)),
            }))
        }
        (one, other) if one == other => Ok(one.clone()),
        (one, other) => Err(fault(format!("with `when` it gives {other} or its first input, which is {one}"))),
    }
}

fn too_deep(depth: usize) -> WiringError {
    WiringError {
        at: PortSide::Inputs,
        message: format!(
            "with what it reads, its JSON could be nested {depth} levels deep; a pipeline builds {} at most",
            json_conversion::MAX_DEPTH
        ),
        hint: Some("read a part of the value before (`{{name.field}}`), or the values that it was made of".to_owned()),
    }
}

/// Marks the last read of each value, so that a run can move it there instead of sharing it.
pub(crate) fn mark_last_reads(steps: &mut [PlannedStep], outputs: Slots<'_>, slots: usize) {
    let mut read_later = vec![false; slots];
    for (_, slot) in outputs {
        read_later[*slot] = true;
    }
    for step in steps.iter_mut().rev() {
        // The condition is read before the inputs.
        for source in step.condition.iter_mut().map(|(_, source)| source).chain(step.inputs.iter_mut().flatten()).rev()
        {
            source.last = !std::mem::replace(&mut read_later[source.slot], true);
        }
    }
}

/// Marks the outputs that stay on a device: all that read them take them from there.
pub(crate) fn mark_device_values(steps: &mut [PlannedStep], outputs: Slots<'_>, slots: usize) {
    // For each value the memory it is left in, for as long as nothing wants it elsewhere.
    let mut memories: Vec<Option<Memory>> = vec![None; slots];
    let mut kinds = vec![Kind::Any; slots];
    let mut is_read = vec![false; slots];
    for step in &*steps {
        // Whether a step runs is decided on the host.
        let device = step.step.device().filter(|_| step.condition.is_none());
        if let Some((_, source)) = &step.condition {
            is_read[source.slot] = true;
            memories[source.slot] = None;
        }
        for (input, source) in step.inputs.iter().enumerate() {
            let Some(source) = source else { continue };
            let from = device.and_then(|device| device.input_memory(input, &kinds[source.slot]));
            is_read[source.slot] = true;
            if from != memories[source.slot].as_ref() {
                memories[source.slot] = None;
            }
        }
        for (output, ((_, slot), kind)) in step.outputs.iter().zip(&step.kinds).enumerate() {
            memories[*slot] = device.and_then(|device| device.output_memory(output)).cloned();
            kinds[*slot] = kind.clone();
        }
    }
    for (_, slot) in outputs {
        memories[*slot] = None;
    }
    let stays = |slot: usize| is_read[slot] && memories[slot].is_some();
    for step in steps {
        step.outputs_on_device = step.outputs.iter().map(|(_, slot)| stays(*slot)).collect();
        let reads = step.inputs.iter().flatten().any(|source| stays(source.slot));
        step.on_device = reads || step.outputs_on_device.contains(&true);
    }
}
