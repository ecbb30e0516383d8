//! Whether a pipeline's golden cases may run together where its models run requests together.

use std::path::Path;

use super::case::CASES_FOLDER;
use super::sampler::{Sampler, case_requests};
use gpux::Pipeline;

/// Runs each model on its inputs in the golden cases, alone and in a batch. Fails with the model and the
/// difference.
pub fn verify_batching(pipeline: &Pipeline) -> Result<(), String> {
    let batches: Vec<_> = pipeline.models().filter(|(_, model)| matches!(model.batcher(), Some(Ok(_)))).collect();
    if batches.is_empty() {
        return Ok(());
    }
    let folder = pipeline.path().parent().unwrap_or(Path::new(".")).join(CASES_FOLDER);
    let mut sampler = Sampler::new(pipeline);
    // `gpux test` reports mistakes in cases.
    for (_, request) in case_requests(pipeline, &folder).unwrap_or_default() {
        let _ = sampler.run(request);
    }
    for (name, model) in batches {
        model.verify_batching(&sampler.samples_of(name)).map_err(|reason| {
            format!("the model `{name}` must not run requests together: of the golden cases, {reason}; remove its `batching`")
        })?;
    }
    Ok(())
}
