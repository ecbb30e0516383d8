//! The input shapes of a pipeline's models in its first golden case that runs.

use std::path::Path;

use super::case::{CASES_FOLDER, cases_in};
use super::model_input_capture::{ModelInputCapture, case_request};
use gpux::Pipeline;
use gpux_inference::InputShapes;

/// The shapes of what each model of the pipeline is given, by its name; nothing for a pipeline
/// without cases. A model that runs several times counts with its first.
pub fn observed_shapes(pipeline: &Pipeline) -> Vec<(String, InputShapes)> {
    let folder = pipeline.path().parent().unwrap_or(Path::new("."));
    let of_case = |case: &std::path::PathBuf| {
        let (_, request) = case_request(pipeline, case).ok()??;
        let mut capture = ModelInputCapture::new(pipeline);
        capture.run(request).ok()?;
        let shapes = pipeline.models().filter_map(|(name, model)| {
            let sample = capture.samples_of(name).into_iter().next()?;
            Some((name.to_owned(), model.shapes(&sample)))
        });
        Some(shapes.collect())
    };
    cases_in(&folder.join(CASES_FOLDER)).unwrap_or_default().iter().find_map(of_case).unwrap_or_default()
}
