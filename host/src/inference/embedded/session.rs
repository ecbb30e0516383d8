//! One session of the embedded engine.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tract_onnx::prelude::{InferenceModel, TValue, TVec, TractResult};
use tract_onnx::tract_hir::internal::IntoTValue as _;

use super::plan::{self, Shapes, State};
use super::values;
use crate::inference::engine::{RunFailure, Session};
use crate::inference::graph::ModelInfo;
use crate::inference::guard::{guard, shorten};
use crate::pipeline::{ElementType, Tensor};

/// Shapes whose plans, and whose times, are kept at once, the latest used last.
const PLANS: usize = 8;

pub(super) struct TractSession {
    /// the model as read, to make plans from
    model: InferenceModel,
    /// runs any shape; `None` when tract cannot plan this model without knowing the shapes
    symbolic: Option<State>,
    concrete: VecDeque<(Shapes, State)>,
    /// time spent running shapes on the plan for any shape, the latest last; `None` for shapes
    /// that no plan can be made for
    rented: VecDeque<(Shapes, Option<Duration>)>,
    /// what making a plan costs; `None` where one plan is all there is to make
    price: Option<Duration>,
    /// index among the model's inputs → index among tract's; `None` for one with a default, which
    /// tract has made a constant
    inputs: Vec<Option<usize>>,
    names: Vec<String>,
    outputs: Vec<Option<ElementType>>,
}

impl TractSession {
    pub(super) fn new(model: InferenceModel, info: &ModelInfo) -> TractResult<Self> {
        let start = Instant::now();
        let symbolic = plan::symbolic(model.clone());
        let price = start.elapsed();
        let fixed = plan::is_fixed(&model)?;
        let symbolic = if fixed { Some(symbolic?) } else { symbolic.ok() };
        let mut position = 0..;
        Ok(Self {
            symbolic,
            concrete: VecDeque::new(),
            rented: VecDeque::new(),
            price: (!fixed).then_some(price),
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
        let kept = self.concrete.iter().position(|(shapes, _)| are(shapes, inputs));
        let (shapes, mut state) = if let Some(kept) = kept.and_then(|at| self.concrete.remove(at)) {
            kept
        } else {
            let shapes = shapes(inputs);
            let state = plan::concrete(self.model.clone(), &shapes)?;
            (shapes, state)
        };
        let outputs = state.run(values);
        if outputs.is_err() {
            // It may hold half a run; the plan itself is kept, so that bad values cost no replanning.
            state = state.plan().clone().spawn()?;
        }
        keep(&mut self.concrete, (shapes, state));
        outputs
    }

    /// Whether these shapes have a plan of their own. One is made as soon as running them on the
    /// plan for any shape, which can be half as fast, has taken as long as making one takes: so
    /// neither shapes that come once nor shapes that come always cost more than twice the least.
    fn has_plan(&mut self, inputs: &[(usize, &Tensor)]) -> bool {
        if self.concrete.iter().any(|(shapes, _)| are(shapes, inputs)) {
            return true;
        }
        let Some((shapes, spent)) = self.rented.iter_mut().find(|(shapes, _)| are(shapes, inputs)) else {
            return false;
        };
        if spent.is_none_or(|spent| self.price.is_none_or(|price| spent < price)) {
            return false;
        }
        let model = self.model.clone();
        if let Ok(Ok(state)) = guard(|| plan::concrete(model, shapes)) {
            // Should this plan have to go for others, it must earn its place again.
            *spent = Some(Duration::ZERO);
            keep(&mut self.concrete, (shapes.clone(), state));
            return true;
        }
        *spent = None;
        false
    }

    /// Notes that these shapes ran on the plan for any shape.
    fn rent(&mut self, inputs: &[(usize, &Tensor)], time: Duration) {
        match self.rented.iter_mut().find(|(shapes, _)| are(shapes, inputs)) {
            Some((_, spent)) => *spent = spent.map(|spent| spent + time),
            None => keep(&mut self.rented, (shapes(inputs), Some(time))),
        }
    }

    fn run_values(&mut self, inputs: &[(usize, &Tensor)], values: TVec<TValue>) -> TractResult<TVec<TValue>> {
        if self.price.is_some() && self.has_plan(inputs) {
            return self.run_concrete(inputs, values);
        }
        let Some(state) = &mut self.symbolic else { return self.run_concrete(inputs, values) };
        let start = Instant::now();
        let plan = state.plan().clone();
        let outcome = guard(|| state.run(values.clone()));
        if let Ok(Ok(outputs)) = outcome {
            if self.price.is_some() {
                self.rent(inputs, start.elapsed());
            }
            return Ok(outputs);
        }
        // The state may hold half a run. Some operators fail only with open shapes: then a plan
        // for these shapes works, and every later run goes that way.
        self.symbolic = Some(plan.spawn()?);
        if self.price.is_none() {
            return outcome.map_err(anyhow_panic)?;
        }
        let outputs = self.run_concrete(inputs, values)?;
        self.symbolic = None;
        Ok(outputs)
    }
}

fn shapes(inputs: &[(usize, &Tensor)]) -> Shapes {
    inputs.iter().map(|(_, tensor)| tensor.shape().to_vec()).collect()
}

fn are(shapes: &Shapes, inputs: &[(usize, &Tensor)]) -> bool {
    inputs.iter().map(|(_, tensor)| tensor.shape()).eq(shapes.iter())
}

/// Appends, and lets the oldest go where that makes too many.
fn keep<T>(items: &mut VecDeque<T>, item: T) {
    if items.len() == PLANS {
        items.pop_front();
    }
    items.push_back(item);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::inference::embedded::read;
    use crate::inference::testing::model;

    #[test]
    fn shapes_that_come_often_get_a_plan_of_their_own() {
        let file = model("conv");
        let mut session = TractSession::new(read(&file).unwrap(), file.info()).unwrap();
        let images = |count: usize| Tensor::new([count, 1, 8, 8], vec![0.5_f32; count * 64]).unwrap();
        let run = |session: &mut TractSession, count| session.run(&[(0, &images(count))], None).unwrap().remove(0);
        session.price = Some(Duration::MAX);
        let open = run(&mut session, 2);
        assert!(session.concrete.is_empty(), "one run is not worth a plan");
        session.price = Some(Duration::ZERO);
        let fixed = run(&mut session, 2);
        assert_eq!(session.concrete.len(), 1);
        let pairs = open.as_slice::<f32>().unwrap().iter().zip(fixed.as_slice::<f32>().unwrap());
        assert!(pairs.clone().count() == 6 && pairs.clone().all(|(open, fixed)| (open - fixed).abs() < 1e-5));
        for count in (1..=PLANS + 3).flat_map(|count| [count, count]) {
            assert_eq!(run(&mut session, count).shape(), [count, 3]);
        }
        assert_eq!(session.concrete.len(), PLANS, "more shapes than are kept");
    }
}
