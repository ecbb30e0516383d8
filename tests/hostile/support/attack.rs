//! The table of attacks, guest-examples/hostile/attacks.yml, and how one is made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpux_core::threads::processor_time;
use gpux_core::{Context, LimitExceeded, Registry, Step as _, StepFailure, Value};
use gpux_sandbox::{ComponentConfig, ComponentStep, Limits, Sandbox, SandboxError};
use serde::Deserialize;
use serde_json::json;

use crate::root;

/// One row of the table. Exactly one of `refused`, `stopped` and `gives` is its expected end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// the option `attack` of hostile.wasm, or the name of a guest of its own
    pub name: String,
    /// its description
    pub what: String,
    /// the guest's file beside the table, if it is not hostile.wasm
    guest: Option<String>,
    /// MiB of the tensor that it is given; the empty text without
    input: Option<usize>,
    /// the error when it is loaded
    refused: Option<String>,
    /// the error of a request
    stopped: Option<String>,
    /// the result of a request, where the attack is in vain
    gives: Option<String>,
}

/// What an attack came to.
pub struct Outcome {
    /// as the table writes it: `refused: …`, `stopped: …` or `gives: …`
    pub text: String,
    /// from the last thing that was asked of the guest until there was an answer
    pub time: Duration,
    /// what of it this thread had the processor for
    pub processor_time: Duration,
    /// its `time`, if that is what stopped it
    pub deadline: Option<Duration>,
}

/// What an attack may use.
pub fn limits() -> Limits {
    Limits {
        time: Duration::from_millis(50),
        setup_time: Duration::from_secs(1),
        memory: 16 << 20,
        log: 2 << 10,
        calls: usize::MAX,
        ..Limits::default()
    }
}

/// Every attack of the table.
pub fn all() -> Vec<Attack> {
    let table = std::fs::read_to_string(root().join("guest-examples/hostile/attacks.yml")).unwrap();
    serde_yaml::from_str(&table).unwrap()
}

impl Attack {
    /// Its expected end in the table.
    pub fn expected(&self) -> String {
        let words = [("refused", &self.refused), ("stopped", &self.stopped), ("gives", &self.gives)];
        let mut said = words.iter().filter_map(|(word, text)| Some(format!("{word}: {}", text.as_ref()?)));
        let (Some(expected), None) = (said.next(), said.next()) else { panic!("{}: one outcome, please", self.name) };
        expected
    }

    fn load(&self, sandbox: &Sandbox, registry: &Arc<Registry>) -> Result<ComponentStep, SandboxError> {
        let (file, options) = match &self.guest {
            None => ("hostile.wasm", json!({ "attack": self.name })),
            Some(guest) => (guest.as_str(), json!({})),
        };
        let bytes = std::fs::read(root().join("guest-examples/hostile").join(file)).unwrap();
        let mut limits = limits();
        // An attack with another expected end reaches it, however slow the machine is.
        if !self.expected().ends_with("(time)") {
            limits.time = Duration::from_mins(1);
        }
        let config = ComponentConfig { options, limits, ..ComponentConfig::default() };
        sandbox.load(&bytes, config, registry)
    }

    /// Makes the attack, ready to be struck again and again.
    pub fn prepare<'a>(&'a self, sandbox: &'a Sandbox, registry: &'a Arc<Registry>) -> Prepared<'a> {
        let input = self
            .input
            .map_or(Value::from(""), |mib| gpux_core::Tensor::new([mib << 20], vec![1_u8; mib << 20]).unwrap().into());
        Prepared { attack: self, sandbox, registry, input, step: self.load(sandbox, registry).ok() }
    }
}

/// An attack that can be struck.
pub struct Prepared<'a> {
    attack: &'a Attack,
    sandbox: &'a Sandbox,
    registry: &'a Arc<Registry>,
    input: Value,
    /// none where loading it is the attack
    step: Option<ComponentStep>,
}

impl Prepared<'_> {
    pub fn strike(&self) -> Outcome {
        let (begin, begin_processor) = (Instant::now(), processor_time());
        let (text, deadline) = match &self.step {
            None => match self.attack.load(self.sandbox, self.registry) {
                Ok(_) => panic!("{}: it was accepted at the second try", self.attack.name),
                Err(error) => (format!("refused: {}", short(&error.to_string())), None),
            },
            Some(step) => match step.run(vec![Some(self.input.clone())], &mut Context::default()) {
                Ok(values) => (format!("gives: {}", shown(&values)), None),
                Err(failure) => (format!("stopped: {}", short(&failure.to_string())), limit(&failure)),
            },
        };
        let processor_time = processor_time().saturating_sub(begin_processor);
        Outcome { text, time: begin.elapsed(), processor_time, deadline }
    }
}

/// The remedy that every limit names is held elsewhere.
fn short(error: &str) -> String {
    error.split("; raise it with").next().unwrap_or_default().to_owned()
}

fn shown(values: &[Value]) -> String {
    let shown = values.iter().map(|value| match value {
        Value::Text(text) => text.to_string(),
        Value::Tensor(tensor) => format!("{tensor:?}"),
        other => other.type_name().to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn limit(failure: &StepFailure) -> Option<Duration> {
    matches!(failure, StepFailure::Limit(LimitExceeded { limit, .. }) if limit == "time").then(|| limits().time)
}
