//! Runs a loaded model once on synthetic inputs: the embedded engine finds some unsupported features only
//! when it knows the shapes of the inputs.

use super::embedded::{Embedded, infer_input_sizes};
use super::engine::RunFailure;
use super::error::ModelLoadError;
use super::graph::{ModelInfo, OnnxType};
use super::sessions::{ModelInputs, SessionRunError};
use super::step::ModelStep;
use super::synthetic_inputs::synthetic_inputs;
use gpux_core::{Deadline, Dim, SyntheticInputs, Value};

impl ModelStep {
    /// Runs a model of the embedded engine on synthetic inputs, one class of shapes after the other until
    /// it runs. Fails when it runs on none; what it needs is then [`ModelLoadError::BeyondEmbedded`].
    pub fn smoke_test(&self) -> Result<(), ModelLoadError> {
        self.first_failure(|_, _| true)
    }

    /// The same, but passes unless each run failed for the same thing that the engine lacks: sizes that do not fit each
    /// other fail in different words.
    pub(super) fn check_supported(&self) -> Result<(), ModelLoadError> {
        self.first_failure(|first, failure| {
            let is_unsupported = matches!(failure, SessionRunError::Run(failure) if failure.is_unsupported());
            is_unsupported && first.to_string() == failure.to_string()
        })
    }

    /// Runs until one run succeeds or its failure, held against the first, does not count.
    fn first_failure(&self, counts: impl Fn(&SessionRunError, &SessionRunError) -> bool) -> Result<(), ModelLoadError> {
        if self.engine().name() != Embedded::NAME {
            return Ok(());
        }
        let mut info = self.file().info().clone();
        fix_inferred_sizes(&mut info, &infer_input_sizes(self.file()));
        let mut first = None;
        for maker in SyntheticInputs::attempts() {
            let Some(inputs) = synthetic_inputs(&info, maker) else { continue };
            let tensor = |(index, value): (usize, Option<Value>)| match value {
                Some(Value::Tensor(tensor)) => Some((index, tensor)),
                _ => None,
            };
            match self.sessions().run(inputs.into_iter().enumerate().filter_map(tensor).collect(), None) {
                Err(failure) if counts(first.as_ref().unwrap_or(&failure), &failure) => {
                    first.get_or_insert(failure);
                }
                _ => return Ok(()),
            }
        }
        let reason = match first {
            None => return Ok(()),
            Some(SessionRunError::Run(RunFailure::NeedsOnnxRuntime { feature })) => format!("it has no {feature}"),
            Some(SessionRunError::Run(RunFailure::BeyondEmbedded { reason })) => reason,
            Some(other) => other.to_string(),
        };
        let reason = format!("it runs on none of the inputs that were made up for it: {reason}");
        Err(ModelLoadError::BeyondEmbedded { path: self.file().path().to_owned(), reason })
    }

    /// Verifies on sample inputs that batching does not change results. Fails with the first difference.
    pub fn verify_batching(&self, samples: &[Vec<Option<Value>>]) -> Result<(), String> {
        let Some(Ok(batcher)) = self.batcher() else { return Ok(()) };
        let inputs = |sample: &Vec<Option<Value>>| -> Option<ModelInputs> {
            let given = sample.iter().enumerate().filter_map(|(index, value)| Some((index, value.clone()?)));
            given
                .map(|(index, value)| Some((index, self.adapt_input(index, value, &Deadline::default()).ok()?)))
                .collect()
        };
        batcher.verify(&samples.iter().filter_map(inputs).collect::<Vec<_>>())
    }
}

/// Fixes axes that the model leaves open and whose size its graph tells.
fn fix_inferred_sizes(info: &mut ModelInfo, sizes: &[Vec<Option<usize>>]) {
    // tract counts no inputs with a default.
    for (input, sizes) in info.inputs.iter_mut().filter(|input| input.required).zip(sizes) {
        let Some(OnnxType::Tensor { kind, .. }) = &mut input.value else { continue };
        for (dim, size) in kind.shape.iter_mut().flatten().zip(sizes) {
            if let (Dim::Dynamic | Dim::Named(_), Some(size)) = (&dim, size) {
                *dim = Dim::Fixed(*size);
            }
        }
    }
}
