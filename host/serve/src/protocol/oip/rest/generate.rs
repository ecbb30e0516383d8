//! The extension `generate`: an object of inputs by name to an object of outputs by name. An output of one element is
//! that element, others are one list. A pipeline produces its result at once, so the stream holds one event.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Request as HttpRequest};
use serde_json::Value as Json;

use super::{PathParameters, answered, early_parameters};
use crate::engine::memory_charge::Charge;
use crate::protocol::http::compression::AcceptedEncodings;
use crate::protocol::http::{body, response};
use crate::protocol::oip::lookup;
use crate::protocol::oip::lookup::Model;
use crate::protocol::oip::parameters;
use crate::protocol::predict::output::write_fields;
use crate::{Execution, Priority, ServeError, Server};
use gpux_core::encoded_size;
use gpux_core::{BoundedJsonTree, Value, write_json_text};

/// `POST /v2/models/NAME/generate`.
pub(super) async fn generate(
    State(server): State<Arc<Server>>,
    named: PathParameters,
    request: HttpRequest<Body>,
) -> Response {
    let accepted = AcceptedEncodings::from_headers(request.headers());
    let answer = answered(generated(&server, &named, request).await.map(|text| response::bytes(response::JSON, text)));
    accepted.result(answer).await
}

/// `POST /v2/models/NAME/generate_stream`.
pub(super) async fn generate_stream(
    State(server): State<Arc<Server>>,
    named: PathParameters,
    request: HttpRequest<Body>,
) -> Response {
    let event = |text: Vec<u8>| {
        let event = [b"data: ".as_slice(), &text, b"\n\n"].concat();
        response::bytes(HeaderValue::from_static("text/event-stream; charset=utf-8"), event)
    };
    answered(generated(&server, &named, request).await.map(event))
}

async fn generated(server: &Server, named: &PathParameters, request: HttpRequest<Body>) -> Result<Vec<u8>, ServeError> {
    let (head, body) = request.into_parts();
    let model = lookup::model(server, &named.model, &named.version)?;
    let body = body::read_for(&model.loaded, None, Priority::High, &head.headers, body, server).await?;
    let loaded = model.loaded.clone();
    let options = early_parameters::options(&body, body.len())?;
    let budget =
        Charge::DecodedBody.applies_to(body.len()).then(|| server.request_budget().for_request().holding(body.len()));
    let run = move |execution: &Execution| {
        let _permit = budget.as_ref().map(|budget| budget.reserve_tree(&body)).transpose()?;
        run(execution, &model, &body)
    };
    server.run(&loaded, options, run).await
}

fn run(execution: &Execution, model: &Model, body: &Bytes) -> Result<Vec<u8>, ServeError> {
    let BoundedJsonTree(json) =
        serde_json::from_slice(body).map_err(|error| ServeError::invalid(format!("not an object of JSON: {error}")))?;
    let Json::Object(mut inputs) = json else { return Err(ServeError::invalid("this is not an object of JSON")) };
    if let Some(Json::Object(given)) = inputs.get("parameters") {
        execution.shorten_deadline(parameters::options(given, 0)?.timeout)?;
    }
    let signature = execution.loaded().signature();
    let id = inputs.get("id").filter(|_| signature.port("id").is_none()).and_then(Json::as_str).map(str::to_owned);
    // Fields that are no inputs are parameters; unknown parameters are ignored.
    inputs.retain(|name, _| signature.port(name).is_some());
    if inputs.is_empty() {
        return Err(ServeError::invalid(format!(
            "none of its fields is an input; it takes {}",
            signature.describe_inputs()
        )));
    }
    let request = signature.reader(&[]).json(Json::Object(inputs))?;
    let outputs = execution.infer(request, None)?;
    let size = |value: &Value| encoded_size::memory(value) + encoded_size::json(value);
    let values = || outputs.iter().map(|(_, value)| value);
    execution.reserve_response(values(), || values().map(size).sum())?;
    let mut text = b"{\"model_name\":".to_vec();
    write_json_text(execution.loaded().name(), &mut text);
    text.extend_from_slice(b",\"model_version\":");
    write_json_text(&model.version, &mut text);
    if let Some(id) = id {
        text.extend_from_slice(b",\"id\":");
        write_json_text(&id, &mut text);
    }
    let outputs: Vec<_> = outputs.into_iter().map(|(name, value)| (name, flat(value))).collect();
    write_fields(outputs.iter(), &mut text);
    text.push(b'}');
    Ok(text)
}

/// The tensor with one axis, or without axes if it has one element.
fn flat(value: Value) -> Value {
    let Value::Tensor(tensor) = value else { return value };
    let shape = if tensor.len() == 1 { Vec::new() } else { vec![tensor.len()] };
    Value::Tensor(tensor.clone().reshape(shape).unwrap_or(tensor))
}
