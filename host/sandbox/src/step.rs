//! A component as a step of a pipeline.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::grants::Capability;
use super::guest::{Guest, GuestResult};
use super::prepare::{ComponentFacts, Start};
use super::shared::SandboxShared;
use super::{imports, inspect};
use gpux_core::{Context, Signature, Step, StepFailure, Value};

/// A component, loaded and configured. Each run happens in a sandbox of its own: nothing is left
/// from one request to the next, unless the step was loaded to be reused.
pub struct ComponentStep {
    /// the sandbox that loaded it, kept for later loads
    pub(super) _home: Arc<SandboxShared>,
    pub(super) guest: Guest,
    pub(super) facts: ComponentFacts,
    pub(super) summary: String,
    pub(super) options: Json,
    pub(super) start: Start,
    pub(super) reuse: bool,
}

impl ComponentStep {
    /// Its unused grants.
    pub fn unused_grants(&self) -> Vec<Capability> {
        imports::unused(&self.facts.imports, &self.guest.linked.capabilities.grants)
    }

    /// SHA-256 of the component's bytes, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.facts.digest
    }
}

impl Step for ComponentStep {
    fn signature(&self) -> &Signature {
        &self.guest.signature
    }

    fn json_depth(&self, _: &[usize]) -> usize {
        self.guest.linked.capabilities.limits.json_depth
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let guest_result = self.guest.process(inputs, context);
        let GuestResult { outcome, memory_peak, log, calls } = guest_result;
        context.memory_peak = Some(memory_peak);
        context.log.extend(log);
        context.calls.merge(&calls);
        outcome
    }

    fn details(&self) -> Json {
        let capabilities = &self.guest.linked.capabilities;
        json!({
            "summary": self.summary,
            "digest": self.facts.digest,
            "size": self.facts.size,
            "kind": self.facts.kind,
            "imports": self.facts.imports.iter().map(|import| &import.name).collect::<Vec<_>>(),
            "options": self.options,
            "start": self.start,
            "instances": if self.reuse { "reuse" } else { "fresh" },
            "limits": capabilities.limits,
            "grants": capabilities.grants.to_json(),
            "can": inspect::granted(&self.facts.imports, &capabilities.grants),
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
