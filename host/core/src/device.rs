//! Tensors that stay in a device's memory between two models.
//!
//! A plan knows beforehand which: those that a model leaves in a memory and that nothing but models
//! which take them from that memory reads. Every other value is in the host's memory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::element::ElementType;
use super::plan::PlannedStep;
use super::signature::{Dim, Kind, TensorKind};
use super::step::{Context, StepFailure};
use super::tensor::Tensor;
use super::value::Value;
use super::wiring::Slots;

/// The memory of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// what the engine calls this kind of memory
    pub name: String,
    /// which of several devices
    pub device: i32,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.device)
    }
}

/// A tensor in the memory of a device. Only the engine that left it there can read it.
#[derive(Clone)]
pub struct DeviceTensor {
    element: ElementType,
    shape: Vec<usize>,
    held: Arc<dyn Any + Send + Sync>,
}

impl DeviceTensor {
    /// A tensor that is what the engine holds.
    pub fn new(element: ElementType, shape: Vec<usize>, held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { element, shape, held }
    }

    /// What the engine holds, if it is of this type.
    pub fn held<T: 'static>(&self) -> Option<&T> {
        self.held.downcast_ref()
    }

    /// What is known about it without reading it.
    pub fn kind(&self) -> TensorKind {
        let shape = self.shape.iter().copied().map(Dim::Fixed).collect();
        TensorKind { elements: self.element.into(), shape: Some(shape), layout: None }
    }

    /// Its size, in bytes.
    pub fn byte_len(&self) -> usize {
        self.element.size().unwrap_or(0) * self.shape.iter().product::<usize>()
    }
}

impl fmt::Debug for DeviceTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor({})", self.kind())
    }
}

/// Something in the host's memory, or a tensor in a device's.
#[derive(Clone, Debug)]
pub enum Placed<T> {
    /// in the host's memory
    Host(T),
    /// in a device's
    Device(DeviceTensor),
}

impl<T> Placed<T> {
    /// What is in the host's memory.
    pub fn host(self) -> Option<T> {
        if let Self::Host(value) = self { Some(value) } else { None }
    }
}

impl Placed<Tensor> {
    /// Its size, in bytes.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Host(tensor) => tensor.byte_len(),
            Self::Device(tensor) => tensor.byte_len(),
        }
    }
}

/// A step whose tensors may stay where it computes them.
pub trait DeviceStep {
    /// The memory in which output number `output` can be left; `None` for the host's alone.
    fn leaves(&self, output: usize) -> Option<&Memory>;

    /// The memory from which input number `input` can be taken; `None` for the host's alone, and
    /// where what is `given` has to be changed first.
    fn takes(&self, input: usize, given: &Kind) -> Option<&Memory>;

    /// What [`Step::run`](super::Step::run) does; outputs whose number is true in `stay` are left in
    /// the memory that [`leaves`](Self::leaves) tells.
    fn run_placed(
        &self,
        inputs: Vec<Option<Placed<Value>>>,
        stay: &[bool],
        context: &mut Context,
    ) -> Result<Vec<Placed<Value>>, StepFailure>;
}

/// Marks the outputs that stay on a device: all that read them take them from there.
pub(super) fn mark_what_stays(steps: &mut [PlannedStep], outputs: Slots<'_>, slots: usize) {
    // For each value the memory it is left in, for as long as nothing wants it elsewhere.
    let mut memories: Vec<Option<Memory>> = vec![None; slots];
    let mut kinds = vec![Kind::Any; slots];
    let mut is_read = vec![false; slots];
    for step in &*steps {
        let device = step.step.device();
        for (input, source) in step.inputs.iter().enumerate() {
            let Some(source) = source else { continue };
            let from = device.and_then(|device| device.takes(input, &kinds[source.slot]));
            is_read[source.slot] = true;
            if from != memories[source.slot].as_ref() {
                memories[source.slot] = None;
            }
        }
        for (output, ((_, slot), kind)) in step.outputs.iter().zip(&step.kinds).enumerate() {
            memories[*slot] = device.and_then(|device| device.leaves(output)).cloned();
            kinds[*slot] = kind.clone();
        }
    }
    for (_, slot) in outputs {
        memories[*slot] = None;
    }
    let stays = |slot: usize| is_read[slot] && memories[slot].is_some();
    for step in steps {
        step.stay = step.outputs.iter().map(|(_, slot)| stays(*slot)).collect();
        let reads = step.inputs.iter().flatten().any(|source| stays(source.slot));
        step.on_device = reads || step.stay.contains(&true);
    }
}

#[cfg(test)]
mod tests;
