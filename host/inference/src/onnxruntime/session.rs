//! One session of ONNX Runtime.

use std::borrow::Cow;
use std::time::Instant;

use ort::session::{RunOptions, Session as Native, SessionInputValue, SessionInputs};
use smallvec::SmallVec;

use crate::engine::{RunFailure, Session};
use crate::exclusive_device::{self, ExclusiveValue};
use crate::model_file::ModelFile;
use crate::value::OnnxValue;
use gpux_core::DeadlineExceeded;
use gpux_core::catch_panic::shorten;
use gpux_core::{HostOrDevice, Memory, Tensor};

use super::device_binding::Binding;
use super::device_placement::DevicePlacement;
use super::non_tensor_values::NonTensorValues;
use super::values;
use super::watchdog::{Watchdog, shrinking};

/// Inputs below this size, in bytes, are taken to leave no memory worth giving back.
const SMALL_INPUT: usize = 64 << 10;

pub(super) struct OrtSession {
    native: ExclusiveValue<Native>,
    place: DevicePlacement,
    /// the names of all of the model's inputs, those with a default included
    names: Vec<String>,
    /// whether the first inputs, in order, are just those that must be given
    positional: usize,
    controls: RunControls,
    typical_size: TypicalSize,
    /// for models with other values than plain tensors
    kinds: Option<NonTensorValues>,
}

/// Bytes that runs are usually given: an average over about eight.
#[derive(Debug, Default)]
struct TypicalSize(usize);

impl TypicalSize {
    /// Whether a run is far larger than others. The arena keeps the memory of the largest run, so it is
    /// shrunk after such a run; shrinking after each run would cost the next one new pages.
    fn is_exceeded(&mut self, bytes: usize) -> bool {
        let typical_size = self.0;
        self.0 = if typical_size == 0 { bytes } else { typical_size - typical_size / 8 + bytes / 8 };
        bytes > SMALL_INPUT && bytes / 2 > typical_size && typical_size > 0
    }
}

/// Run options, created when they are first needed.
#[derive(Default)]
struct RunControls {
    /// made for the first run under a deadline
    watchdog: Option<Watchdog>,
    /// made for the first run that leaves much memory behind, without a deadline
    shrinking: Option<RunOptions>,
}

impl OrtSession {
    pub(super) fn new(
        native: ExclusiveValue<Native>,
        place: DevicePlacement,
        file: &ModelFile,
        kinds: Option<NonTensorValues>,
    ) -> Result<Self, String> {
        let info = file.info();
        let ports = native.get().ok_or(GONE)?;
        let names: Vec<_> = info.inputs.iter().map(|input| input.name.clone()).collect();
        let same = |(native, ours): (&ort::value::Outlet, &String)| native.name() == ours;
        let positional = if ports.inputs().iter().zip(&names).all(same) { ports.inputs().len() } else { 0 };
        // The graph and the library must agree on the ports.
        let theirs = ports.outputs().iter().map(ort::value::Outlet::name);
        let same = match &kinds {
            None => theirs.eq(info.outputs.iter().map(|output| output.name.as_str())),
            Some(kinds) => theirs.eq(kinds.native_outputs().iter().map(AsRef::as_ref)),
        };
        if !same {
            return Err("its outputs are not those that the file declares".to_owned());
        }
        Ok(Self {
            native,
            place,
            names,
            positional,
            controls: RunControls::default(),
            typical_size: TypicalSize::default(),
            kinds,
        })
    }
}

