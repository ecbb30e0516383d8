//! Replaces operators that tract computes wrongly.

mod operator_patch;

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::change_axes::wire_with_rank_broadcast;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::math::{abs, add, div, exp, ln, max, min, mul, neg, round_half_to_even, sub};
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};
use tract_onnx::tract_core::ops::scan::Scan;
#[allow(clippy::wildcard_imports, reason = "tract's macros name what this brings")]
use tract_onnx::tract_hir::internal::*;

use super::windows::WindowChecks;
use operator_patch::{OperatorPatch, PatchedOperator};

/// tract's parser of ONNX, with other builders for some operators.
pub(super) fn onnx() -> tract_onnx::Onnx {
    let mut onnx = tract_onnx::onnx();
    let builders = &mut onnx.op_register;
    builders.insert("LogSoftmax", |context, node| {
        // Before operator set 13, the axes from `axis` on count as one.
        let whole = context.onnx_operator_set_version < 13;
        let axis = node.get_attr_opt("axis")?.unwrap_or(if whole { 1 } else { -1 });
        Ok((expand(LogSoftmax { axis, whole }), vec![]))
    });
    builders.insert("Softplus", |_, _| Ok((expand(Softplus), vec![])));
    builders.insert("Celu", |_, node| Ok((expand(Celu { alpha: node.get_attr_opt("alpha")?.unwrap_or(1.0) }), vec![])));
    builders.insert("Clip", clip);
    builders.insert("QuantizeLinear", |_, node| {
        let axis = node.get_attr_opt("axis")?.unwrap_or(1);
        Ok((expand(QuantizeLinear { axis, has_zero_point: node.input.len() == 3 }), vec![]))
    });
    onnx
}

/// What tract calls operators that reduce axes.
const REDUCTIONS: [&str; 3] = ["Reduce", "LpNorm", "LogSoftmax"];

/// The model ready to be optimized further, and the windows that its inputs must hold.
pub(super) fn declutter(mut model: InferenceModel) -> TractResult<(TypedModel, WindowChecks)> {
    model.analyse(false)?;
    for node in model.nodes() {
        // Where sizes of 0 are known, tract computes the node while loading, before it can be replaced.
        let reduces = REDUCTIONS.iter().any(|name| node.op.name().starts_with(name));
        let input = node.inputs.first().filter(|_| reduces).map(|input| model.outlet_fact(*input)).transpose()?;
        if input.is_some_and(|fact| {
            fact.shape.dims().any(|size| size.concretize().is_some_and(|size| size == TDim::from(0)))
        }) {
            let place = format!("node #{} \"{}\" {}", node.id, node.name, node.op.name());
            return Err(anyhow!("it takes no empty tensor").context(place));
        }
    }
    let mut typed = model.into_typed()?;
    let windows = WindowChecks::collect(&typed)?;
    patch_operators(&mut typed, false);
    let mut simplified = typed.into_decluttered()?;
    patch_operators(&mut simplified, true);
    Ok((simplified, windows))
}

/// Replaces operators that give wrong results, in subgraphs as well.
fn patch_operators(model: &mut TypedModel, is_simplified: bool) {
    let patches: Vec<_> =
        model.nodes().iter().map(|node| OperatorPatch::for_operator(model, node, is_simplified)).collect();
    for (node, patch) in model.nodes_mut().iter_mut().zip(patches) {
        if let Some(patch) = patch {
            node.op = Box::new(PatchedOperator::new(node.op.clone(), patch));
        } else if let Some(branches) = node.op_as_mut::<IfThenElse>() {
            patch_operators(&mut branches.then_body, is_simplified);
            patch_operators(&mut branches.else_body, is_simplified);
        } else if let Some(scan) = node.op_as_mut::<Scan>() {
            patch_operators(&mut scan.body, is_simplified);
        }
    }
}

/// Of the same type and shape as its one input.
macro_rules! unary_rules {
    () => {
        fn rules<'r, 'p: 'r, 's: 'r>(
            &'s self,
            solver: &mut Solver<'r>,
            inputs: &'p [TensorProxy],
            outputs: &'p [TensorProxy],
        ) -> InferenceResult {
            check_input_arity(inputs, 1)?;
            check_output_arity(outputs, 1)?;
            solver.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
            solver.equals(&inputs[0].shape, &outputs[0].shape)
        }
    };
}

/// tract takes the logarithm of the softmax, which is 0 long before its logarithm is out of range.
#[derive(Clone, Debug)]
struct LogSoftmax {
    axis: i64,
    whole: bool,
}

impl Expansion for LogSoftmax {
    fn name(&self) -> StaticName {
        "LogSoftmax".into()
    }

    unary_rules!();

