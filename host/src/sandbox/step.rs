//! A component as a step of a pipeline.

use serde_json::{Value as Json, json};

use super::component::Compiled;
use super::grants::Capability;
use super::guest::{Finished, Guest};
use super::{imports, inspect};
use crate::pipeline::{Context, Signature, Step, StepFailure, Value};

/// A component, loaded and configured. Each run happens in a sandbox of its own: nothing is left
/// from one request to the next.
pub struct ComponentStep {
    pub(super) guest: Guest,
    pub(super) compiled: Compiled,
    pub(super) summary: String,
    pub(super) options: Json,
    /// `options` as text, as `configure` takes them
    pub(super) text: String,
    pub(super) signature: Signature,
}

impl ComponentStep {
    /// What the component says about itself, in a line.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// What it is granted and does not import.
    pub fn unused_grants(&self) -> Vec<Capability> {
        imports::unused(&self.compiled.needs(), &self.guest.reach.grants)
    }

    /// SHA-256 of the component's bytes, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.compiled.digest
    }
}

impl Step for ComponentStep {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let finished = self.guest.process(&self.text, &self.signature, inputs, context.deadline);
        let Finished { outcome, memory_peak, log } = finished;
        context.memory_peak = Some(memory_peak);
        context.log.extend(log);
        outcome
    }

    fn details(&self) -> Json {
        let reach = &self.guest.reach;
        json!({
            "summary": self.summary,
            "digest": self.compiled.digest,
            "size": self.compiled.size,
            "kind": self.compiled.kind,
            "imports": self.compiled.imports,
            "options": self.options,
            "limits": reach.limits,
            "grants": reach.grants,
            "can": inspect::granted(&self.compiled.needs(), &reach.grants),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_serves_every_thread() {
        fn shared<T: Send + Sync>() {}
        shared::<ComponentStep>();
    }
}
