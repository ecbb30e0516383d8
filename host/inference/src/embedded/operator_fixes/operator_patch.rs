//! Wraps operators of tract: corrects their inputs before, or their results afterwards.

use tract_onnx::tract_core::ops::array::{GatherNd, MultiBroadcastTo};
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::math::{Div, Max, Min, Mul, Pow, Sqrt, Tanh};
use tract_onnx::tract_core::ops::nn::gelu_approximate::GeluApproximate;
use tract_onnx::tract_core::ops::nn::silu::Silu;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer, Sigmoid};
use tract_onnx::tract_core::tract_data::half::f16;
#[allow(clippy::wildcard_imports, reason = "tract's macros name what this brings")]
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::tract_ndarray::{ArrayD, ArrayViewD, Axis};
use tract_onnx::tract_hir::tract_num_traits::{Float, WrappingAdd, Zero};

/// The fault of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OperatorPatch {
    /// it loses NaN
    Nan,
    /// it loses NaN, and does not come closer to its limit than a millionth
    Tails(Tail),
    /// its maximum (else minimum) begins with the least finite number, which is more than -infinity, and loses NaN
    Extreme { axes: TVec<usize>, greatest: bool },
    /// it adds whole numbers as `i32`
    Sum { axes: TVec<usize> },
    /// it takes no indices that count from the end
    Indices { batch: usize },
    /// where all numbers are 0, the scale is to be 1
    Scale,
    /// tract's simplification of it gives other results
    Simplified,
}

/// A sigmoid-like function, or one that is composed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tail {
    Sigmoid,
    Tanh,
    /// x sigmoid(x)
    Silu,
    /// x (1 + tanh(…)) / 2
    Gelu,
}

impl OperatorPatch {
    /// The defect of `node`, if it has one. Some are fixed after tract's simplifications, which match known operators.
    pub(super) fn for_operator(model: &TypedModel, node: &TypedNode, is_simplified: bool) -> Option<Self> {
        let op: &dyn TypedOp = node.op.as_ref();
        if op.name() == "DynamicQuantizeLinearU8" {
            return Some(Self::Scale);
        }
        if let Some(gather) = op.downcast_ref::<GatherNd>() {
            return Some(Self::Indices { batch: gather.batch_dims });
        }
        if !is_simplified {
            return loses_nan(model, node).then_some(Self::Simplified);
        }
        if let Some(reduce) = op.downcast_ref::<Reduce>() {
            let axes = reduce.axes.clone();
            return match reduce.reducer {
                Reducer::Max => Some(Self::Extreme { axes, greatest: true }),
                Reducer::Min => Some(Self::Extreme { axes, greatest: false }),
                Reducer::Sum => Some(Self::Sum { axes }),
                _ => None,
            };
        }
        let binary = op.downcast_ref::<TypedBinOp>().is_some_and(|op| op.0.is::<Max>() || op.0.is::<Min>());
        let unary = op.downcast_ref::<ElementWiseOp>().and_then(|op| match &op.0 {
            op if op.is::<Sigmoid>() => Some(Tail::Sigmoid),
            op if op.is::<Tanh>() => Some(Tail::Tanh),
            op if op.is::<Silu>() => Some(Tail::Silu),
            op if op.is::<GeluApproximate>() => Some(Tail::Gelu),
            _ => None,
        });
        if binary { Some(Self::Nan) } else { unary.map(Self::Tails) }
    }
}

/// Whether tract's simplifications lose NaN and infinities: of a product with 0 they make 0, of a power of 1/2 a root, of
/// the square of a root nothing.
#[expect(clippy::float_cmp, reason = "these numbers and no others")]
fn loses_nan(model: &TypedModel, node: &TypedNode) -> bool {
    let (Some(op), &[left, right]) = (node.op_as::<TypedBinOp>(), node.inputs.as_slice()) else { return false };
    let (is_mul, is_pow) = (op.0.is::<Mul>(), op.0.is::<Pow>());
    let all = |outlet, number: f32| uniform(model, outlet).is_some_and(|uniform| uniform == number);
    let is_root =
        |outlet: OutletId| model.node(outlet.node).op_as::<ElementWiseOp>().is_some_and(|op| op.0.is::<Sqrt>());
    is_mul && (all(left, 0.0) || all(right, 0.0) || left == right && is_root(left))
        || is_pow && (all(right, 0.5) || all(right, 2.0) && is_root(left))
        || op.0.is::<Div>() && uniform(model, right).is_some_and(f32::is_infinite)
}

