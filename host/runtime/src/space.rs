//! Which vectors can lie in one index: those that the same computation gave.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::computation::METADATA;
use super::endpoints::Endpoints;
use super::lineage::Lineage;
use super::models::LoadedModel;
use gpux_config::{Action, ForEachSpec, Overflow, Spec, StepSpec, Wasi, WasmSpec};
use gpux_core::files::digest;
use gpux_core::{Dim, Kind, Plan, PlanOutput, PlannedStep, to_json};
use gpux_inference::{ExecutionProvider, Hardware};

/// Changes when the digest is made in another way, so that it never equals an older one by chance.
const FORM: u32 = 1;

/// Identifies the vectors that a pipeline gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// a digest of all that their numbers depend on: models, tokenizers, steps with their options and defaults. Names,
    /// paths, batching and limits do not change it
    pub digest: String,
    /// what computes them, for people: engine, provider, precision, processor. Where it differs, the numbers of one space
    /// may differ by rounding
    pub numerics: String,
    width: Option<usize>,
    has_unit_length: bool,
}

impl Space {
    /// The space of vectors that an answer cut to their first `dimensions` numbers, or scaled to length 1 (`normalize`).
    pub fn for_answer(&self, dimensions: Option<usize>, normalize: bool) -> Cow<'_, str> {
        match dimensions.filter(|wanted| self.width != Some(*wanted)) {
            Some(wanted) => format!("{}-{wanted}", self.digest).into(),
            None if !self.has_unit_length && (normalize || dimensions.is_some()) => {
                format!("{}-unit", self.digest).into()
            }
            None => Cow::Borrowed(&self.digest),
        }
    }
}

/// A digest of how a value is computed, or why that cannot be known.
type Computation = Result<String, String>;

/// The space of a pipeline that gives vectors. Fails where something that is not known decides on their numbers.
/// `builtins` has the [`computation`](super::computation::describe_builtin) of each built-in step.
pub(super) fn identify(
    spec: &Spec,
    plan: &Plan,
    lineage: &Lineage<'_>,
    endpoints: &Endpoints,
    models: &[LoadedModel],
    builtins: Vec<Json>,
) -> Result<Option<Space>, String> {
    let [output] = plan.outputs() else { return Ok(None) };
    if endpoints.embeddings.is_none() && !lineage.is_embedding(&output.name) {
        return Ok(None);
    }
    let mut describer = Describer { models, builtins: builtins.into_iter() };
    let inputs = plan.inputs().iter().enumerate().map(|(index, input)| {
        let default = input.default.as_ref().map(to_json);
        Ok(computation(json!({ "form": FORM, "input": index, "default": default })))
    });
    let outputs = describer.outputs(&spec.pipeline, plan, inputs.collect());
    let Some(digest) = outputs.into_iter().next().transpose()? else { return Ok(None) };
    let has_unit_length = lineage.has_unit_length(&output.name);
    Ok(Some(Space { digest, numerics: numerics(models), width: width(output), has_unit_length }))
}

/// Follows values through the steps.
struct Describer<'a> {
    models: &'a [LoadedModel],
    builtins: std::vec::IntoIter<Json>,
}

