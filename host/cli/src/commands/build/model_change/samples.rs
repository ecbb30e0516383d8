//! Samples for comparing a changed model: the user's, golden cases, or synthetic ones.

use super::ChangeArguments;
use super::change_error::ChangeError;
use crate::exit::Exit;
use crate::input::{InputArguments, RequestItem};
use crate::printer::{Printer, pluralize};
use gpux::Pipeline;
use gpux_author::{ModelComparison, ModelInputCapture, ModelSample};
use gpux_core::{SyntheticInputs, Tensor};
use gpux_inference::{ModelStep, synthetic_inputs};

/// The most requests that are run: their tensors are all held.
const MAX_REQUESTS: usize = 64;
/// The number of synthetic samples, without others.
const SYNTHETIC_SAMPLES: u64 = 8;

/// One sample of so many is only compared.
const HELD_BACK: usize = 4;

/// The captured inputs of a pipeline's models.
pub(super) struct Samples<'a> {
    capture: ModelInputCapture<'a>,
    /// how many requests, of what; `None` if there are none
    from: Option<String>,
}

/// A changed model, judged.
pub(super) struct Evaluation {
    pub(super) comparison: ModelComparison,
    /// over what
    pub(super) over: String,
}

/// Runs the pipeline on every sample there is.
pub(super) fn samples<'a>(
    asked: &ChangeArguments,
    pipeline: &'a Pipeline,
    printer: Printer,
) -> Result<Samples<'a>, Exit> {
    let mut capture = ModelInputCapture::new(pipeline);
    let mut count = 0;
    let from = if asked.sample.is_empty() {
        let cases = gpux_author::case_requests(pipeline);
        for (name, request) in cases.map_err(|error| printer.error(&error))?.into_iter().take(MAX_REQUESTS) {
            match capture.run(request) {
                Ok(()) => count += 1,
                Err(error) => printer.warning(&format!("the case `{name}` is left out: {error}")),
            }
        }
        "golden case"
    } else {
        let requests = InputArguments::of_files(&asked.sample).requests(pipeline.plan(), printer);
        for RequestItem { source, request } in requests.map_err(|error| printer.usage(&error))?.take(MAX_REQUESTS) {
            let failed = |error: String| printer.fail("SampleError", &format!("{source}: {error}"), Exit::Failed);
            let request = request.map_err(|error| failed(error.to_string()))?;
            capture.run(request).map_err(|error| failed(error.to_string()))?;
            count += 1;
        }
        "sample"
    };
    Ok(Samples { capture, from: (count > 0).then(|| pluralize(count, from)) })
}

impl Samples<'_> {
    /// The tensors from which a model's ranges are taken. Every fourth sample is not among them, so that the
    /// comparison also has values that the ranges were not made for.
    pub(super) fn for_ranges(&self, name: &str, model: &ModelStep) -> Vec<Vec<Option<Tensor>>> {
        let samples = self.capture.samples_of(name);
        let seen = samples.iter().enumerate().filter(|(number, _)| number % HELD_BACK != HELD_BACK - 1);
        seen.map(|(_, sample)| model.tensors(sample)).collect()
    }

    /// Runs both models on the original's inputs.
    pub(super) fn evaluate(
        &self,
        name: &str,
        original: &ModelStep,
        changed: &ModelStep,
    ) -> Result<Evaluation, ChangeError> {
        let mut samples = self.capture.samples_of(name);
        let mut over = self.from.clone().unwrap_or_default();
        if samples.is_empty() {
            samples = synthetic_samples(changed).ok_or_else(|| {
                ChangeError::Samples("no inputs can be made up for this model: give --sample".to_owned())
            })?;
            let why = match &self.from {
                Some(from) => format!("; it gets none that can be seen of the {from}"),
                None => "; --sample gives others".to_owned(),
            };
            over = format!("{} inputs made up{why}", samples.len());
        }
        let comparison = gpux_author::compare_models(original, changed, &samples);
        comparison
            .map(|comparison| Evaluation { comparison, over })
            .map_err(|unequal| ChangeError::Samples(unequal.to_string()))
    }
}

fn synthetic_samples(model: &ModelStep) -> Option<Vec<ModelSample>> {
    let maker = |seed| SyntheticInputs { seed: Some(seed), ..SyntheticInputs::default() };
    (0..SYNTHETIC_SAMPLES).map(|seed| synthetic_inputs(model.file().info(), maker(seed))).collect()
}
