//! Warm-up: runs a pipeline before its first request, which then finds its buffers, threads and pages allocated.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use gpux::GpuxError;
use gpux::Pipeline;
use gpux_core::{
    Dim, Kind, Outputs, Port, Request, RunError, RunOptions, StepFailure, SyntheticInputs, deadline_after, to_json,
};
use gpux_inference::with_preferred_session;

/// Result of the warm-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WarmUpReport {
    /// why the pipeline is not warm, if it is not
    pub failure: Option<String>,
    /// a request that shows what the pipeline takes, in the form of a JSON body
    #[serde(default)]
    pub sample: Option<Map<String, Json>>,
}

/// Reads the request of a golden case of a pipeline, if there is one.
pub type GoldenCase = fn(&Pipeline) -> Option<Request>;

/// The most runs after the first run of each session.
const RUNS: usize = 20;

/// The largest sample, in bytes of its values: several times as many in JSON.
const MAX_SAMPLE: usize = 128 << 10;

/// Time limit of those runs.
const LIMIT: Duration = Duration::from_millis(10);

/// The largest size of an open axis that is tried.
const MAX_SIZE: usize = 512;

/// Runs the requests of `serving.warmup`, which must succeed; without any, the golden case; without one that succeeds,
/// synthetic requests.
pub fn warm_up(pipeline: &Pipeline, golden_case: GoldenCase) -> Result<WarmUpReport, GpuxError> {
    let (plan, turns) = (pipeline.plan(), Cell::new(0));
    let sessions = pipeline.models().map(|(_, model)| model.sessions().instances()).max().unwrap_or(1);
    let run = |request: &Request| {
        let options = RunOptions { deadline: deadline_after(pipeline.timeout()), ..RunOptions::default() };
        // Each session gets its first run now.
        with_preferred_session(turns.replace(turns.get() + 1), || plan.run(request.clone(), options))
    };
    let run_all = |requests: &[Request]| run_repeatedly(requests, sessions, LIMIT, run);

    let case = golden_case(pipeline);
    let configured = pipeline.warm_up();
    let sample = case.as_ref().or(configured.first()).and_then(sample_of);
    if !configured.is_empty() {
        let failed =
            |(index, error): (usize, RunError)| GpuxError::WarmUp { number: index + 1, error: Box::new(error.into()) };
        return run_all(configured).map(|()| WarmUpReport { failure: None, sample }).map_err(failed);
    }
    if case.is_some_and(|request| run_all(&[request]).is_ok()) {
        return Ok(WarmUpReport { failure: None, sample });
    }
    let failure = run_synthetic(pipeline, |request| run_all(&[request]).map_err(|(_, error)| error)).err();
    Ok(WarmUpReport { failure, sample: None })
}

/// The request as JSON, unless it is large.
fn sample_of(request: &Request) -> Option<Map<String, Json>> {
    let size: usize = request.iter().map(|(_, value)| value.byte_len()).sum();
    (size <= MAX_SAMPLE).then(|| request.iter().map(|(name, value)| (name.clone(), to_json(value))).collect())
}

/// Runs synthetic requests of several sizes until one succeeds. Fails with the reason for the first.
fn run_synthetic(pipeline: &Pipeline, run: impl Fn(Request) -> Result<(), RunError>) -> Result<(), String> {
    let signature = pipeline.plan().signature();
    let has_open_axes = signature.inputs().iter().any(|input| has_open_axes(&input.port));
    let attempts = SyntheticInputs::attempts().filter(|inputs| inputs.open <= MAX_SIZE);
    let mut first_failure = None;
    for inputs in attempts.take(if has_open_axes { usize::MAX } else { 1 }) {
        let request = match inputs.request(signature, |port| pipeline.media_type(port)) {
            Ok(request) => request,
            Err(Port { name, kind, .. }) => {
                first_failure.get_or_insert_with(|| format!("no value can be made up for its input `{name}` ({kind})"));
                break;
            }
        };
        let Err(error) = run(request) else { return Ok(()) };
        first_failure.get_or_insert_with(|| format!("a request that was made up fails: {error}"));
        if !may_depend_on_sizes(&error) {
            break;
        }
    }
    first_failure.map_or(Ok(()), Err)
}

fn has_open_axes(port: &Port) -> bool {
    let Kind::Tensor(kind) = &port.kind else { return false };
    kind.shape.iter().flatten().any(|dim| !matches!(dim, Dim::Fixed(_)))
}

