//! The first runs of a pipeline, before anybody waits for them: what is made on the first run
//! (buffers, threads, pages) is there when the first request comes.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::assemble::Pipeline;
use crate::error::GpuxError;
use crate::inference::in_turn;
use crate::pipeline::{
    Dim, Kind, Outputs, Plan, Request, RunError, RunOptions, Tensor, TensorKind, Value, deadline_after,
};

/// What warming up showed.
#[derive(Clone, Debug, Default)]
pub struct Warmth {
    /// why the made-up request failed
    pub failure: Option<String>,
}

/// Runs, at most, but for the first ones of more sessions.
const RUNS: usize = 20;

/// How long warming up may take beyond the first run of each session.
const LIMIT: Duration = Duration::from_millis(10);

/// A picture that every image decoder reads: 32 × 32, white.
const PICTURE: &[u8] = include_bytes!("warm_up.png");

/// Runs the requests of `serving.warmup`, or else a made-up one. The former must succeed. A pipeline
/// that refuses the latter is as good as any: it may want what cannot be made up.
pub(super) fn warm_up(pipeline: &Pipeline) -> Result<Warmth, GpuxError> {
    let (plan, turns) = (pipeline.plan(), Cell::new(0));
    let sessions = pipeline.models().map(|(_, model)| model.sessions().instances()).max().unwrap_or(1);
    let run = |request: &Request| {
        let options = RunOptions { deadline: deadline_after(pipeline.timeout()), ..RunOptions::default() };
        // Whichever session a request will get, its first run is behind it.
        in_turn(turns.replace(turns.get() + 1), || plan.run(request.clone(), options))
    };
    let configured = pipeline.warm_up();
    for (index, request) in configured.iter().enumerate() {
        run(request).map_err(|error| GpuxError::WarmUp { number: index + 1, error: Box::new(error.into()) })?;
    }
    if !configured.is_empty() {
        return Ok(Warmth { failure: again(configured, sessions.saturating_sub(configured.len()), run) });
    }
    let Some(request) = made_up(plan) else { return Ok(Warmth::default()) };
    Ok(match run(&request) {
        Ok(_) => Warmth { failure: again(&[request], sessions.saturating_sub(1), run) },
        Err(error) => Warmth { failure: Some(error.to_string()) },
    })
}

/// Runs the requests again and again, which have all succeeded once: so many times whatever it takes, and on
/// while there is time. Gives why one failed.
fn again(requests: &[Request], least: usize, run: impl Fn(&Request) -> Result<Outputs, RunError>) -> Option<String> {
    let start = Instant::now();
    for (done, request) in requests.iter().cycle().take(RUNS.max(least)).enumerate() {
        if done >= least && start.elapsed() >= LIMIT {
            break;
        }
        if let Err(error) = run(request) {
            return Some(error.to_string());
        }
    }
    None
}

/// A request of zeros, a word, a white picture.
pub(super) fn made_up(plan: &Plan) -> Option<Request> {
    let needed = plan.inputs().iter().filter(|input| !input.port.optional && input.default.is_none());
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
mod tests {
    use super::*;

    #[test]
    fn each_session_has_its_first_run_however_long_that_takes() {
        let runs = Cell::new(0);
        let slow = |_: &Request| {
            runs.set(runs.get() + 1);
            std::thread::sleep(LIMIT);
            Ok(Outputs::default())
        };
        assert_eq!(again(&[Request::default()], 3, slow), None);
        assert_eq!(runs.get(), 3);
        assert_eq!(again(&[Request::default()], 0, slow), None);
        assert_eq!(runs.get(), 4, "one more where all have run");
    }
}
