//! Cache of built-in steps, by name and options.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::limits::json_error;
use super::log::sanitize;
use super::options_schema;
use gpux_core::{BoundedJsonTree, OptionOrigin, Registry, Step, closest};

/// Built-in steps that a component has used, ready to run: checking and reading options costs
/// more than many a step.
#[derive(Default)]
pub(super) struct BuiltinCache(RwLock<HashMap<&'static str, StepsByOptions>>);

type StepsByOptions = HashMap<Box<str>, Arc<dyn Step>>;

/// Bytes of an unknown name that are shown.
pub(super) const MAX_NAME: usize = 200;
/// Options kept for each built-in step; a component that varies them endlessly gains nothing.
const MAX_STEPS: usize = 16;
/// Bytes of options that are kept.
const MAX_OPTIONS_SIZE: usize = 4 << 10;

impl BuiltinCache {
    /// The step `name` with `options`, which take at most `memory` bytes once parsed, or why there is none.
    pub(super) fn get(
        &self,
        registry: &Registry,
        name: &str,
        options: &str,
        depth: usize,
        memory: usize,
    ) -> Result<Arc<dyn Step>, String> {
        let ready = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(step) = ready.get(name).and_then(|ready| ready.get(options)) {
            return Ok(step.clone());
        }
        drop(ready);
        let Some(builtin) = registry.builtin(name) else {
            let near = closest(name, registry.builtins().map(|builtin| builtin.name));
            let hint = near.map_or("`gpux steps` lists them".to_owned(), |near| format!("did you mean `{near}`?"));
            return Err(format!("there is no built-in step `{}`; {hint}", sanitize(name, MAX_NAME)));
        };
        let empty = || Ok(serde_json::Value::Object(serde_json::Map::new()));
        let parse = || BoundedJsonTree::parse(options, depth, memory).map(|(json, _)| json);
        let parsed = if options.is_empty() { empty() } else { parse() };
        let parsed = parsed.map_err(|error| format!("the options of `{name}` are {}", json_error(&error)))?;
        let validator = options_schema::validator((builtin.schema)().as_value())?;
        if let Some(violation) = options_schema::violations(&validator, &parsed).first() {
            return Err(format!("the options of `{name}` do not fit: {}", violation.message));
        }
        let step: Arc<dyn Step> = (builtin.build)(parsed, &OptionOrigin::Component)
            .map_err(|error| format!("the options of `{name}` cannot work: {error}"))?
            .into();
        if options.len() <= MAX_OPTIONS_SIZE {
            let mut ready = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let ready = ready.entry(builtin.name).or_default();
            if ready.len() < MAX_STEPS {
                ready.insert(options.into(), step.clone());
            }
        }
        Ok(step)
    }
}