impl Session for OrtSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)], deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let in_order =
            inputs.len() == self.positional && inputs.iter().enumerate().all(|(at, (index, _))| at == *index);
        let shrink = self.typical_size.is_exceeded(inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum());
        let given = inputs;
        let views = inputs.iter().map(|(_, tensor)| values::view(tensor));
        let slice: SmallVec<[SessionInputValue<'_>; 4]>;
        let inputs = if in_order {
            slice = views.collect::<Result<_, _>>().map_err(failed)?;
            SessionInputs::<0>::ValueSlice(&slice)
        } else {
            let names = inputs.iter().map(|(index, _)| Cow::Borrowed(self.names[*index].as_str()));
            let named = names.zip(views).map(|(name, view)| Ok((name, view?)));
            SessionInputs::ValueMap(named.collect::<ort::Result<Vec<_>>>().map_err(failed)?)
        };
        let _guard = exclusive_device::acquire(self.place.exclusive, deadline)
            .map_err(|DeadlineExceeded| RunFailure::Timeout)?;
        let native = self.native.get_mut().ok_or_else(gone)?;
        let outputs = run_with_deadline(&mut self.controls, deadline, shrink, |options| match options {
            Some(options) => native.run_with_options(inputs, options),
            None => native.run(inputs),
        })?;
        let may_keep = !self.place.exclusive;
        values::take(outputs, given, may_keep).map_err(RunFailure::Failed)
    }

    fn run_values(
        &mut self,
        inputs: &[(usize, &OnnxValue)],
        deadline: Option<Instant>,
    ) -> Result<Vec<OnnxValue>, RunFailure> {
        let Some(kinds) = &mut self.kinds else {
            return Err(RunFailure::Failed("the model takes and gives tensors alone".to_owned()));
        };
        // Outputs may share memory with these.
        let held = kinds.inputs(inputs).map_err(RunFailure::Failed)?;
        let named = held
            .iter()
            .map(|(index, value)| (Cow::Borrowed(self.names[*index].as_str()), SessionInputValue::from(&**value)));
        let named = SessionInputs::<0>::ValueMap(named.collect());
        let _guard = exclusive_device::acquire(self.place.exclusive, deadline)
            .map_err(|DeadlineExceeded| RunFailure::Timeout)?;
        let native = self.native.get_mut().ok_or_else(gone)?;
        let outputs = run_with_deadline(&mut self.controls, deadline, false, |options| match options {
            Some(options) => native.run_with_options(named, options),
            None => native.run(named),
        })?;
        kinds.outputs(&outputs).map_err(RunFailure::Failed)
    }

    fn memory(&self) -> Option<&Memory> {
        self.place.memory.as_ref()
    }

    fn run_placed(
        &mut self,
        inputs: &[(usize, &HostOrDevice<Tensor>)],
        stay: &[bool],
        deadline: Option<Instant>,
    ) -> Result<Vec<HostOrDevice<Tensor>>, RunFailure> {
        let named = inputs.iter().map(|(index, value)| (self.names[*index].as_str(), *value));
        let shrink = self.typical_size.is_exceeded(inputs.iter().map(|(_, value)| value.byte_len()).sum());
        let _guard = exclusive_device::acquire(self.place.exclusive, deadline)
            .map_err(|DeadlineExceeded| RunFailure::Timeout)?;
        let native = self.native.get_mut().ok_or_else(gone)?;
        let binding = Binding::new(native, named, stay, &self.place).map_err(failed)?;
        run_with_deadline(&mut self.controls, deadline, shrink, |options| binding.run(native, options))
    }
}

const GONE: &str = "the session is gone";

fn gone() -> RunFailure {
    RunFailure::Broken(GONE.to_owned())
}

/// One run, stopped when its deadline has passed.
fn run_with_deadline<'t, T>(
    controls: &'t mut RunControls,
    deadline: Option<Instant>,
    shrink: bool,
    run: impl FnOnce(Option<&'t RunOptions>) -> ort::Result<T>,
) -> Result<T, RunFailure> {
    let outputs = match deadline {
        None if shrink => {
            let options = match &mut controls.shrinking {
                Some(options) => options,
                none => none.insert(shrinking().map_err(RunFailure::Failed)?),
            };
            run(Some(options))
        }
        None => run(None),
        Some(deadline) => {
            let watchdog = match &mut controls.watchdog {
                Some(watchdog) => watchdog,
                none => none.insert(Watchdog::new().map_err(RunFailure::Failed)?),
            };
            watchdog.begin(deadline);
            let outputs = run(Some(watchdog.options(shrink)));
            watchdog.end().map_err(|DeadlineExceeded| RunFailure::Timeout)?;
            outputs
        }
    };
    outputs.map_err(failed)
}

fn failed(error: ort::Error) -> RunFailure {
    RunFailure::Failed(shorten(error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinks_memory_only_after_exceptional_runs() {
        let mut typical_size = TypicalSize::default();
        assert!(!typical_size.is_exceeded(10 * SMALL_INPUT), "the first is all there is to go by");
        assert!(!typical_size.is_exceeded(15 * SMALL_INPUT));
        assert!(typical_size.is_exceeded(100 * SMALL_INPUT));
        let mut small = TypicalSize(8);
        assert!(!small.is_exceeded(SMALL_INPUT));
        let mut growing = TypicalSize(SMALL_INPUT);
        let exceeded = (0..100).filter(|_| growing.is_exceeded(100 * SMALL_INPUT)).count();
        assert!((1..20).contains(&exceeded), "large runs become usual");
    }
}
