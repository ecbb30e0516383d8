//! One session of the embedded engine.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Instant;

use tract_onnx::prelude::{DatumType, InferenceModel, TValue, TVec, TractError, TractResult};
use tract_onnx::tract_hir::internal::IntoTValue as _;

use super::plan::{self, ConcreteShapes, State, SymbolicPlan};
use super::windows::UnfitWindow;
use super::{Nodes, ParsedModel, load_error, values};
use crate::engine::{RunFailure, Session};
use crate::graph::ModelInfo;
use gpux_core::catch_panic::{catch_panic, shorten};
use gpux_core::{ElementType, Tensor};

/// The most shapes whose plans and run counts are kept, least recently used first.
const PLANS: usize = 8;

/// Runs of a shape on the plan for any shape before it gets a plan of its own. A count and not a
/// time: the two plans may differ in a result's last bits, and a response must not depend
/// on how busy the machine is. Making a plan costs about as much as this many runs of a small model.
const RUNS_BEFORE_A_PLAN: u32 = 32;

pub(super) struct TractSession {
    /// the model as read, to make plans from
    model: InferenceModel,
    /// runs any shape; `None` when tract cannot plan this model without knowing the shapes
    symbolic: Option<SymbolicPlan>,
    concrete: VecDeque<(ConcreteShapes, State)>,
    /// runs of shapes on the plan for any shape, the latest last; `None` for shapes that no plan
    /// can be made for
    run_counts: VecDeque<(ConcreteShapes, Option<u32>)>,
    /// whether the model takes more than one shape
    open: bool,
    /// index among the model's inputs → index among tract's; `None` for one with a default, which
    /// tract has made a constant
    inputs: Vec<Option<usize>>,
    names: Vec<String>,
    outputs: Vec<Option<ElementType>>,
    /// for errors: the operators of the model and of its nodes
    operators: BTreeMap<String, usize>,
    nodes: Nodes,
}

/// Marks an error of planning: the engine has no way to run these shapes.
#[derive(Debug)]
struct Unplannable;

impl fmt::Display for Unplannable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it cannot be planned")
    }
}

