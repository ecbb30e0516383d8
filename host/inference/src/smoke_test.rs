//! Runs a loaded model once on synthetic inputs: the embedded engine finds some unsupported features only
//! when it knows the shapes of the inputs.

use super::embedded::Embedded;
use super::error::ModelLoadError;
use super::sessions::ModelInputs;
use super::step::ModelStep;
use super::synthetic_inputs::synthetic_inputs_sized;
use gpux_core::{Context, Deadline, Step as _, Value};

/// Items, and sizes of other open dimensions: one, a few, and what images, texts and sounds have.
const SHAPE_CLASSES: [(usize, usize); 7] = [(1, 8), (1, 1), (2, 32), (1, 128), (1, 224), (1, 512), (1, 16_000)];

impl ModelStep {
    /// Runs a model of the embedded engine on synthetic inputs, one class of shapes after the other until
    /// it runs. Fails when it runs on none; what it needs is then [`ModelLoadError::BeyondEmbedded`].
    pub fn smoke_test(&self) -> Result<(), ModelLoadError> {
        if self.engine().name() != Embedded::NAME {
            return Ok(());
        }
        let mut failures = Vec::new();
        for (items, open) in SHAPE_CLASSES {
            let Some(inputs) = synthetic_inputs_sized(self.file().info(), 0, items, open) else { continue };
            match self.run(inputs, &mut Context::default()) {
                Ok(_) => return Ok(()),
                Err(failure) => failures.push(failure.to_string()),
            }
        }
        let Some(first) = failures.first() else { return Ok(()) };
        let reason = format!("it runs on none of the inputs that were made up for it: {first}");
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