fn may_depend_on_sizes(error: &RunError) -> bool {
    match error {
        RunError::Validation(_) => true,
        RunError::Step(error) => matches!(error.failure, StepFailure::InvalidInput(_) | StepFailure::Failed(_)),
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux::LoadOptions;
    use gpux_core::Value;

    /// A pipeline with these lines in its gpux.yml.
    fn pipeline(lines: &str) -> Pipeline {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpux.yml");
        std::fs::write(&path, format!("name: p\nversion: 1.0.0\n{lines}\n")).unwrap();
        Pipeline::open(path.to_str().unwrap(), &LoadOptions::default()).unwrap()
    }

    fn failure(pipeline: &Pipeline, golden_case: GoldenCase) -> Option<String> {
        warm_up(pipeline, golden_case).unwrap().failure
    }

    #[test]
    fn synthesizes_requests_by_kind_and_media_type() {
        for lines in [
            "inputs: { x: image }\npipeline: [decode-image]",
            "inputs: { x: audio }\npipeline: [decode-audio]",
            "inputs: { x: bytes }\npipeline: [decode-audio]",
            "inputs: { x: bytes, y: bytes }\npipeline: [decode-image: { in: x, out: a }, decode-audio: { in: y, out: b }]",
            "inputs: { x: { type: float32, shape: [n, 3] } }\npipeline: [softmax]",
        ] {
            assert_eq!(failure(&pipeline(lines), |_| None), None, "{lines}");
        }
    }

    #[test]
    fn synthesizes_other_sizes_after_a_failure() {
        let inputs = "inputs: { x: { type: float32, shape: [n] }, y: { type: float32, shape: [k, n] } }";
        let pipeline =
            pipeline(&format!("{inputs}\npipeline: [softmax: {{ in: x, out: a }}, softmax: {{ in: y, out: b }}]"));
        let first = SyntheticInputs::default().request(pipeline.plan().signature(), |_| None).unwrap();
        assert!(pipeline.plan().run(first, RunOptions::default()).is_err(), "`n` has two sizes");
        assert_eq!(failure(&pipeline, |_| None), None);
    }

    #[test]
    fn golden_case_precedes_synthetic_requests() {
        fn case(pipeline: &Pipeline) -> Option<Request> {
            let photo = &pipeline.plan().inputs()[0].port;
            let photo = SyntheticInputs::default().value(&photo.kind, pipeline.media_type(photo));
            Some(vec![("photo".to_owned(), photo?), ("size".to_owned(), Value::from(serde_json::json!(1)))])
        }
        let pipeline = pipeline("inputs: { photo: image, size: json }\npipeline: [decode-image: { in: photo }]");
        let unknown = Some("no value can be made up for its input `size` (JSON)".to_owned());
        assert_eq!(failure(&pipeline, case), None);
        assert_eq!(failure(&pipeline, |_| Some(Request::new())), unknown);
        assert_eq!(failure(&pipeline, |_| None), unknown);
    }

    #[test]
    fn small_golden_cases_and_warm_up_requests_are_samples() {
        fn text(length: usize) -> Request {
            vec![("x".to_owned(), Value::from("a".repeat(length)))]
        }
        let lines = "inputs: { x: text }\npipeline: [json-template: { template: { x: \"{{x}}\" }, out: y }]";
        let sample = |lines: &str, case: GoldenCase| {
            let sample = warm_up(&pipeline(lines), case).unwrap().sample;
            sample.map(|sample| Json::Object(sample).to_string())
        };
        assert_eq!(sample(lines, |_| Some(text(2))), Some("{\"x\":\"aa\"}".to_owned()));
        assert_eq!(sample(lines, |_| Some(text(MAX_SAMPLE + 1))), None, "it is large");
        assert_eq!(sample(lines, |_| Some(Request::new())), None, "it fails");
        assert_eq!(sample(lines, |_| None), None);
        let configured = format!("{lines}\nserving: {{ warmup: [{{ x: b }}] }}");
        assert_eq!(sample(&configured, |_| None), Some("{\"x\":\"b\"}".to_owned()));
    }

    #[test]
    fn reports_failing_synthetic_requests() {
        let sevens = "inputs: { x: { type: float32, shape: [n, 5] } }\npipeline: [reshape: { shape: [7] }]";
        let failure = failure(&pipeline(sevens), |_| None).unwrap();
        assert!(failure.starts_with("a request that was made up fails: step 1 (reshape)"), "{failure}");
    }

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