impl Describer<'_> {
    /// The computations of a plan's outputs.
    fn outputs(&mut self, specs: &[StepSpec], plan: &Plan, inputs: Vec<Computation>) -> Vec<Computation> {
        let mut values: BTreeMap<usize, Computation> = inputs.into_iter().enumerate().collect();
        for (step, spec) in plan.steps().iter().zip(specs) {
            let value = |slot: usize| values.get(&slot).cloned().unwrap_or_else(|| Err("a value is lost".to_owned()));
            let reads: Vec<_> = step.input_slots().map(|slot| slot.map(value)).collect();
            let when = step.condition().map(|(condition, slot)| (condition.comparison(), value(slot)));
            let given = self.step(spec, step, &reads, when);
            values.extend(step.output_slots().zip(given));
        }
        let output = |output: &PlanOutput| values.remove(&output.slot());
        plan.outputs().iter().filter_map(output).collect()
    }

    /// The computations of what a step gives.
    fn step(
        &mut self,
        spec: &StepSpec,
        step: &PlannedStep,
        reads: &[Option<Computation>],
        when: Option<(String, Computation)>,
    ) -> Vec<Computation> {
        let outputs = step.output_slots().count();
        let work = match &spec.action {
            Action::BuiltIn(_) => vec![self.builtin(); outputs],
            Action::Model(call) => {
                let name = call.name.as_ref().map(|name| name.value.as_str());
                vec![self.model(name).map(|digest| json!({ "model": digest })); outputs]
            }
            Action::Wasm(wasm) => vec![self.component(wasm, step); outputs],
            Action::ForEach(for_each) => self.for_each(for_each, step, reads),
        };
        let context = || {
            let reads = reads.iter().cloned().map(Option::transpose).collect::<Result<Vec<_>, _>>()?;
            let when = when.as_ref().map(|(comparison, value)| Ok::<_, String>(json!([comparison, value.clone()?])));
            Ok::<_, String>(json!({ "reads": reads, "when": when.transpose()?, "conversions": step.conversions }))
        };
        let context = context();
        let outputs = work.into_iter().enumerate().map(|(index, work)| {
            Ok(computation(json!({ "work": work?, "output": index, "context": context.clone()? })))
        });
        outputs.collect()
    }

    fn builtin(&mut self) -> Result<Json, String> {
        let mut work = self.builtins.next().ok_or("a step is lost")?;
        if work["contents"].as_array().is_some_and(|contents| contents.contains(&json!(METADATA))) {
            work["models"] = self.models.iter().map(|model| model.step.file().digest()).collect();
        }
        Ok(work)
    }

    fn model(&self, name: Option<&str>) -> Result<&str, String> {
        let model = self.models.iter().find(|model| name.is_none_or(|name| name == model.name));
        model.map(|model| model.step.file().digest()).ok_or_else(|| "a model is lost".to_owned())
    }

    fn component(&self, wasm: &WasmSpec, step: &PlannedStep) -> Result<Json, String> {
        let grant = &wasm.grant;
        let outside = [
            (!grant.dirs.is_empty(), "reads folders"),
            (!grant.env.is_empty(), "reads environment variables"),
            (grant.wasi.iter().any(|part| part.value == Wasi::Random), "reads random numbers"),
            (grant.wasi.iter().any(|part| part.value == Wasi::Clock), "reads the clock"),
        ];
        if let Some((_, what)) = outside.into_iter().find(|(granted, _)| *granted) {
            return Err(format!("the component `{}` {what}, so its numbers may change", step.name));
        }
        let details = step.step.details();
        let models = grant.models.iter().map(|name| self.model(Some(&name.value)));
        let models: Vec<_> = models.collect::<Result<_, _>>()?;
        let names = super::builtins();
        let arithmetic: BTreeMap<_, _> = names
            .builtins()
            .map(|builtin| (builtin.name, gpux_steps::arithmetic_version(builtin.name)))
            .filter(|(_, changes)| *changes > 0)
            .collect();
        Ok(json!({
            "component": details["digest"], "options": details["options"], "models": models, "arithmetic": arithmetic,
        }))
    }

    fn for_each(
        &mut self,
        for_each: &ForEachSpec,
        step: &PlannedStep,
        reads: &[Option<Computation>],
    ) -> Vec<Result<Json, String>> {
        let Some(inner) = step.inner_plan() else { return vec![Err("its steps are lost".to_owned())] };
        let input = |(read, (name, _)): (&Option<Computation>, &(gpux_config::Spanned<String>, _))| {
            let is_item = for_each.over.iter().any(|over| over.value == name.value);
            let read = read.clone().transpose()?;
            Ok(computation(json!({ "value": read, "item": is_item })))
        };
        let inputs = reads.iter().zip(&for_each.inputs).map(input).collect();
        let mut outputs = self.outputs(&for_each.steps, inner, inputs);

        // The values of conditions come last.
        let kept = outputs.split_off(outputs.len().saturating_sub(for_each.keep.len()));
        let keep = kept.into_iter().zip(&for_each.keep);
        let keep = keep.map(|(value, keep)| Ok::<_, String>(json!([keep.value.comparison(), value?])));
        let keep = keep.collect::<Result<Vec<_>, _>>();
        let most = (for_each.overflow == Overflow::Truncate).then_some(for_each.max_items);
        let each =
            outputs.into_iter().map(|output| Ok(json!({ "for-each": output?, "keep": keep.clone()?, "most": most })));
        each.collect()
    }
}

/// The digest of a computation, whatever the order of the keys that describe it.
fn computation(work: Json) -> String {
    fn sorted(json: Json) -> Json {
        match json {
            Json::Object(fields) => {
                let fields: BTreeMap<_, _> = fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
                fields.into_iter().collect()
            }
            Json::Array(items) => items.into_iter().map(sorted).collect(),
            other => other,
        }
    }
    digest(sorted(work).to_string())
}

/// The length of an output's vectors, if the plan knows it.
fn width(output: &PlanOutput) -> Option<usize> {
    let Kind::Tensor(kind) = &output.kind else { return None };
    match kind.shape.as_ref()?.last()? {
        Dim::Fixed(width) => Some(*width),
        _ => None,
    }
}

/// Engine, provider and precision of each model, then the processor, then gpux itself.
fn numerics(models: &[LoadedModel]) -> String {
    let hardware = Hardware::detect();
    let of_model = |model: &LoadedModel| {
        let (step, precision) = (&model.step, model.precision.precision);
        let optimized = if step.is_optimized() { " optimized" } else { "" };
        format!("{} {} {precision}{optimized}", step.engine().name(), step.provider())
    };
    let on_gpu = models.iter().any(|model| model.step.provider() != ExecutionProvider::Cpu);
    let gpus = hardware.gpus.iter().filter(|_| on_gpu).map(|gpu| format!("{} {}", gpu.vendor, gpu.name));
    let processor = format!("{} {}", hardware.cpu.arch, hardware.cpu.features.join("+"));
    let version = format!("gpux {}", env!("CARGO_PKG_VERSION"));
    let devices: BTreeSet<_> = models.iter().map(of_model).chain(gpus).collect();
    devices.into_iter().chain([processor.trim_end().to_owned(), version]).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
