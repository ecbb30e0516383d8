//! `POST /v2/models/NAME/infer`.

use std::cell::Cell;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;

use super::framing::Framing;
use super::response::{Form, Heading, Written};
use super::{Named, answered};
use super::{early_parameters, request, response};
use crate::engine::decoded_size;
use crate::engine::memory_budget::Room;
use crate::protocol::http::body;
use crate::protocol::http::compression::Accepted;
use crate::protocol::oip::{infer as inference, lookup, metadata, parameters};
use crate::{Priority, ServeError, Server, Turn};

/// Runs the pipeline that the path names.
pub(super) async fn infer(State(server): State<Arc<Server>>, named: Named, request: HttpRequest<Body>) -> Response {
    answer(&server, &named.model, &named.version, request).await
}

/// Runs the pipeline of this name and version, which may be empty.
pub(crate) async fn answer(server: &Server, model: &str, version: &str, request: HttpRequest<Body>) -> Response {
    let accepted = Accepted::of(request.headers());
    let model = lookup::model(server, model, version);
    let response = match model {
        Ok(model) => respond(server, model, request).await,
        Err(error) => Err(error),
    };
    accepted.result(answered(response)).await
}

async fn respond(server: &Server, model: lookup::Model, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let (head, body) = request.into_parts();
    let body = body::read_for(&model.served, None, Priority::High, &head.headers, body, server).await?;
    let bytes = body.len();
    let framing = Framing::of(&head.headers, body)?;
    let (served, room) = (model.served.clone(), server.bodies().room().holding(bytes));
    let ask = early_parameters::ask(framing.json(), bytes)?;
    let framing = Cell::new(framing);
    let written = server.run(&served, ask, move |turn| {
        let framed = framing.take();
        if turn.is_here() {
            framing.set(framed.clone());
        }
        run(turn, &model, framed, &room)
    });
    let written = written.await?;
    Ok(written.into_response())
}

/// A turn: from the bytes of the request to those of the result.
fn run(turn: &Turn, model: &lookup::Model, framing: Framing, room: &Room) -> Result<Written, ServeError> {
    // Only a raw request leaves unsaid what it is.
    let inputs = if matches!(framing, Framing::Raw(_)) { metadata::inputs(model) } else { Vec::new() };
    // Held until the turn ends, as the tensors are.
    let json = framing.json();
    let raw = framing.raw().len();
    let is_large = decoded_size::is_large(json.len() + raw);
    let _share = is_large.then(|| decoded_size::tensors(json, request::widest(json), raw, room)).transpose()?;
    let (request, has_literals) = request::read(framing, &inputs, room)?;
    turn.hasten(parameters::ask(&request.parameters, 0)?.timeout)?;
    let binary = parameters::flag(&request.parameters, "binary_data_output")?.unwrap_or(false);
    response::check(turn.served().plan(), &request.outputs, binary)?;
    let outputs = inference::infer(turn, request.inputs, request.outputs)?;
    let form = Form { binary, literals: has_literals };
    turn.hold_answer(inference::given_values(&outputs), || response::size(&outputs, form))?;
    let heading = Heading { model: turn.served().name(), version: &model.version, id: &request.id };
    Written::of(&heading, &outputs, form)
}
