//! One session of ONNX Runtime.

use std::borrow::Cow;
use std::time::Instant;

use ort::session::{Session as Native, SessionInputValue, SessionInputs, SessionOutputs};
use smallvec::SmallVec;

use crate::guard::shorten;
use crate::inference::engine::{RunFailure, Session};
use crate::inference::model_file::ModelFile;
use crate::inference::value::OnnxValue;
use crate::pipeline::Tensor;

use super::kinds::Kinds;
use super::values;
use super::watch::{Late, Watch};

pub(super) struct OrtSession {
    native: Native,
    /// the names of all of the model's inputs, those with a default included
    names: Vec<String>,
    /// whether the first inputs, in order, are just those that must be given
    positional: usize,
    /// made for the first run under a deadline
    watch: Option<Watch>,
    /// for models that take or give other values than plain tensors
    kinds: Option<Kinds>,
}

impl OrtSession {
    pub(super) fn new(native: Native, file: &ModelFile, kinds: Option<Kinds>) -> Result<Self, String> {
        let info = file.info();
        let names: Vec<_> = info.inputs.iter().map(|input| input.name.clone()).collect();
        let same = |(native, ours): (&ort::value::Outlet, &String)| native.name() == ours;
        let positional = if native.inputs().iter().zip(&names).all(same) { native.inputs().len() } else { 0 };
        // What the graph says and what the library sees must be the same ports.
        let theirs = native.outputs().iter().map(ort::value::Outlet::name);
        let same = match &kinds {
            None => theirs.eq(info.outputs.iter().map(|output| output.name.as_str())),
            Some(kinds) => theirs.eq(kinds.native_outputs().iter().map(AsRef::as_ref)),
        };
        if !same {
            return Err("its outputs are not those that the file declares".to_owned());
        }
        Ok(Self { native, names, positional, watch: None, kinds })
    }
}

impl Session for OrtSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)], deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let in_order =
            inputs.len() == self.positional && inputs.iter().enumerate().all(|(at, (index, _))| at == *index);
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
        let outputs = timed(&mut self.native, &mut self.watch, inputs, deadline)?;
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
        let outputs = timed(&mut self.native, &mut self.watch, named, deadline)?;
        kinds.outputs(&outputs).map_err(RunFailure::Failed)
    }
}

/// One run, stopped when its deadline has passed.
fn timed<'s, 'i, 'v: 'i>(
    native: &'s mut Native,
    watch: &'s mut Option<Watch>,
    inputs: SessionInputs<'i, 'v>,
    deadline: Option<Instant>,
) -> Result<SessionOutputs<'s>, RunFailure> {
    let outputs = match deadline {
        None => native.run(inputs),
        Some(deadline) => {
            let watch = match watch {
                Some(watch) => watch,
                None => watch.insert(Watch::new().map_err(RunFailure::Failed)?),
            };
            watch.begin(deadline);
            let outputs = native.run_with_options(inputs, watch.options());
            watch.end().map_err(|Late| RunFailure::Timeout)?;
            outputs
        }
    };
    outputs.map_err(failed)
}

fn failed(error: ort::Error) -> RunFailure {
    RunFailure::Failed(shorten(error.message()))
}
