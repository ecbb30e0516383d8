//! `POST /v2/models/NAME/infer`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;

use super::framing::Framing;
use super::response::{EncodedResponse, ResponseEncoding, ResponseHeading};
use super::{PathParameters, answered};
use super::{early_parameters, request, response};
use crate::engine::body_budget::RequestBudget;
use crate::engine::execution::Prepared;
use crate::engine::memory_charge::Charge;
use crate::protocol::http::body;
use crate::protocol::http::compression::AcceptedEncodings;
use crate::protocol::oip::{infer as inference, lookup, metadata, parameters};
use crate::{Execution, Priority, ServeError, Server};
use gpux_core::{MemoryPermit, Outputs};
use inference::RequestedOutput;

/// Runs the pipeline that the path names.
pub(super) async fn infer(
    State(server): State<Arc<Server>>,
    named: PathParameters,
    request: HttpRequest<Body>,
) -> Response {
    answer(&server, &named.model, &named.version, request).await
}

/// Runs the pipeline of this name and version, which may be empty.
pub(crate) async fn answer(server: &Server, model: &str, version: &str, request: HttpRequest<Body>) -> Response {
    let accepted = AcceptedEncodings::from_headers(request.headers());
    let model = lookup::model(server, model, version);
    let response = match model {
        Ok(model) => respond(server, model, request).await,
        Err(error) => Err(error),
    };
    accepted.result(answered(response)).await
}

async fn respond(server: &Server, model: lookup::Model, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let (head, body) = request.into_parts();
    let body = body::read_for(&model.loaded, None, Priority::High, &head.headers, body, server).await?;
    let bytes = body.len();
    let framing = Framing::split(&head.headers, body)?;
    let (loaded, budget) = (model.loaded.clone(), server.request_budget().for_request().holding(bytes));
    let options = early_parameters::options(framing.json(), bytes)?;
    let prepare = move |execution: &Execution| prepare(execution, model, framing, &budget);
    let written = server.run_parts(&loaded, options, prepare, finish).await?;
    Ok(written.into_response())
}

/// What a request expects of its result.
struct ExpectedResult {
    version: String,
    id: String,
    outputs: Vec<RequestedOutput>,
    form: ResponseEncoding,
    /// held until the execution ends, as the tensors are
    _permit: Option<MemoryPermit>,
}

/// Reads a request.
fn prepare(
    execution: &Execution,
    model: lookup::Model,
    framing: Framing,
    budget: &RequestBudget,
) -> Result<Prepared<ExpectedResult, EncodedResponse>, ServeError> {
    // Only a raw request needs the declared inputs.
    let inputs = if matches!(framing, Framing::Raw(_)) { metadata::inputs(&model) } else { Vec::new() };
    let json = framing.json();
    let raw = framing.raw().len();
    let reserve = || budget.reserve_tensors(json, request::widest(json), raw);
    let permit = Charge::DecodedBody.applies_to(json.len() + raw).then(reserve).transpose()?;
    let (request, has_literals) = request::read(framing, &inputs, budget)?;
    execution.shorten_deadline(parameters::options(&request.parameters, 0)?.timeout)?;
    let binary = parameters::flag(&request.parameters, "binary_data_output")?.unwrap_or(false);
    response::check(execution.loaded().signature(), &request.outputs, binary)?;
    let values = inference::pipeline_request(execution, request.inputs, &request.outputs)?;
    let form = ResponseEncoding { binary, literals: has_literals };
    let expected =
        ExpectedResult { version: model.version, id: request.id, outputs: request.outputs, form, _permit: permit };
    Ok(Prepared::Input(values, expected))
}

/// Writes the result.
fn finish(execution: &Execution, expected: ExpectedResult, outputs: Outputs) -> Result<EncodedResponse, ServeError> {
    let form = expected.form;
    let parameters = inference::space_parameters(execution, &expected.outputs).collect();
    let outputs = inference::select_outputs(execution, outputs, expected.outputs)?;
    execution.reserve_response(inference::given_values(&outputs), || response::size(&outputs, form))?;
    let (model, version, id) = (execution.loaded().name(), &*expected.version, &*expected.id);
    let heading = ResponseHeading { model, version, id, parameters };
    EncodedResponse::encode(&heading, &outputs, form)
}
