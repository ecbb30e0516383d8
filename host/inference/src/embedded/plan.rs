//! A model made ready to run: for any size of its open dimensions, or for one set of shapes.

use tract_onnx::prelude::{
    InferenceFact, InferenceModel, IntoRunnable as _, SymbolScope, TDim, TVec, TractResult, TypedModel,
    TypedSimpleState,
};
use tract_onnx::tract_hir::infer::Factoid as _;
use tract_onnx::tract_hir::internal::anyhow;

use super::operator_fixes;
use super::windows::WindowChecks;

/// A model ready to run, with the state of its operators.
pub(super) type State = TypedSimpleState;

/// A plan for every size of the open dimensions.
pub(super) struct SymbolicPlan {
    pub(super) state: State,
    /// to be checked before each run
    pub(super) windows: WindowChecks,
}

/// The shapes of all inputs.
pub(super) type ConcreteShapes = Vec<Vec<usize>>;

/// Whether every dimension of every input is known from the model alone.
pub(super) fn is_fixed(model: &InferenceModel) -> TractResult<bool> {
    for index in 0..model.input_outlets()?.len() {
        if model.input_fact(index)?.shape.as_concrete_finite()?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Plans a model for every size of its open dimensions.
pub(super) fn symbolic(mut model: InferenceModel) -> TractResult<SymbolicPlan> {
    for index in 0..model.input_outlets()?.len() {
        let fact = model.input_fact(index)?.clone();
        if fact.shape.is_open() {
            return Err(anyhow!("the rank of input {index} is open"));
        }
        let dims = fact.shape.dims().map(|dim| dim.concretize().unwrap_or_else(|| fresh(&model.symbols)));
        let dims: TVec<TDim> = dims.collect();
        model.set_input_fact(index, fact.with_shape(dims))?;
    }
    let (model, windows) = operator_fixes::declutter(model)?;
    Ok(SymbolicPlan { state: ready(model)?, windows })
}

/// A plan for these shapes only.
pub(super) fn concrete(mut model: InferenceModel, shapes: &ConcreteShapes) -> TractResult<State> {
    for (index, shape) in shapes.iter().enumerate() {
        let fact: InferenceFact = model.input_fact(index)?.clone();
        model.set_input_fact(index, fact.with_shape(shape.as_slice()))?;
    }
    // The output shapes in the file may name dimensions that are now numbers.
    for index in 0..model.output_outlets()?.len() {
        let fact = InferenceFact::default();
        model.set_output_fact(index, fact)?;
    }
    let (model, windows) = operator_fixes::declutter(model)?;
    // Every size is a number.
    windows.check(std::iter::empty())?;
    ready(model)
}

fn fresh(symbols: &SymbolScope) -> TDim {
    TDim::from(symbols.new_with_prefix("open"))
}

fn ready(mut model: TypedModel) -> TractResult<State> {
    model.optimize()?;
    model.into_runnable()?.spawn()
}
