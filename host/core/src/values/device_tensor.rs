//! Tensors that stay in a device's memory between two models.
//!
//! The plan decides which: a model's output stays on the device if only models that read it from the
//! same memory consume it. Every other value is copied to the host.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::element::ElementType;
use super::signature::{Dim, TensorKind};
use super::tensor::Tensor;

/// The memory of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// the engine's name of this kind of memory
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
    inner: Arc<dyn Any + Send + Sync>,
}

impl DeviceTensor {
    /// Wraps the engine's tensor.
    pub fn new(element: ElementType, shape: Vec<usize>, inner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { element, shape, inner }
    }

    /// The engine's tensor, if it is of this type.
    pub fn downcast_ref<T: 'static>(&self) -> Option<&T> {
        self.inner.downcast_ref()
    }

    /// Its element type and shape.
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
pub enum HostOrDevice<T> {
    /// in the host's memory
    Host(T),
    /// in a device's
    Device(DeviceTensor),
}

impl<T> HostOrDevice<T> {
    /// The value, if it is in host memory.
    pub fn host(self) -> Option<T> {
        if let Self::Host(value) = self { Some(value) } else { None }
    }
}

impl HostOrDevice<Tensor> {
    /// Its size, in bytes.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Host(tensor) => tensor.byte_len(),
            Self::Device(tensor) => tensor.byte_len(),
        }
    }
}

#[cfg(test)]
mod tests;
