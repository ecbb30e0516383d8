//! The child process of a measurement (`gpux verify`, `gpux build --precision auto`, comparing benchmarks): it opens the
//! pipeline and makes the requests.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::input::{InputArguments, RequestItem, UsageError, reject_overwrites};
use super::load_arguments::open;
use super::printer::{LogLevel, Printer};
use gpux::{ErrorCategory, GpuxError, Pipeline};
use gpux_author::{MeasureError, Measurement, NamedRequest, SYNTHETIC_INPUTS};
use gpux_core::{Request, SyntheticInputs};

/// A measurement on the requests of a command line.
pub(super) type MeasureRequest = gpux_author::MeasureRequest<InputArguments>;

/// The longest that a child may take, where nobody waits beside it.
pub(super) const CHILD_TIMEOUT: Duration = Duration::from_hours(1);

/// Runs in the child; returns the line to print.
pub(super) fn answer(told: std::io::Result<(MeasureRequest, OsString)>) -> String {
    let told = told.map_err(MeasureError::from);
    let answer = told.and_then(|(request, folder)| measure(&request, Path::new(&folder)));
    serde_json::to_string(&answer).unwrap_or_default()
}

fn measure(asked: &MeasureRequest, folder: &Path) -> Result<Measurement, MeasureError> {
    let quiet = Printer { json: true, level: LogLevel::Error };
    let pipeline = open(&asked.pipeline, &asked.child_options(), quiet)?;
    let requests = requests(asked, &pipeline, quiet)?;
    asked.measure(&pipeline, requests, folder)
}

fn requests(asked: &MeasureRequest, pipeline: &Pipeline, printer: Printer) -> Result<Vec<NamedRequest>, MeasureError> {
    let wrong = |error: UsageError| MeasureError { message: error.to_string(), category: ErrorCategory::Configuration };
    let outputs = asked.output.as_slice();
    if asked.input.is_given() {
        let requests = asked.input.requests(pipeline.plan(), printer).map_err(wrong)?;
        reject_overwrites(pipeline, requests.source_paths(), outputs).map_err(wrong)?;
        let item = |item: RequestItem| (item.source, item.request.map_err(|error| error.to_string()));
        return Ok(requests.take(asked.samples.max(1)).map(item).collect());
    }
    reject_overwrites(pipeline, std::iter::empty(), outputs).map_err(wrong)?;
    let known = if asked.cases { known_requests(pipeline)? } else { Vec::new() };
    if known.is_empty() {
        return Ok(vec![(SYNTHETIC_INPUTS.to_owned(), Ok(synthetic_request(pipeline).map_err(wrong)?))]);
    }
    Ok(known.into_iter().take(asked.samples.max(1)).map(|(source, request)| (source, Ok(request))).collect())
}

/// The requests of golden cases, else those that warm the server up.
pub(super) fn known_requests(pipeline: &Pipeline) -> Result<Vec<(String, Request)>, GpuxError> {
    let cases = gpux_author::case_requests(pipeline)?;
    if !cases.is_empty() {
        return Ok(cases);
    }
    Ok(pipeline.warm_up().iter().map(|request| ("warm-up request".to_owned(), request.clone())).collect())
}

/// A synthetic request, the same every time.
pub(super) fn synthetic_request(pipeline: &Pipeline) -> Result<Request, UsageError> {
    let signature = pipeline.plan().signature();
    let request = SyntheticInputs::default().request(signature, |port| pipeline.media_type(port));
    request.map_err(|port| UsageError::NotMadeUp { name: port.name.clone(), inputs: signature.describe_inputs() })
}