    fn wire(&self, name: &str, model: &mut TypedModel, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let rank = model.outlet_fact(inputs[0])?.rank();
        let axis = if self.axis < 0 { self.axis + rank as i64 } else { self.axis } as usize;
        ensure!(axis < rank || self.whole, "axis {axis} of {rank}");
        let axes: TVec<usize> = if self.whole { (axis..rank).collect() } else { tvec!(axis) };
        let greatest = Reduce::new(axes.clone(), Reducer::Max);
        let greatest = model.wire_node(format!("{name}.max"), greatest, inputs)?;
        let below = model.wire_node(format!("{name}.below"), sub(), &[inputs[0], greatest[0]])?;
        let powers = model.wire_node(format!("{name}.exp"), exp(), &below)?;
        let total = model.wire_node(format!("{name}.sum"), Reduce::new(axes, Reducer::Sum), &powers)?;
        let total = model.wire_node(format!("{name}.ln"), ln(), &total)?;
        model.wire_node(name, sub(), &[below[0], total[0]])
    }
}

/// ln(1 + e^x): tract's e^x is infinite long before the result is out of range.
#[derive(Clone, Debug)]
struct Softplus;

impl Expansion for Softplus {
    fn name(&self) -> StaticName {
        "Softplus".into()
    }

    unary_rules!();

    fn wire(&self, name: &str, model: &mut TypedModel, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let one = constant(model, &format!("{name}.one"), inputs[0], 1.0)?;
        let zero = constant(model, &format!("{name}.zero"), inputs[0], 0.0)?;
        let size = model.wire_node(format!("{name}.abs"), abs(), inputs)?;
        let size = model.wire_node(format!("{name}.neg"), neg(), &size)?;
        let power = model.wire_node(format!("{name}.exp"), exp(), &size)?;
        let more = wire_with_rank_broadcast(format!("{name}.plus"), model, add(), &[power[0], one])?;
        let rest = model.wire_node(format!("{name}.ln"), ln(), &more)?;
        let part = wire_with_rank_broadcast(format!("{name}.max"), model, max(), &[inputs[0], zero])?;
        model.wire_node(name, add(), &[part[0], rest[0]])
    }
}

/// max(0, x) + min(0, alpha * (e^(x / alpha) - 1)): tract leaves the factor out.
#[derive(Clone, Debug)]
struct Celu {
    alpha: f32,
}

impl Expansion for Celu {
    fn name(&self) -> StaticName {
        "Celu".into()
    }

    unary_rules!();

    fn wire(&self, name: &str, model: &mut TypedModel, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let one = constant(model, &format!("{name}.one"), inputs[0], 1.0)?;
        let zero = constant(model, &format!("{name}.zero"), inputs[0], 0.0)?;
        let alpha = constant(model, &format!("{name}.alpha"), inputs[0], self.alpha)?;
        let part = constant(model, &format!("{name}.part"), inputs[0], 1.0 / self.alpha)?;
        let scaled = wire_with_rank_broadcast(format!("{name}.scaled"), model, mul(), &[inputs[0], part])?;
        let power = model.wire_node(format!("{name}.exp"), exp(), &scaled)?;
        let less = wire_with_rank_broadcast(format!("{name}.less"), model, sub(), &[power[0], one])?;
        let times = wire_with_rank_broadcast(format!("{name}.times"), model, mul(), &[less[0], alpha])?;
        let below = wire_with_rank_broadcast(format!("{name}.min"), model, min(), &[times[0], zero])?;
        let above = wire_with_rank_broadcast(format!("{name}.max"), model, max(), &[inputs[0], zero])?;
        model.wire_node(name, add(), &[above[0], below[0]])
    }
}

fn clip(context: &ParsingContext, node: &NodeProto) -> TractResult<(Box<dyn InferenceOp>, Vec<String>)> {
    let clip = if context.onnx_operator_set_version < 11 {
        Clip { inputs: [None, None], bounds: [node.get_attr_opt("min")?, node.get_attr_opt("max")?] }
    } else {
        let mut given = optional_inputs(node).skip(1);
        Clip { inputs: [given.next().flatten(), given.next().flatten()], bounds: [None, None] }
    };
    Ok((expand(clip), vec![]))
}

/// Limits that are not given are the least and the greatest finite number: infinities become these.
#[derive(Clone, Debug)]
struct Clip {
    inputs: [Option<usize>; 2],
    bounds: [Option<f32>; 2],
}

impl Expansion for Clip {
    fn name(&self) -> StaticName {
        "Clip".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        solver: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_input_arity(inputs, 1 + self.inputs.iter().flatten().count())?;
        check_output_arity(outputs, 1)?;
        solver.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        solver.equals(&inputs[0].shape, &outputs[0].shape)
    }

