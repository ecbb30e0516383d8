//! The example request of a pipeline.

use serde_json::{Map, Value as Json};

use crate::LoadedPipeline;
use gpux_core::{Request, SyntheticInputs, to_json};

/// The most bytes of a value in an example.
const MAX_BYTES: usize = 512;

/// A short synthetic request, if one can be made.
pub(super) fn request(loaded: &LoadedPipeline) -> Option<Request> {
    let inputs = SyntheticInputs::zeros(1, 1);
    let request = inputs.request(loaded.signature(), |port| loaded.info().media_type(port)).ok()?;
    request.iter().all(|(_, value)| value.byte_len() <= MAX_BYTES).then_some(request)
}

/// The example request as an object: the pipeline's sample, if it is short.
pub(super) fn object(loaded: &LoadedPipeline) -> Option<Json> {
    let sample = loaded.warm_up_report().sample.as_ref();
    if let Some(sample) = sample.filter(|sample| Json::Object((*sample).clone()).to_string().len() <= MAX_BYTES) {
        return Some(Json::Object(sample.clone()));
    }
    let fields: Map<_, _> = request(loaded)?.iter().map(|(name, value)| (name.clone(), to_json(value))).collect();
    Some(Json::Object(fields))
}