/// The number that all elements of a value are known to be.
fn uniform(model: &TypedModel, mut outlet: OutletId) -> Option<f32> {
    loop {
        let fact = model.outlet_fact(outlet).ok()?;
        if let Some(uniform) = fact.uniform.as_ref().filter(|_| fact.datum_type.is_float()) {
            return uniform.cast_to_scalar::<f32>().ok();
        }
        let node = model.node(outlet.node);
        let keeps = node.op_is::<AxisOp>() || node.op_is::<MultiBroadcastTo>();
        outlet = node.inputs.first().copied().filter(|_| keeps)?;
    }
}

/// The operator and its defect.
#[derive(Clone, Debug)]
pub(super) struct PatchedOperator {
    op: Box<dyn TypedOp>,
    patch: OperatorPatch,
}

impl PartialEq for PatchedOperator {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for PatchedOperator {}

impl PatchedOperator {
    pub(super) fn new(op: Box<dyn TypedOp>, patch: OperatorPatch) -> Self {
        Self { op, patch }
    }
}

impl Op for PatchedOperator {
    fn name(&self) -> StaticName {
        self.op.name()
    }

    op_as_typed_op!();
}

impl EvalOp for PatchedOperator {
    op_out_of_plan!();

    fn eval(&self, context: &EvalContext, mut inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        if let OperatorPatch::Indices { batch } = self.patch {
            let indices = from_start(&inputs[1], inputs[0].shape(), batch)?;
            inputs[1] = indices.into_tvalue();
        }
        if let (OperatorPatch::Sum { axes } | OperatorPatch::Extreme { axes, .. }, true) =
            (&self.patch, inputs[0].shape().contains(&0))
        {
            return Ok(tvec!(of_nothing(&inputs[0], axes.as_slice())?.into_tvalue()));
        }
        let mut outputs = self.op.eval(context, inputs.clone())?;
        match (&self.patch, inputs[0].datum_type()) {
            (OperatorPatch::Scale, _) if outputs[1].cast_to_scalar::<f32>()? == 0.0 => {
                outputs[1] = tensor0(1_f32).into_tvalue();
            }
            (OperatorPatch::Sum { axes }, DatumType::I32) => outputs[0] = sum::<i32>(&inputs[0], axes)?.into_tvalue(),
            (OperatorPatch::Sum { axes }, DatumType::I64) => outputs[0] = sum::<i64>(&inputs[0], axes)?.into_tvalue(),
            (
                OperatorPatch::Scale
                | OperatorPatch::Indices { .. }
                | OperatorPatch::Sum { .. }
                | OperatorPatch::Simplified,
                _,
            ) => {}
            (patch, DatumType::F16) => patch_operators::<f16>(patch, &inputs, &mut outputs)?,
            (patch, DatumType::F32) => patch_operators::<f32>(patch, &inputs, &mut outputs)?,
            (patch, DatumType::F64) => patch_operators::<f64>(patch, &inputs, &mut outputs)?,
            _ => {}
        }
        Ok(outputs)
    }
}

impl TypedOp for PatchedOperator {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        self.op.output_facts(inputs)
    }

    as_op!();
}

/// Computes an output of floats once more where an input has what tract gets wrong.
fn patch_operators<T: Datum + Float>(
    patch: &OperatorPatch,
    inputs: &[TValue],
    outputs: &mut TVec<TValue>,
) -> TractResult<()> {
    let views = inputs.iter().map(|input| input.to_plain_array_view::<T>()).collect::<TractResult<TVec<_>>>()?;
    let far = far::<T>();
    let odd = |number: &T| match patch {
        OperatorPatch::Nan => number.is_nan(),
        OperatorPatch::Tails(_) => number.is_nan() || number.abs() > far,
        _ => number.is_nan() || number.is_infinite(),
    };
    if !views.iter().any(|view| view.iter().any(odd)) {
        return Ok(());
    }
    let mended = match patch {
        OperatorPatch::Extreme { axes, greatest } => extreme(&views[0], axes, *greatest),
        OperatorPatch::Tails(tail) => tails(&views[0], outputs[0].to_plain_array_view::<T>()?.to_owned(), *tail),
        _ => with_nan(&views, outputs[0].to_plain_array_view::<T>()?.to_owned())?,
    };
    outputs[0] = mended.into_tensor().into_tvalue();
    Ok(())
}

