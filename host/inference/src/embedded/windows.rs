//! Checks that the windows of convolutions and pools fit into their inputs: where one does not, tract computes with a
//! number of windows below zero, or gives numbers that ONNX Runtime does not.

use tract_onnx::prelude::{Symbol, TDim, TVec, TractResult, TypedModel, TypedNode};
use tract_onnx::tract_core::ops::cnn::{Conv, MaxPool, PaddingSpec, PoolSpec, SumPool};
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::Scan;
use tract_onnx::tract_hir::internal::{SymbolValues, anyhow};

const CONV: &str = "Conv";

/// A window that is larger than its input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operator `{operator}`{node} on an input of {given}, where its window needs {needed}")]
pub(super) struct UnfitWindow {
    operator: &'static str,
    node: String,
    given: String,
    needed: String,
    /// whether ONNX Runtime may give a result: an empty one, or one from a part of a window
    pub(super) is_pool: bool,
}

/// The windows of a plan, and the axes of its inputs that their sizes depend on.
#[derive(Debug, Default)]
pub(super) struct WindowChecks {
    windows: Vec<Window>,
    /// a symbol, the input, and the axis that it is the size of
    symbols: Vec<(Symbol, usize, usize)>,
}

#[derive(Debug)]
struct Window {
    node: String,
    operator: &'static str,
    axes: TVec<Axis>,
}

#[derive(Debug)]
struct Axis {
    size: TDim,
    /// what the input is padded by
    pads: usize,
    /// the window with its dilation
    window: usize,
}

impl WindowChecks {
    /// Those of a model and its subgraphs. Fails for sizes that only a run can tell.
    pub(super) fn collect(model: &TypedModel) -> TractResult<Self> {
        let mut checks = Self::default();
        for (input, outlet) in model.input_outlets()?.iter().enumerate() {
            for (axis, size) in model.outlet_fact(*outlet)?.shape.iter().enumerate() {
                if let TDim::Sym(symbol) = size {
                    checks.symbols.push((symbol.clone(), input, axis));
                }
            }
        }
        checks.collect_windows(model)?;
        Ok(checks)
    }

    fn collect_windows(&mut self, model: &TypedModel) -> TractResult<()> {
        for node in model.nodes() {
            if let Some((operator, spec)) = pool_spec(node) {
                let shape = spec.data_format.shape(model.outlet_fact(node.inputs[0])?.shape.to_tvec())?;
                let axes: TVec<Axis> =
                    shape.hw_dims().iter().enumerate().map(|(axis, size)| Axis::new(spec, axis, size)).collect();
                let known = |symbol| self.symbols.iter().any(|(input, ..)| *input == symbol);
                if !axes.iter().flat_map(|axis| axis.size.symbols()).all(known) {
                    let place = format!("node #{} \"{}\" {}", node.id, node.name, node.op.name());
                    return Err(anyhow!("only a run tells the size of its input").context(place));
                }
                self.windows.push(Window { node: node.name.clone(), operator, axes });
            } else if let Some(branches) = node.op_as::<IfThenElse>() {
                self.collect_windows(&branches.then_body)?;
                self.collect_windows(&branches.else_body)?;
            } else if let Some(scan) = node.op_as::<Scan>() {
                self.collect_windows(&scan.body)?;
            }
        }
        Ok(())
    }

    /// Checks the windows with inputs of these shapes.
    pub(super) fn check<'a>(&self, shapes: impl Iterator<Item = &'a [usize]> + Clone) -> Result<(), UnfitWindow> {
        let mut values = SymbolValues::default();
        for (symbol, input, axis) in &self.symbols {
            if let Some(size) = shapes.clone().nth(*input).and_then(|shape| shape.get(*axis)) {
                values.set(symbol, *size as i64);
            }
        }
        self.windows.iter().try_for_each(|window| window.check(&values))
    }
}

/// ONNX's operator of a node, and its windows.
fn pool_spec(node: &TypedNode) -> Option<(&'static str, &PoolSpec)> {
    let conv = node.op_as::<Conv>().map(|conv| (CONV, &conv.pool_spec));
    let max = || node.op_as::<MaxPool>().map(|pool| ("MaxPool", &pool.pool_spec));
    let sum = || node.op_as::<SumPool>().map(|pool| ("AveragePool", &pool.pool_spec));
    conv.or_else(max).or_else(sum)
}

impl Axis {
    fn new(spec: &PoolSpec, axis: usize, size: &TDim) -> Self {
        let window = (spec.kernel_shape[axis].saturating_sub(1)).saturating_mul(spec.dilation(axis)).saturating_add(1);
        let (pads, window) = match &spec.padding {
            PaddingSpec::Explicit(before, after) | PaddingSpec::ExplicitOnnxPool(before, after, _) => {
                (before[axis].saturating_add(after[axis]), window)
            }
            PaddingSpec::Valid => (0, window),
            // As much is added as a window needs.
            PaddingSpec::SameUpper | PaddingSpec::SameLower => (0, 1),
        };
        Self { size: size.clone(), pads, window }
    }
}

impl Window {
    fn check(&self, values: &SymbolValues) -> Result<(), UnfitWindow> {
        let sizes: TVec<_> = self.axes.iter().map(|axis| axis.size.maybe_eval_to_i64(values).unwrap_or(0)).collect();
        let fits = |(axis, size): (&Axis, &i64)| {
            *size > 0 && size.saturating_add_unsigned(axis.pads as u64) >= axis.window as i64
        };
        if self.axes.iter().zip(&sizes).all(fits) {
            return Ok(());
        }
        let needed = self.axes.iter().map(|axis| axis.window.saturating_sub(axis.pads).max(1));
        Err(UnfitWindow {
            operator: self.operator,
            node: if self.node.is_empty() { String::new() } else { format!(" of node `{}`", self.node) },
            given: join_sizes(sizes.iter()),
            needed: join_sizes(needed),
            is_pool: self.operator != CONV,
        })
    }
}

fn join_sizes(sizes: impl Iterator<Item = impl ToString>) -> String {
    sizes.map(|size| size.to_string()).collect::<Vec<_>>().join(" × ")
}
