//! Whether a pipeline's golden cases may run together where its models run requests together.

use super::model_input_capture::{ModelInputCapture, case_requests};
use gpux::Pipeline;

/// Runs each model on its inputs in the golden cases, alone and in a batch. Fails with the model and the
/// difference.
pub fn verify_batching(pipeline: &Pipeline) -> Result<(), String> {
    let batches: Vec<_> = pipeline.models().filter(|(_, model)| matches!(model.batcher(), Some(Ok(_)))).collect();
    if batches.is_empty() {
        return Ok(());
    }
    let mut capture = ModelInputCapture::new(pipeline);
    // `gpux test` reports mistakes in cases.
    for (_, request) in case_requests(pipeline).unwrap_or_default() {
        let _ = capture.run(request);
    }
    for (name, model) in batches {
        model.verify_batching(&capture.samples_of(name)).map_err(|reason| {
            format!("the model `{name}` must not run requests together: of the golden cases, {reason}; give its `batching` a `tolerance`, or remove it")
        })?;
    }
    Ok(())
}