    fn wire(&self, name: &str, model: &mut TypedModel, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let element = model.outlet_fact(inputs[0])?.datum_type;
        let mut wire = tvec!(inputs[0]);
        for (index, what) in ["min", "max"].into_iter().enumerate() {
            let bound = match (self.inputs[index], self.bounds[index]) {
                (Some(input), _) => model.wire_node(format!("{name}.{what}.cast"), cast(element), &[inputs[input]])?[0],
                (None, Some(bound)) => constant(model, &format!("{name}.{what}.bound"), inputs[0], bound)?,
                (None, None) => {
                    let [least, greatest] = match element {
                        DatumType::F16 => [tensor0(f16::MIN), tensor0(f16::MAX)],
                        DatumType::F32 => [tensor0(f32::MIN), tensor0(f32::MAX)],
                        DatumType::F64 => [tensor0(f64::MIN), tensor0(f64::MAX)],
                        _ => continue,
                    };
                    model.add_const(format!("{name}.{what}.bound"), if index == 0 { least } else { greatest })?
                }
            };
            let both = [wire[0], bound];
            wire = if index == 0 {
                wire_with_rank_broadcast(format!("{name}.{what}"), model, max(), &both)?
            } else {
                wire_with_rank_broadcast(format!("{name}.{what}"), model, min(), &both)?
            };
        }
        Ok(wire)
    }
}

/// saturate(round(x / scale) + zero point): tract multiplies by the reciprocal of the scale, which rounds some values to
/// another integer, and lets the sum overflow.
#[derive(Clone, Debug)]
struct QuantizeLinear {
    axis: i64,
    has_zero_point: bool,
}

impl Expansion for QuantizeLinear {
    fn name(&self) -> StaticName {
        "QuantizeLinear".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        solver: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_input_arity(inputs, 2 + usize::from(self.has_zero_point))?;
        check_output_arity(outputs, 1)?;
        solver.equals(&inputs[0].shape, &outputs[0].shape)?;
        if self.has_zero_point {
            return solver.equals(&outputs[0].datum_type, &inputs[2].datum_type);
        }
        solver.equals(&outputs[0].datum_type, DatumType::U8)
    }

    fn wire(&self, name: &str, model: &mut TypedModel, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let rank = model.outlet_fact(inputs[0])?.rank();
        let parameter = |model: &mut TypedModel, input: OutletId, what: &str| -> TractResult<(OutletId, DatumType)> {
            let given = model.outlet_fact(input)?.konst.clone().context("a parameter that is not constant")?;
            let mut shape: TVec<usize> = tvec![1; rank];
            if given.len() > 1 {
                let axis = if self.axis < 0 { self.axis + rank as i64 } else { self.axis };
                *shape.get_mut(axis as usize).context("an axis that its input does not have")? = given.len();
            }
            let floats = given.cast_to::<f32>()?.into_owned().into_shape(&shape)?;
            Ok((model.add_const(format!("{name}.{what}"), floats)?, given.datum_type()))
        };
        let (scale, _) = parameter(model, inputs[1], "scale")?;
        let zero_point = inputs.get(2).map(|input| parameter(model, *input, "zero_point")).transpose()?;
        let element = zero_point.map_or(DatumType::U8, |(_, element)| element);
        let bounds = match element {
            DatumType::I8 => [f32::from(i8::MIN), f32::from(i8::MAX)],
            _ => [f32::from(u8::MIN), f32::from(u8::MAX)],
        };
        let division = PatchedOperator::new(Box::new(div()), OperatorPatch::Simplified);
        let mut wire = model.wire_node(format!("{name}.div"), division, &[inputs[0], scale])?;
        wire = model.wire_node(format!("{name}.round"), round_half_to_even(), &wire)?;
        if let Some((zero_point, _)) = zero_point {
            wire = model.wire_node(format!("{name}.add"), add(), &[wire[0], zero_point])?;
        }
        let least = constant(model, &format!("{name}.least"), inputs[0], bounds[0])?;
        wire = wire_with_rank_broadcast(format!("{name}.max"), model, max(), &[wire[0], least])?;
        let greatest = constant(model, &format!("{name}.greatest"), inputs[0], bounds[1])?;
        wire = wire_with_rank_broadcast(format!("{name}.min"), model, min(), &[wire[0], greatest])?;
        model.wire_node(name, cast(element), &wire)
    }
}

/// A number of the element type of a value.
fn constant(model: &mut TypedModel, name: &str, like: OutletId, number: f32) -> TractResult<OutletId> {
    let element = model.outlet_fact(like)?.datum_type;
    model.add_const(name, tensor0(number).cast_to_dt(element)?.into_owned())
}
