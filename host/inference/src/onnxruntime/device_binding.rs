//! Runs with inputs and outputs in a device's memory (I/O binding).

use std::sync::Arc;

use ort::session::{IoBinding, RunOptions, Session as Native, SharedSessionInner};
use ort::value::{DynValue, ValueType};

use super::device_placement::{DevicePlacement, memory_info};
use super::values;
use crate::exclusive_device::ExclusiveValue;
use gpux_core::{DeviceTensor, HostOrDevice, Tensor};

/// A tensor on a device, with the session whose memory it lies in.
struct SessionTensor {
    value: ExclusiveValue<(DynValue, Arc<SharedSessionInner>)>,
}

/// One run, its inputs in place and the place of its outputs chosen.
pub(super) struct Binding<'p> {
    bound: IoBinding,
    stay: Vec<bool>,
    place: &'p DevicePlacement,
}

impl<'p> Binding<'p> {
    /// Binds the inputs by their names, and all outputs. Each run has its own binding: reusing one
    /// would pass the same output memory to the next run.
    pub(super) fn new<'a>(
        native: &Native,
        inputs: impl Iterator<Item = (&'a str, &'a HostOrDevice<Tensor>)>,
        stay: &[bool],
        place: &'p DevicePlacement,
    ) -> ort::Result<Self> {
        let mut bound = native.create_binding()?;
        for (name, value) in inputs {
            match value {
                // Not a view: `ort` would copy it itself, and deadlock.
                HostOrDevice::Host(tensor) => bound.bind_input(name, &values::owned(tensor)?)?,
                HostOrDevice::Device(tensor) => {
                    let held = tensor.downcast_ref::<SessionTensor>().and_then(|held| held.value.get());
                    let (value, _) = held.ok_or_else(|| ort::Error::new("a tensor of another engine"))?;
                    bound.bind_input(name, value)?;
                }
            }
        }
        let [host, device] = [memory_info(None)?, memory_info(place.memory.as_ref())?];
        let stay: Vec<_> = (0..native.outputs().len()).map(|output| stay.get(output) == Some(&true)).collect();
        for (output, stays) in native.outputs().iter().zip(&stay) {
            bound.bind_output_to_device(output.name(), if *stays { &device } else { &host })?;
        }
        Ok(Self { bound, stay, place })
    }

    /// Runs the session and returns its outputs in their order.
    pub(super) fn run(
        &self,
        native: &mut Native,
        options: Option<&RunOptions>,
    ) -> ort::Result<Vec<HostOrDevice<Tensor>>> {
        let session = native.inner();
        let names: Vec<_> = native.outputs().iter().map(|output| output.name().to_owned()).collect();
        let mut outputs = match options {
            Some(options) => native.run_binding_with_options(&self.bound, options)?,
            None => native.run_binding(&self.bound)?,
        };
        let mut output = |(name, stays): (String, &bool)| {
            let value = outputs.remove(&name).ok_or_else(|| ort::Error::new(format!("no output `{name}`")))?;
            if *stays {
                return to_device_tensor(value, session.clone(), self.place).map(HostOrDevice::Device);
            }
            values::copy(&name, &value).map(HostOrDevice::Host).map_err(ort::Error::new)
        };
        names.into_iter().zip(&self.stay).map(&mut output).collect()
    }
}

/// An output that stays on the session's device; it is dropped under the device's lock.
fn to_device_tensor(
    value: DynValue,
    session: Arc<SharedSessionInner>,
    place: &DevicePlacement,
) -> ort::Result<DeviceTensor> {
    let (element, shape) = match value.dtype() {
        ValueType::Tensor { ty, shape, .. } => (values::element(*ty), values::dims(shape)),
        _ => (None, Vec::new()),
    };
    let kind = value.dtype().to_string();
    // Field order: dropping the tensor uses the session.
    let held = SessionTensor { value: ExclusiveValue::new((value, session), place.exclusive) };
    let element = element.ok_or_else(|| ort::Error::new(format!("{kind} was left on a device")))?;
    Ok(DeviceTensor::new(element, shape, Arc::new(held)))
}
