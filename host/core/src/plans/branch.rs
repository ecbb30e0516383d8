//! What a request can ask of a plan beside its outputs: values between its steps, and work of their tokenizer.

use super::plan::{Branch, Plan, PlanOutput, Slot};
use super::plan_builder::{mark_device_values, mark_last_reads};
use super::request::Request;
use crate::values::signature::Kind;
use crate::values::tensor::MAX_AXES;
use crate::values::value::Value;

/// The name of the value that selects a branch. No client can give it: requests from outside name declared inputs.
pub const BRANCH: &str = "@branch";

impl Plan {
    /// The plans that a request can select, by their names.
    pub fn branches(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.branches.iter().map(|branch| (branch.name.as_str(), &branch.plan))
    }

    /// Lets requests select another plan, whose steps no observer sees.
    pub fn add_branch(&mut self, name: &str, plan: Self) {
        self.branches.push(Branch { name: name.to_owned(), plan, is_part: false });
    }

    /// Lets requests select the first steps alone, for values that those give: names, and numbers in the plan's frame.
    pub fn add_part(&mut self, name: &str, steps: usize, outputs: Vec<(String, usize)>) {
        let mut steps = self.steps().get(..steps).unwrap_or_default().to_vec();
        mark_last_reads(&mut steps, &outputs, self.slots());
        mark_device_values(&mut steps, &outputs, self.slots());
        let kind = |slot: Slot| {
            let mut kinds = steps.iter().flat_map(|step| step.output_slots().zip(&step.kinds));
            kinds.find(|(given, _)| *given == slot).map_or(Kind::Any, |(_, kind)| kind.clone())
        };
        let outputs = outputs.into_iter().map(|(name, slot)| PlanOutput { name, slot, kind: kind(slot) }).collect();
        let mut plan =
            Self::new(self.inputs().to_owned(), steps, outputs, self.slots(), self.json_depth().max(MAX_AXES));
        plan.internal_inputs.clone_from(&self.internal_inputs);
        self.branches.push(Branch { name: name.to_owned(), plan, is_part: true });
    }

    /// Lets requests give a value to an optional port that nothing else feeds, under a name that is no input of the
    /// pipeline.
    pub fn add_internal_input(&mut self, name: &str, step: usize, port: usize) {
        self.feed(name, step, port);
    }

    /// The branch that a request names, whose name is taken out of it.
    pub(crate) fn take_branch(&self, values: &mut Request) -> Option<&Branch> {
        let index = values.iter().position(|(name, _)| name == BRANCH)?;
        let Value::Text(wanted) = &values[index].1 else { return None };
        let branch = self.branches.iter().find(|branch| *branch.name == **wanted)?;
        values.remove(index);
        Some(branch)
    }
}
