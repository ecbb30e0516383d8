//! A request that can be tried as it is: the one that warms the pipeline up.

use serde_json::{Map, Value as Json};

use crate::Served;
use crate::engine::warm_up::made_up;
use crate::protocol::predict::info::media_type;
use gpux_core::{Kind, Request, Value, to_json};

/// The most elements of a tensor in an example.
const MOST: usize = 64;

/// A request, if one can be made up that is short.
pub(super) fn request(served: &Served) -> Option<Request> {
    let plan = served.plan();
    // What is made up for bytes is a picture.
    let sound = |kind: &Kind| *kind != Kind::Bytes;
    let fits = |name: &str| {
        plan.port(name).is_some_and(|port| sound(&port.kind) || media_type(served, port) == Some("image/*"))
    };
    let short = |value: &Value| value.as_tensor().is_none_or(|tensor| tensor.len() <= MOST);
    made_up(plan).filter(|request| request.iter().all(|(name, value)| fits(name) && short(value)))
}

/// The same as an object.
pub(super) fn object(served: &Served) -> Option<Json> {
    let fields: Map<_, _> = request(served)?.iter().map(|(name, value)| (name.clone(), to_json(value))).collect();
    Some(Json::Object(fields))
}