impl TractSession {
    pub(super) fn new(parsed: ParsedModel, info: &ModelInfo) -> TractResult<Self> {
        let ParsedModel { model, any_shape, nodes } = parsed;
        let fixed = plan::is_fixed(&model)?;
        // Some operators need shapes that are known, and some of tract's say so by a panic.
        let symbolic = match catch_panic(|| plan::symbolic(model.clone())) {
            Ok(planned) if fixed => Some(planned?),
            Err(panic) if fixed => return Err(anyhow_panic(panic)),
            planned => planned.ok().and_then(Result::ok).filter(|_| any_shape),
        };
        let mut position = 0..;
        Ok(Self {
            symbolic,
            concrete: VecDeque::new(),
            run_counts: VecDeque::new(),
            open: !fixed,
            inputs: info.inputs.iter().map(|input| if input.required { position.next() } else { None }).collect(),
            names: info.inputs.iter().map(|input| input.name.clone()).collect(),
            outputs: info.outputs.iter().map(|output| output.value.as_ref()?.plain()?.element()).collect(),
            operators: info.operators.clone(),
            nodes,
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
            values.push(native.map_err(|error| self.failure(&error))?.into_tvalue());
        }
        Ok(values)
    }

    /// What the engine has no way to do is ONNX Runtime's. The rest may lie with the values.
    fn failure(&self, error: &TractError) -> RunFailure {
        match error.downcast_ref::<UnfitWindow>() {
            Some(unfit) if unfit.is_pool => RunFailure::NeedsOnnxRuntime { feature: unfit.to_string() },
            Some(unfit) => RunFailure::Failed(unfit.to_string()),
            None if error.is::<Unplannable>() => {
                RunFailure::BeyondEmbedded { reason: load_error::reason(error, &self.operators, &self.nodes) }
            }
            None => RunFailure::Failed(shorten(&format!("{error:#}"))),
        }
    }

    fn collect(&self, values: &[TValue]) -> TractResult<Vec<Tensor>> {
        values.iter().zip(&self.outputs).map(|(value, declared)| values::from_native(value, *declared)).collect()
    }

    /// Runs on a plan for just these shapes, made now if it is not among the kept ones.
    fn run_concrete(&mut self, inputs: &[(usize, &Tensor)], values: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let kept = self.concrete.iter().position(|(shapes, _)| are(shapes, inputs));
        let (shapes, mut state) = if let Some(kept) = kept.and_then(|at| self.concrete.remove(at)) {
            kept
        } else {
            let shapes = shapes(inputs);
            let state = catch_panic(|| plan::concrete(self.model.clone(), &shapes)).map_err(anyhow_panic).flatten();
            (shapes, state.map_err(|error| error.context(Unplannable))?)
        };
        // A panic takes the state with it.
        let outputs = catch_panic(|| state.run(values)).map_err(anyhow_panic)?;
        if outputs.is_err() {
            // It may hold half a run; the plan itself is kept, so that bad values cost no replanning.
            state = state.plan().clone().spawn()?;
        }
        keep(&mut self.concrete, (shapes, state));
        outputs
    }

    /// Whether these shapes have a plan of their own. One is made for shapes that keep coming: the
    /// plan for any shape can be half as fast.
    fn has_plan(&mut self, inputs: &[(usize, &Tensor)]) -> bool {
        if self.concrete.iter().any(|(shapes, _)| are(shapes, inputs)) {
            return true;
        }
        let Some((shapes, runs)) = self.run_counts.iter_mut().find(|(shapes, _)| are(shapes, inputs)) else {
            return false;
        };
        if runs.is_none_or(|runs| runs < RUNS_BEFORE_A_PLAN) {
            return false;
        }
        let model = self.model.clone();
        if let Ok(Ok(state)) = catch_panic(|| plan::concrete(model, shapes)) {
            // Should this plan have to go for others, it must earn its place again.
            *runs = Some(0);
            keep(&mut self.concrete, (shapes.clone(), state));
            return true;
        }
        *runs = None;
        false
    }

    /// Notes that these shapes ran on the plan for any shape.
    fn rent(&mut self, inputs: &[(usize, &Tensor)]) {
        match self.run_counts.iter_mut().find(|(shapes, _)| are(shapes, inputs)) {
            Some((_, runs)) => *runs = runs.map(|runs| runs.saturating_add(1)),
            None => keep(&mut self.run_counts, (shapes(inputs), Some(1))),
        }
    }

    fn run_values(&mut self, inputs: &[(usize, &Tensor)], values: TVec<TValue>) -> TractResult<TVec<TValue>> {
        if self.open && self.has_plan(inputs) {
            return self.run_concrete(inputs, values);
        }
        let Some(SymbolicPlan { state, windows }) = &mut self.symbolic else {
            return self.run_concrete(inputs, values);
        };
        windows.check(inputs.iter().map(|(_, tensor)| tensor.shape()))?;
        let plan = state.plan().clone();
        let outcome = catch_panic(|| concrete_sizes(state.run(values.clone())?));
        if let Ok(Ok(outputs)) = outcome {
            if self.open {
                self.rent(inputs);
            }
            return Ok(outputs);
        }
        // The state may hold half a run. Some operators fail only with open shapes: then a plan
        // for these shapes works, and every later run goes that way.
        *state = plan.spawn()?;
        if !self.open {
            return outcome.map_err(anyhow_panic)?;
        }
        let outputs = self.run_concrete(inputs, values)?;
        self.symbolic = None;
        Ok(outputs)
    }
}

/// tract's sizes as numbers. A plan for any shape can leave a symbol among them.
fn concrete_sizes(mut values: TVec<TValue>) -> TractResult<TVec<TValue>> {
    for value in values.iter_mut().filter(|value| value.datum_type() == DatumType::TDim) {
        *value = value.cast_to::<i64>()?.into_owned().into_tvalue();
    }
    Ok(values)
}

fn shapes(inputs: &[(usize, &Tensor)]) -> ConcreteShapes {
    inputs.iter().map(|(_, tensor)| tensor.shape().to_vec()).collect()
}

fn are(shapes: &ConcreteShapes, inputs: &[(usize, &Tensor)]) -> bool {
    inputs.iter().map(|(_, tensor)| tensor.shape()).eq(shapes.iter())
}

/// Appends, and lets the oldest go where that makes too many.
fn keep<T>(items: &mut VecDeque<T>, item: T) {
    if items.len() == PLANS {
        items.pop_front();
    }
    items.push_back(item);
}

fn anyhow_panic(panic: String) -> TractError {
    tract_onnx::tract_hir::internal::anyhow!("it failed within ({panic})")
}

impl Session for TractSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let values = self.native(inputs)?;
        let outputs = self.run_values(inputs, values).map_err(|error| self.failure(&error))?;
        self.collect(&outputs).map_err(|error| self.failure(&error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::embedded::read;
    use crate::testing::model;

    #[test]
    fn frequent_shapes_get_a_plan() {
        let file = model("conv");
        let mut session = TractSession::new(read(&file).unwrap(), file.info()).unwrap();
        let images = |count: usize| Tensor::new([count, 1, 8, 8], vec![0.5_f32; count * 64]).unwrap();
        let run = |session: &mut TractSession, count| session.run(&[(0, &images(count))], None).unwrap().remove(0);
        let open = run(&mut session, 2);
        for _ in 1..RUNS_BEFORE_A_PLAN {
            assert_eq!(run(&mut session, 2), open);
            assert!(session.concrete.is_empty(), "a plan was made too soon");
        }
        let fixed = run(&mut session, 2);
        assert_eq!(session.concrete.len(), 1);
        let pairs = open.as_slice::<f32>().unwrap().iter().zip(fixed.as_slice::<f32>().unwrap());
        assert!(pairs.clone().count() == 6 && pairs.clone().all(|(open, fixed)| (open - fixed).abs() < 1e-5));
        let often = RUNS_BEFORE_A_PLAN as usize + 1;
        for count in (1..=PLANS + 3).flat_map(|count| std::iter::repeat_n(count, often)) {
            assert_eq!(run(&mut session, count).shape(), [count, 3]);
        }
        assert_eq!(session.concrete.len(), PLANS, "more shapes than are kept");
    }
}
