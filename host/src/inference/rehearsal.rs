//! Whether a model that was loaded runs at all: the embedded engine finds some things that it lacks only
//! when it knows the shapes of the inputs.

use super::embedded::Embedded;
use super::error::ModelLoadError;
use super::made_up::made_up_inputs_of;
use super::step::ModelStep;
use crate::pipeline::{Context, Step as _};

/// Items, and sizes of other open dimensions: one, a few, and what images, texts and sounds have.
const CLASSES: [(usize, usize); 7] = [(1, 8), (1, 1), (2, 32), (1, 128), (1, 224), (1, 512), (1, 16_000)];

impl ModelStep {
    /// Runs a model of the embedded engine on made-up inputs, of one class of shapes after the other until
    /// it runs. Fails when it runs on none; what it needs is then [`ModelLoadError::BeyondEmbedded`].
    pub fn rehearse(&self) -> Result<(), ModelLoadError> {
        if self.engine().name() != Embedded::NAME {
            return Ok(());
        }
        let mut failures = Vec::new();
        for (items, open) in CLASSES {
            let Some(inputs) = made_up_inputs_of(self.file().info(), 0, items, open) else { continue };
            match self.run(inputs, &mut Context::default()) {
                Ok(_) => return Ok(()),
                Err(failure) => failures.push(failure.to_string()),
            }
        }
        let Some(first) = failures.first() else { return Ok(()) };
        let reason = format!("it runs on none of the inputs that were made up for it: {first}");
        Err(ModelLoadError::BeyondEmbedded { path: self.file().path().to_owned(), reason })
    }
}
