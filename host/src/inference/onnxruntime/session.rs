//! One session of ONNX Runtime.

use std::borrow::Cow;

use ort::session::{Session as Native, SessionInputValue, SessionInputs};
use smallvec::SmallVec;

use crate::inference::engine::{RunFailure, Session};
use crate::inference::guard::shorten;
use crate::inference::model_file::ModelFile;
use crate::pipeline::Tensor;

use super::values;

pub(super) struct OrtSession {
    native: Native,
    /// the names of all of the model's inputs, those with a default included
    names: Vec<String>,
    /// whether the first inputs, in order, are just those that must be given
    positional: usize,
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
        Ok(Self { native, names, positional })
    }
}

impl Session for OrtSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)]) -> Result<Vec<Tensor>, RunFailure> {
        let failed = |error: ort::Error| RunFailure::Failed(shorten(error.message()));
        let in_order =
            inputs.len() == self.positional && inputs.iter().enumerate().all(|(at, (index, _))| at == *index);
        let views = inputs.iter().map(|(_, tensor)| values::view(tensor));
        let outputs = if in_order {
            let views = views.collect::<Result<SmallVec<[SessionInputValue<'_>; 4]>, _>>().map_err(failed)?;
            self.native.run(SessionInputs::<0>::ValueSlice(&views)).map_err(failed)?
        } else {
            let names = inputs.iter().map(|(index, _)| Cow::Borrowed(self.names[*index].as_str()));
            let named = names.zip(views).map(|(name, view)| Ok((name, view?)));
            let named = named.collect::<ort::Result<Vec<_>>>().map_err(failed)?;
            self.native.run(SessionInputs::<0>::ValueMap(named)).map_err(failed)?
        };
        outputs.iter().map(|(name, value)| values::copy(name, &value).map_err(RunFailure::Failed)).collect()
    }
}
