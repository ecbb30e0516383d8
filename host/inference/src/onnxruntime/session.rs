//! One session of ONNX Runtime.

use std::borrow::Cow;
use std::time::Instant;

use ort::session::{RunOptions, Session as Native, SessionInputValue, SessionInputs};
use smallvec::SmallVec;

use crate::engine::{RunFailure, Session};
use crate::model_file::ModelFile;
use crate::turns::{self, InTurn};
use crate::value::OnnxValue;
use gpux_core::catch_panic::shorten;
use gpux_core::{Memory, Placed, Tensor};

use super::device::Place;
use super::kinds::Kinds;
use super::placed::Binding;
use super::values;
use super::watch::{Late, Watch, shrinking};

/// Inputs below this size, in bytes, are taken to leave no memory worth giving back.
const SMALL: usize = 64 << 10;

pub(super) struct OrtSession {
    native: InTurn<Native>,
    place: Place,
    /// the names of all of the model's inputs, those with a default included
    names: Vec<String>,
    /// whether the first inputs, in order, are just those that must be given
    positional: usize,
    told: Told,
    usual: Usual,
    /// for models that take or give other values than plain tensors
    kinds: Option<Kinds>,
}

/// Bytes that runs are usually given: an average over about eight.
#[derive(Debug, Default)]
struct Usual(usize);

impl Usual {
    /// Whether a run on so many bytes is far larger than others. The arena keeps what the largest
    /// run ever took, so after such a run it is told to give back what it does not use; after each
    /// run would cost the next one new pages.
    fn is_exceeded(&mut self, bytes: usize) -> bool {
        let usual = self.0;
        self.0 = if usual == 0 { bytes } else { usual - usual / 8 + bytes / 8 };
        bytes > SMALL && bytes / 2 > usual && usual > 0
    }
}

/// What runs are told beside their inputs.
#[derive(Default)]
struct Told {
    /// made for the first run under a deadline
    watch: Option<Watch>,
    /// made for the first run that leaves much memory behind, without a deadline
    shrinking: Option<RunOptions>,
}

impl OrtSession {
    pub(super) fn new(
        native: InTurn<Native>,
        place: Place,
        file: &ModelFile,
        kinds: Option<Kinds>,
    ) -> Result<Self, String> {
        let info = file.info();
        let ports = native.get().ok_or(GONE)?;
        let names: Vec<_> = info.inputs.iter().map(|input| input.name.clone()).collect();
        let same = |(native, ours): (&ort::value::Outlet, &String)| native.name() == ours;
        let positional = if ports.inputs().iter().zip(&names).all(same) { ports.inputs().len() } else { 0 };
        // What the graph says and what the library sees must be the same ports.
        let theirs = ports.outputs().iter().map(ort::value::Outlet::name);
        let same = match &kinds {
            None => theirs.eq(info.outputs.iter().map(|output| output.name.as_str())),
            Some(kinds) => theirs.eq(kinds.native_outputs().iter().map(AsRef::as_ref)),
        };
        if !same {
            return Err("its outputs are not those that the file declares".to_owned());
        }
        Ok(Self { native, place, names, positional, told: Told::default(), usual: Usual::default(), kinds })
    }
}

impl Session for OrtSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)], deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let in_order =
            inputs.len() == self.positional && inputs.iter().enumerate().all(|(at, (index, _))| at == *index);
        let shrink = self.usual.is_exceeded(inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum());
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
        let _turn = turns::take(self.place.alone, deadline).map_err(|turns::Late| RunFailure::Timeout)?;
        let native = self.native.get_mut().ok_or_else(gone)?;
        let outputs = timed(&mut self.told, deadline, shrink, |options| match options {
            Some(options) => native.run_with_options(inputs, options),
            None => native.run(inputs),
        })?;
        outputs.iter().map(|(name, value)| values::copy(name, &value).map_err(RunFailure::Failed)).collect()
    }

    fn run_values(
        &mut self,
        inputs: &[(usize, &OnnxValue)],
        deadline: Option<Instant>,
    ) -> Result<Vec<OnnxValue>, RunFailure> {
        let Some(kinds) = &mut self.kinds else {
            return Err(RunFailure::Failed("the model takes and gives tensors alone".to_owned()));
        };
        // What comes out may share memory with these.
        let held = kinds.inputs(inputs).map_err(RunFailure::Failed)?;
        let named = held
            .iter()
            .map(|(index, value)| (Cow::Borrowed(self.names[*index].as_str()), SessionInputValue::from(&**value)));
        let named = SessionInputs::<0>::ValueMap(named.collect());
        let _turn = turns::take(self.place.alone, deadline).map_err(|turns::Late| RunFailure::Timeout)?;
        let native = self.native.get_mut().ok_or_else(gone)?;
        let outputs = timed(&mut self.told, deadline, false, |options| match options {
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
        inputs: &[(usize, &Placed<Tensor>)],
        stay: &[bool],
        deadline: Option<Instant>,
    ) -> Result<Vec<Placed<Tensor>>, RunFailure> {
        let named = inputs.iter().map(|(index, value)| (self.names[*index].as_str(), *value));
        let shrink = self.usual.is_exceeded(inputs.iter().map(|(_, value)| value.byte_len()).sum());
        let _turn = turns::take(self.place.alone, deadline).map_err(|turns::Late| RunFailure::Timeout)?;
        let native = self.native.get_mut().ok_or_else(gone)?;
        let binding = Binding::new(native, named, stay, &self.place).map_err(failed)?;
        timed(&mut self.told, deadline, shrink, |options| binding.run(native, options))
    }
}

/// What is said of a session that is being let go of.
const GONE: &str = "the session is gone";

fn gone() -> RunFailure {
    RunFailure::Broken(GONE.to_owned())
}

/// One run, stopped when its deadline has passed.
fn timed<'t, T>(
    told: &'t mut Told,
    deadline: Option<Instant>,
    shrink: bool,
    run: impl FnOnce(Option<&'t RunOptions>) -> ort::Result<T>,
) -> Result<T, RunFailure> {
    let outputs = match deadline {
        None if shrink => {
            let options = match &mut told.shrinking {
                Some(options) => options,
                none => none.insert(shrinking().map_err(RunFailure::Failed)?),
            };
            run(Some(options))
        }
        None => run(None),
        Some(deadline) => {
            let watch = match &mut told.watch {
                Some(watch) => watch,
                none => none.insert(Watch::new().map_err(RunFailure::Failed)?),
            };
            watch.begin(deadline);
            let outputs = run(Some(watch.options(shrink)));
            watch.end().map_err(|Late| RunFailure::Timeout)?;
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
    fn only_a_run_far_above_the_usual_gives_memory_back() {
        let mut usual = Usual::default();
        assert!(!usual.is_exceeded(10 * SMALL), "the first is all there is to go by");
        assert!(!usual.is_exceeded(15 * SMALL));
        assert!(usual.is_exceeded(100 * SMALL));
        let mut small = Usual(8);
        assert!(!small.is_exceeded(SMALL));
        let mut growing = Usual(SMALL);
        let exceeded = (0..100).filter(|_| growing.is_exceeded(100 * SMALL)).count();
        assert!((1..20).contains(&exceeded), "large runs become usual");
    }
}