/// A sum or an extreme of an empty tensor that is empty itself.
fn of_nothing(input: &Tensor, axes: &[usize]) -> TractResult<Tensor> {
    ensure!(axes.iter().all(|axis| input.shape()[*axis] != 0), "it takes no empty axis");
    let mut sizes: TVec<usize> = input.shape().into();
    for axis in axes {
        sizes[*axis] = 1;
    }
    Tensor::zero_dt(input.datum_type(), &sizes)
}

fn extreme<T: Datum + Float>(input: &ArrayViewD<'_, T>, axes: &[usize], greatest: bool) -> ArrayD<T> {
    let better = |a: T, b: T| if a.is_nan() || (if greatest { a > b } else { a < b }) { a } else { b };
    let first = if greatest { T::neg_infinity() } else { T::infinity() };
    let mut left = input.to_owned();
    for axis in axes.iter().map(|axis| Axis(*axis)) {
        left = left.map_axis(axis, |lane| lane.iter().copied().fold(first, better)).insert_axis(axis);
    }
    left
}

fn sum<T: Datum + WrappingAdd + Zero + Copy>(input: &Tensor, axes: &[usize]) -> TractResult<Tensor> {
    let mut left = input.to_plain_array_view::<T>()?.to_owned();
    for axis in axes.iter().map(|axis| Axis(*axis)) {
        left = left.map_axis(axis, |lane| lane.iter().fold(T::zero(), |a, b| a.wrapping_add(b))).insert_axis(axis);
    }
    Ok(left.into_tensor())
}

/// Where S-shaped functions have come to their limits, as far as float32 tells.
fn far<T: Float>() -> T {
    T::from(16.0).unwrap_or_else(T::max_value)
}

fn tails<T: Datum + Float>(input: &ArrayViewD<'_, T>, mut output: ArrayD<T>, tail: Tail) -> ArrayD<T> {
    output.zip_mut_with(input, |output, &x| {
        if x.is_nan() {
            *output = x;
        } else if x.abs() > far() {
            let is_above = x > T::zero();
            *output = match tail {
                Tail::Sigmoid if is_above => T::one(),
                Tail::Sigmoid => x.exp(),
                Tail::Tanh => x.signum(),
                Tail::Silu | Tail::Gelu if is_above => x,
                Tail::Silu => x * x.exp(),
                Tail::Gelu => x * T::zero(),
            };
        }
    });
    output
}

/// NaN wherever an input is.
fn with_nan<T: Datum + Float>(inputs: &[ArrayViewD<'_, T>], mut output: ArrayD<T>) -> TractResult<ArrayD<T>> {
    for input in inputs {
        let whole = input.broadcast(output.shape()).context("inputs that do not fit the output")?.to_owned();
        output.zip_mut_with(&whole, |output, input| {
            if input.is_nan() {
                *output = *input;
            }
        });
    }
    Ok(output)
}

/// Indices into the axes of `shape` after the first `batch`, all counted from the start.
fn from_start(indices: &Tensor, shape: &[usize], batch: usize) -> TractResult<Tensor> {
    let mut indices = indices.cast_to::<i64>()?.into_owned();
    let depth = indices.shape().last().copied().unwrap_or(1).max(1);
    for (at, index) in indices.try_as_plain_ram_mut()?.as_slice_mut::<i64>()?.iter_mut().enumerate() {
        let size = *shape.get(batch + at % depth).context("more indices than axes")? as i64;
        if *index < 0 {
            *index += size;
        }
        ensure!((0..size).contains(index), "index {index} is not below {size}");
    }
    Ok(indices)
}
