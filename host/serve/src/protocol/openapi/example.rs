//! The example request of a pipeline: its warm-up request.

use serde_json::{Map, Value as Json};

use crate::LoadedPipeline;
use gpux_core::{Kind, Request, Value, to_json};
use gpux_worker::synthetic_inputs;

/// The most elements of a tensor in an example.
const MOST: usize = 64;

/// A short synthetic request, if one can be made.
pub(super) fn request(loaded: &LoadedPipeline) -> Option<Request> {
    let signature = loaded.signature();
    // The synthetic bytes are an image.
    let sound = |kind: &Kind| *kind != Kind::Bytes;
    let fits = |name: &str| {
        signature.port(name).is_some_and(|port| sound(&port.kind) || loaded.info().media_type(port) == Some("image/*"))
    };
    let short = |value: &Value| value.as_tensor().is_none_or(|tensor| tensor.len() <= MOST);
    synthetic_inputs(signature).filter(|request| request.iter().all(|(name, value)| fits(name) && short(value)))
}

/// The example request as an object.
pub(super) fn object(loaded: &LoadedPipeline) -> Option<Json> {
    let fields: Map<_, _> = request(loaded)?.iter().map(|(name, value)| (name.clone(), to_json(value))).collect();
    Some(Json::Object(fields))
}
