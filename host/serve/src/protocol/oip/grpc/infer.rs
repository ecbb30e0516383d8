//! Inference over gRPC.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;

use super::answers;
use super::answers::ResponseEncoder;
use super::bounds;
use super::bounds::Head;
use super::messages::{Encoding, Messages};
use super::status::status;
use super::{contents, timeout};
use crate::engine::execution::Prepared;
use crate::protocol::oip::grpc::proto::{ModelInferRequest, ModelInferResponse};
use crate::protocol::oip::infer as inference;
use crate::protocol::oip::infer::{InferRequest, RequestedOutput};
use crate::protocol::oip::lookup;
use crate::protocol::oip::lookup::Model;
use crate::protocol::oip::parameters;
use crate::protocol::oip::parameters::Parameters;
use crate::{Execution, ServeError, Server};
use gpux_core::{MemoryPermit, Outputs};

/// `ModelInfer`: one message in, one out.
pub(super) async fn call(State(server): State<Arc<Server>>, request: Request) -> Response {
    let Some(encoding) = Encoding::from_headers(request.headers()) else {
        return answers::unsupported_encoding(request.headers());
    };
    let answers = ResponseEncoder::to(request.headers(), encoding);
    let timeout = timeout::from_headers(request.headers());
    let messages = Messages::new(request.into_body(), encoding, server.settings().max_body, &server);
    let message = async {
        let message = messages.single().await?;
        let head = Head::read(&message)?;
        infer(&server, head, message, timeout, move |execution, response| answers.message(execution, &response)).await
    };
    answers.one(message.await.map_err(|error| status(&error)))
}

/// Runs a request with this head, and encodes its result in the same execution; `timeout` is the caller's deadline.
pub(super) async fn infer(
    server: &Server,
    head: Head,
    message: Bytes,
    timeout: Option<Duration>,
    write: impl FnOnce(&Execution, ModelInferResponse) -> Result<Bytes, ServeError> + Send + 'static,
) -> Result<Bytes, ServeError> {
    let model = lookup::of_message(server, &head.model_name, &head.model_version)?;
    let given = contents::parameters(head.parameters);
    let mut options = parameters::options(&given, message.len())?;
    options.timeout = match (options.timeout, timeout) {
        (Some(asked), Some(waits)) => Some(asked.min(waits)),
        (asked, waits) => asked.or(waits),
    };
    let (loaded, budget) = (model.loaded.clone(), server.request_budget().for_request().holding(message.len()));
    let prepare = move |execution: &Execution| {
        let (request, permit) = bounds::read(message, &budget)?;
        prepare(execution, request, given, permit)
    };
    let finish =
        move |execution: &Execution, expected, outputs| write(execution, finish(execution, &model, expected, outputs)?);
    server.run_parts(&loaded, options, prepare, finish).await
}

/// What a request expects of its result.
struct ExpectedResult {
    id: String,
    outputs: Vec<RequestedOutput>,
    /// whether tensors are raw
    raw: bool,
    /// released when the execution ends
    _permit: MemoryPermit,
}

/// Converts the request message to the pipeline's inputs.
fn prepare(
    execution: &Execution,
    request: ModelInferRequest,
    parameters: Parameters,
    permit: MemoryPermit,
) -> Result<Prepared<ExpectedResult, Bytes>, ServeError> {
    // Raw by default, as in Triton, whatever form the inputs have: Triton's clients read only raw outputs.
    let raw = parameters::flag(&parameters, "binary_data_output")?.unwrap_or(true);
    let request = read(request, parameters)?;
    let values = inference::pipeline_request(execution, request.inputs, &request.outputs)?;
    let expected = ExpectedResult { id: request.id, outputs: request.outputs, raw, _permit: permit };
    Ok(Prepared::Input(values, expected))
}

/// Converts the outputs to the result message.
fn finish(
    execution: &Execution,
    model: &Model,
    expected: ExpectedResult,
    outputs: Outputs,
) -> Result<ModelInferResponse, ServeError> {
    let parameters = contents::text_parameters(inference::space_parameters(execution, &expected.outputs));
    let given = inference::select_outputs(execution, outputs, expected.outputs)?;
    let size = || given.iter().map(|output| contents::size(output, expected.raw)).sum();
    execution.reserve_response(inference::given_values(&given), size)?;
    let (outputs, raw_output_contents) = contents::outputs(given, expected.raw)?;
    Ok(ModelInferResponse {
        model_name: execution.loaded().name().to_owned(),
        model_version: model.version.clone(),
        id: expected.id,
        parameters,
        outputs,
        raw_output_contents,
    })
}

fn read(request: ModelInferRequest, parameters: Parameters) -> Result<InferRequest, ServeError> {
    let outputs = request.outputs.into_iter();
    let outputs = outputs.map(|output| {
        let parameters = contents::parameters(output.parameters);
        // As in Triton; over REST, 0 is ignored.
        if parameters::count(&parameters, "classification")? == Some(0) {
            return Err(ServeError::invalid("the parameter `classification` is a whole number, not below 1"));
        }
        RequestedOutput::new(output.name, &parameters)
    });
    Ok(InferRequest {
        id: request.id,
        parameters,
        inputs: contents::inputs(request.inputs, request.raw_input_contents)?,
        outputs: outputs.collect::<Result<Vec<_>, _>>()?,
    })
}
