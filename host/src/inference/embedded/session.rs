//! One session of the embedded engine.

use std::collections::VecDeque;
use std::time::Instant;

use tract_onnx::prelude::{InferenceModel, TValue, TVec, TractResult};
use tract_onnx::tract_hir::internal::IntoTValue as _;

use super::plan::{self, Shapes, State};
use super::values;
use crate::inference::engine::{RunFailure, Session};
use crate::inference::graph::ModelInfo;
use crate::inference::guard::{guard, shorten};
use crate::pipeline::{ElementType, Tensor};

/// Plans for fixed shapes that are kept at once, the latest used last.
const PLANS: usize = 8;

pub(super) struct TractSession {
    /// the model as read, to make plans from
    model: InferenceModel,
    /// runs any shape; `None` when tract cannot plan this model without knowing the shapes
    symbolic: Option<State>,
    concrete: VecDeque<(Shapes, State)>,
    /// index among the model's inputs → index among tract's; `None` for one with a default, which
    /// tract has made a constant
    inputs: Vec<Option<usize>>,
    names: Vec<String>,
    outputs: Vec<Option<ElementType>>,
}

impl TractSession {
    pub(super) fn new(model: InferenceModel, info: &ModelInfo) -> TractResult<Self> {
        let symbolic = plan::symbolic(model.clone());
        let symbolic = if plan::is_fixed(&model)? { Some(symbolic?) } else { symbolic.ok() };
        let mut position = 0..;
        Ok(Self {
            symbolic,
            concrete: VecDeque::new(),
            inputs: info.inputs.iter().map(|input| if input.required { position.next() } else { None }).collect(),
            names: info.inputs.iter().map(|input| input.name.clone()).collect(),
            outputs: info.outputs.iter().map(|output| output.tensor.as_ref()?.element()).collect(),
            model,
        })
    }

    fn native(&self, inputs: &[(usize, &Tensor)]) -> Result<TVec<TValue>, RunFailure> {
        let missing = |feature: String| RunFailure::NeedsOnnxRuntime { feature };
        let mut values = TVec::new();
        for (index, tensor) in inputs {
            if self.inputs[*index].is_none() {
                return Err(missing(format!("way to replace the default of input `{}`", self.names[*index])));
            }
            let native = values::to_native(tensor).ok_or_else(|| missing(format!("{} tensors", tensor.element())))?;
            values.push(native.map_err(|error| failed(&error))?.into_tvalue());
        }
        Ok(values)
    }

    fn collect(&self, values: &[TValue]) -> TractResult<Vec<Tensor>> {
        values.iter().zip(&self.outputs).map(|(value, declared)| values::from_native(value, *declared)).collect()
    }

    /// Runs on a plan for just these shapes, made now if it is not among the kept ones.
    fn run_concrete(&mut self, inputs: &[(usize, &Tensor)], values: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let same = |shapes: &Shapes| inputs.iter().map(|(_, tensor)| tensor.shape()).eq(shapes.iter());
        let kept = self.concrete.iter().position(|(shapes, _)| same(shapes));
        let (shapes, mut state) = if let Some(kept) = kept.and_then(|at| self.concrete.remove(at)) {
            kept
        } else {
            let shapes: Shapes = inputs.iter().map(|(_, tensor)| tensor.shape().to_vec()).collect();
            let state = plan::concrete(self.model.clone(), &shapes)?;
            (shapes, state)
        };
        let outputs = state.run(values);
        if outputs.is_err() {
            // It may hold half a run; the plan itself is kept, so that bad values cost no replanning.
            state = state.plan().clone().spawn()?;
        }
        if self.concrete.len() == PLANS {
            self.concrete.pop_front();
        }
        self.concrete.push_back((shapes, state));
        outputs
    }

    fn run_values(&mut self, inputs: &[(usize, &Tensor)], values: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let Some(state) = &mut self.symbolic else { return self.run_concrete(inputs, values) };
        let plan = state.plan().clone();
        let outcome = guard(|| state.run(values.clone()));
        if let Ok(Ok(outputs)) = outcome {
            return Ok(outputs);
        }
        // The state may hold half a run. Some operators fail only with open shapes: then a plan
        // for these shapes works, and every later run goes that way.
        self.symbolic = Some(plan.spawn()?);
        if plan::is_fixed(&self.model)? {
            return outcome.map_err(anyhow_panic)?;
        }
        let outputs = self.run_concrete(inputs, values)?;
        self.symbolic = None;
        Ok(outputs)
    }
}

fn anyhow_panic(panic: String) -> tract_onnx::prelude::TractError {
    tract_onnx::tract_hir::internal::anyhow!("it failed within ({panic})")
}

fn failed(error: &tract_onnx::prelude::TractError) -> RunFailure {
    RunFailure::Failed(shorten(&format!("{error:#}")))
}

impl Session for TractSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let values = self.native(inputs)?;
        let outputs = self.run_values(inputs, values).map_err(|error| failed(&error))?;
        self.collect(&outputs).map_err(|error| failed(&error))
    }
}
