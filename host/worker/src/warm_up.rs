//! Warm-up: runs a pipeline before its first request, which then finds its buffers, threads and pages allocated.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use gpux::GpuxError;
use gpux::Pipeline;
use gpux_core::{
    Dim, Kind, Outputs, PlanSignature, Request, RunError, RunOptions, Tensor, TensorKind, Value, deadline_after,
};
use gpux_inference::with_preferred_session;

/// Result of the warm-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WarmUpReport {
    /// the error of the synthetic request, if it failed
    pub failure: Option<String>,
}

/// The most runs after the first run of each session.
const RUNS: usize = 20;

/// Time limit of those runs.
const LIMIT: Duration = Duration::from_millis(10);

/// An image that every image decoder reads: 32 × 32, white.
const PICTURE: &[u8] = include_bytes!("warm_up.png");

/// Runs the requests of `serving.warmup`, or else a synthetic one. The configured ones must succeed. The synthetic one
/// may fail: the pipeline may need inputs that cannot be synthesized.
pub fn warm_up(pipeline: &Pipeline) -> Result<WarmUpReport, GpuxError> {
    let (plan, turns) = (pipeline.plan(), Cell::new(0));
    let sessions = pipeline.models().map(|(_, model)| model.sessions().instances()).max().unwrap_or(1);
    let run = |request: &Request| {
        let options = RunOptions { deadline: deadline_after(pipeline.timeout()), ..RunOptions::default() };
        // Each session gets its first run now.
        with_preferred_session(turns.replace(turns.get() + 1), || plan.run(request.clone(), options))
    };
    let configured = pipeline.warm_up();
    if !configured.is_empty() {
        let failed =
            |(index, error): (usize, RunError)| GpuxError::WarmUp { number: index + 1, error: Box::new(error.into()) };
        return run_repeatedly(configured, sessions, LIMIT, run).map(|()| WarmUpReport::default()).map_err(failed);
    }
    let Some(request) = synthetic_inputs(plan.signature()) else { return Ok(WarmUpReport::default()) };
    let failure = run_repeatedly(&[request], sessions, LIMIT, run).err();
    Ok(WarmUpReport { failure: failure.map(|(_, error)| error.to_string()) })
}

/// Runs all requests, and at least one per session, without a time limit; then repeats them within the limit. Fails
/// with the index of the request that failed.
fn run_repeatedly(
    requests: &[Request],
    sessions: usize,
    limit: Duration,
    run: impl Fn(&Request) -> Result<Outputs, RunError>,
) -> Result<(), (usize, RunError)> {
    let least = requests.len().max(sessions);
    let mut first_runs_ended = None;
    for (done, (index, request)) in requests.iter().enumerate().cycle().take(least + RUNS).enumerate() {
        if done >= least && first_runs_ended.get_or_insert_with(Instant::now).elapsed() >= limit {
            break;
        }
        run(request).map_err(|error| (index, error))?;
    }
    Ok(())
}

/// A request of zeros, a word, a white image.
pub fn synthetic_inputs(signature: &PlanSignature) -> Option<Request> {
    let needed = signature.inputs().iter().filter(|input| !input.port.optional && input.default.is_none());
    needed.map(|input| Some((input.port.name.clone(), value(&input.port.kind)?))).collect()
}

fn value(kind: &Kind) -> Option<Value> {
    Some(match kind {
        Kind::Text | Kind::Any => Value::from("warm"),
        Kind::Bytes => Value::from(PICTURE.to_vec()),
        Kind::Json => Value::from(serde_json::json!({})),
        Kind::Tensor(kind) => zeros(kind)?,
    })
}

fn zeros(kind: &TensorKind) -> Option<Value> {
    let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 1 };
    let shape: Vec<_> = kind.shape.as_ref()?.iter().map(size).collect();
    Tensor::zeros(kind.elements.iter().next()?, shape).ok().map(Value::from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn warms_up_every_session() {
        let runs = Cell::new(0);
        let run = |_: &Request| {
            runs.set(runs.get() + 1);
            Ok(Outputs::default())
        };
        for (requests, sessions, wanted) in [(1, 1, 1), (1, 3, 3), (4, 3, 4)] {
            runs.set(0);
            assert!(run_repeatedly(&vec![Request::default(); requests], sessions, Duration::ZERO, run).is_ok());
            assert_eq!(runs.get(), wanted);
        }
        runs.set(0);
        assert!(run_repeatedly(&[Request::default()], 1, Duration::MAX, run).is_ok());
        assert_eq!(runs.get(), 1 + RUNS, "there is time for more");
    }

    #[test]
    fn names_the_failing_warm_up_request() {
        let runs = Cell::new(0);
        let third_fails = |_: &Request| {
            runs.set(runs.get() + 1);
            let failed = || gpux_core::ValidationError::request("the second session has no memory");
            if runs.get() == 3 { Err(failed().into()) } else { Ok(Outputs::default()) }
        };
        let requests = vec![Request::default(); 2];
        let (index, _) = run_repeatedly(&requests, 4, Duration::ZERO, third_fails).unwrap_err();
        assert_eq!(index, 0, "the third run is the first request's second");
    }
}
