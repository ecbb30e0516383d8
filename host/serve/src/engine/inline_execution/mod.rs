//! Inline execution: small requests of cheap pipelines run on the I/O thread, without a hop to a worker.
//!
//! A request that runs there blocks all connections of that thread. So the decision is made once, when a pipeline is
//! loaded. It requires that the cost of its steps and operators depends on input shapes alone, that a small body bounds
//! the shapes, and that the largest request in such a body takes less time than a hop.
//!
//! Nothing is known of the cost of an isolated pipeline: its process may be hostile. The I/O thread sends it small
//! requests while they take little time ([`ShortRequest`](super::scheduler::ShortRequest)), and goes on with others until
//! they are answered.

mod data_independent_cost;

use std::time::{Duration, Instant};

use gpux::Pipeline;
use gpux_core::{Dim, ElementType, Kind, Outputs, Plan, Request, RunOptions, SyntheticInputs, TensorKind};

/// The approximate cost of a hop to a worker and back. In tests, a limit that no machine exceeds.
const HOP_COST: Duration = if cfg!(test) { Duration::from_mins(1) } else { Duration::from_micros(50) };

/// The largest body of a request that runs inline, in bytes. Reading it takes a few microseconds.
pub(crate) const MAX_BODY: usize = 8 << 10;

/// The most bytes of outputs; writing them takes a few microseconds.
pub(crate) const MAX_OUTPUT: usize = 4 * MAX_BODY;

/// Runs of the largest request, one of which must be cheap: the first run of a shape is slower, and so are runs beside
/// other work on the machine.
const RUNS: usize = 10;

/// Whether requests with bodies of at most [`MAX_BODY`] bytes run on the I/O thread. Runs the pipeline.
pub(crate) fn is_cheap(pipeline: &Pipeline) -> bool {
    // Batched requests wait for each other. A thread reserves the session of one model only.
    let is_data_independent = !pipeline.is_batched()
        && data_independent_cost::runs_one_model_at_most(&pipeline.spec().pipeline)
        && pipeline.spec().pipeline.iter().all(data_independent_cost::is_step_data_independent)
        && pipeline.models().all(|(_, model)| data_independent_cost::is_model_data_independent(model));
    is_data_independent && largest_request(pipeline.plan()).is_some_and(|request| is_fast(pipeline.plan(), &request))
}

fn is_fast(plan: &Plan, request: &Request) -> bool {
    for run in 0..RUNS {
        let request = request.clone();
        let start = Instant::now();
        let outputs = plan.run(request, RunOptions::default());
        let duration = start.elapsed();
        if !outputs.is_ok_and(|outputs| is_small(&outputs)) || (run > 0 && duration > 10 * HOP_COST) {
            return false;
        }
        if duration < HOP_COST {
            return true;
        }
    }
    false
}

fn is_small(outputs: &Outputs) -> bool {
    outputs.iter().map(|(_, value)| value.byte_len()).sum::<usize>() <= MAX_OUTPUT
}

/// The largest request that a body of [`MAX_BODY`] bytes can hold. `None` if an input is optional or not a numeric
/// tensor, or if more than one dimension is dynamic: a body then does not bound the shapes.
fn largest_request(plan: &Plan) -> Option<Request> {
    let mut inputs = Vec::with_capacity(plan.inputs().len());
    for input in plan.inputs() {
        let Kind::Tensor(kind) = &input.port.kind else { return None };
        if !input.is_required() {
            return None;
        }
        inputs.push((kind, least_element_bytes(kind)?));
    }

    let dims = inputs.iter().flat_map(|(kind, _)| kind.shape.iter().flatten());
    let mut dynamic: Vec<_> = dims.filter(|dim| !matches!(dim, Dim::Fixed(_))).collect();
    let is_anonymous = dynamic.contains(&&Dim::Dynamic);
    let occurrences = dynamic.len();
    dynamic.dedup();
    if dynamic.len() > 1 || is_anonymous && occurrences > 1 {
        return None;
    }

    let fits = |size: &usize| {
        let maker = SyntheticInputs::zeros(*size, *size);
        let least_bytes = |(kind, element): &(&TensorKind, usize)| {
            maker.shape(kind).into_iter().fold(*element, usize::saturating_mul)
        };
        inputs.iter().map(least_bytes).reduce(usize::saturating_add).is_some_and(|bytes| bytes <= MAX_BODY)
    };
    let size = if dynamic.is_empty() { Some(0).filter(fits) } else { (1..=MAX_BODY).take_while(fits).last() }?;
    SyntheticInputs::zeros(size, size).request(plan.signature(), |_| None).ok()
}

/// The fewest bytes of an element in a body: a digit and a comma as text, or its raw size. `None` if a body does not
/// bound tensors of this kind.
fn least_element_bytes(kind: &TensorKind) -> Option<usize> {
    // A dimension of 0 leaves the other dimensions unbounded.
    let is_bounded = !kind.shape.as_ref()?.contains(&Dim::Fixed(0));
    let bytes = kind.elements.iter().map(ElementType::size).min()??;
    is_bounded.then_some(bytes.clamp(1, 2))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The shapes of the largest request of a pipeline with these inputs.
    fn largest(inputs: &[(&str, &str)]) -> Option<Vec<Vec<usize>>> {
        let folder = tempfile::tempdir().unwrap();
        let fields = inputs
            .iter()
            .enumerate()
            .map(|(index, (element, shape))| format!("  x{index}: {{ type: {element}, shape: {shape} }}\n"))
            .collect::<Vec<_>>()
            .concat();
        let step = "pipeline: [{ softmax: { in: x0, out: y } }]\noutputs: { y: float32 }\n";
        let text = format!("name: p\nversion: 1.0.0\ninputs:\n{fields}{step}");
        let path = folder.path().join("gpux.yml");
        std::fs::write(&path, text).unwrap();
        let pipeline = Pipeline::open(&path, &gpux::LoadOptions::default()).unwrap();
        let request = largest_request(pipeline.plan())?;
        Some(request.iter().map(|(_, value)| value.as_tensor().unwrap().shape().to_vec()).collect())
    }

    #[test]
    fn small_bodies_bound_one_dynamic_dimension() {
        for (inputs, shapes) in [
            (vec![("float32", "[2, 3]")], Some(vec![vec![2, 3]])),
            (vec![("float32", "[n, 16]")], Some(vec![vec![256, 16]])),
            (vec![("float32", "[n, n]")], Some(vec![vec![64, 64]])),
            (vec![("float32", "[n, 16]"), ("float32", "[n]")], Some(vec![vec![240, 16], vec![240]])),
            (vec![("float32", "[n, m]")], None),
            (vec![("float32", "[n]"), ("float32", "[m]")], None),
            (vec![("float32", "[64, 65]")], None),
        ] {
            assert_eq!(largest(&inputs), shapes, "{inputs:?}");
        }
    }
}
