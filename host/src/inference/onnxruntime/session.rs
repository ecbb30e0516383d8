//! One session of ONNX Runtime.

use std::borrow::Cow;
use std::time::Instant;

use ort::session::{Session as Native, SessionInputValue, SessionInputs};
use smallvec::SmallVec;

use crate::guard::shorten;
use crate::inference::engine::{RunFailure, Session};
use crate::inference::model_file::ModelFile;
use crate::pipeline::Tensor;

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
}

impl OrtSession {
    pub(super) fn new(native: Native, file: &ModelFile) -> Result<Self, String> {
        let info = file.info();
        let names: Vec<_> = info.inputs.iter().map(|input| input.name.clone()).collect();
        let same = |(native, ours): (&ort::value::Outlet, &String)| native.name() == ours;
        let positional = if native.inputs().iter().zip(&names).all(same) { native.inputs().len() } else { 0 };
        // What the graph says and what the library sees must be the same ports.
        let ours = info.outputs.iter().map(|output| output.name.as_str());
        if !native.outputs().iter().map(ort::value::Outlet::name).eq(ours) {
            return Err("its outputs are not those that the file declares".to_owned());
        }
        Ok(Self { native, names, positional, watch: None })
    }
}

impl Session for OrtSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)], deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let failed = |error: ort::Error| RunFailure::Failed(shorten(error.message()));
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
        let outputs = match deadline {
            None => self.native.run(inputs),
            Some(deadline) => {
                let watch = match &self.watch {
                    Some(watch) => watch,
                    None => self.watch.insert(Watch::new().map_err(RunFailure::Failed)?),
                };
                watch.begin(deadline);
                let outputs = self.native.run_with_options(inputs, watch.options());
                watch.end().map_err(|Late| RunFailure::Timeout)?;
                outputs
            }
        };
        let outputs = outputs.map_err(failed)?;
        outputs.iter().map(|(name, value)| values::copy(name, &value).map_err(RunFailure::Failed)).collect()
    }
}
