//! The built-in steps that a component's `configure` prepared.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::limits::bytes;
use gpux_core::Step;

/// The most steps that a component prepares.
const MAX_STEPS: usize = 64;

/// The most bytes of their options together.
const MAX_OPTIONS_SIZE: usize = 4 << 20;

/// The name and the options of a prepared step, as they travel with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PreparedCall {
    pub(super) name: String,
    pub(super) options: String,
}

/// A prepared step.
struct PreparedStep {
    call: PreparedCall,
    step: Arc<dyn Step>,
}

/// The prepared steps of one component: their numbers are their positions.
#[derive(Clone, Default)]
pub(super) struct PreparedSteps {
    steps: Vec<Arc<PreparedStep>>,
    options_size: usize,
}

impl PreparedSteps {
    /// Prepares the steps that another process prepared, under the same checks. `build` checks and builds one.
    pub(super) fn rebuild(
        calls: Vec<PreparedCall>,
        build: impl Fn(&PreparedCall) -> Result<Arc<dyn Step>, String>,
    ) -> Result<Self, String> {
        let mut prepared = Self::default();
        for call in calls {
            prepared.prepare(call, &build, None)?;
        }
        Ok(prepared)
    }

    /// Prepares one more step, and gives its number. Where the step of that number in `known` is the same, it is
    /// taken over.
    pub(super) fn prepare(
        &mut self,
        call: PreparedCall,
        build: impl FnOnce(&PreparedCall) -> Result<Arc<dyn Step>, String>,
        known: Option<&Self>,
    ) -> Result<u32, String> {
        let number = self.steps.len();
        if number >= MAX_STEPS {
            return Err(format!("a component prepares at most {MAX_STEPS} steps; prepare each once, in `configure`"));
        }
        let options_size = self.options_size.saturating_add(call.options.len());
        if options_size > MAX_OPTIONS_SIZE {
            let most = bytes(MAX_OPTIONS_SIZE);
            return Err(format!(
                "the options of all prepared steps are {options_size} bytes; at most {most} are allowed"
            ));
        }
        let known = known.and_then(|known| known.steps.get(number)).filter(|known| known.call == call);
        let prepared = if let Some(known) = known {
            known.clone()
        } else {
            let step = build(&call)?;
            Arc::new(PreparedStep { call, step })
        };
        self.options_size = options_size;
        self.steps.push(prepared);
        Ok(number as u32)
    }

    /// The name of the step of this number, and the step.
    pub(super) fn get(&self, number: u32) -> Result<(&str, &Arc<dyn Step>), String> {
        let prepared = usize::try_from(number).ok().and_then(|index| self.steps.get(index));
        let prepared = prepared.ok_or_else(|| {
            format!("there is no prepared step {number}; `configure` prepared {}, numbered from 0", self.steps.len())
        })?;
        Ok((&prepared.call.name, &prepared.step))
    }

    /// What to prepare again from.
    pub(super) fn calls(&self) -> Vec<PreparedCall> {
        self.steps.iter().map(|prepared| prepared.call.clone()).collect()
    }
}
