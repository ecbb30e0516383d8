//! The description of a pipeline as JSON, for `gpux inspect` and HTTP.

use serde_json::{Value as Json, json};

use super::pipeline::Pipeline;
use gpux_core::{PlanInput, PlanOutput, PlannedStep, to_json};

impl Pipeline {
    /// Name, inputs, steps with what each gives, outputs, models and engine, as JSON.
    pub fn to_json(&self) -> Json {
        json!({
            "name": self.spec.name.value,
            "version": self.spec.version.value,
            "description": self.spec.description,
            "metadata": self.spec.metadata,
            "path": self.path().display().to_string(),
            "digest": self.source().digest(),
            "engine": self.engine,
            "space": self.space.as_ref().map(|space| &space.digest),
            "numerics": self.space.as_ref().map(|space| &space.numerics),
            "warnings": self.warnings,
            "inputs": self.plan.inputs().iter().map(input).collect::<Vec<_>>(),
            "steps": self.plan.steps().iter().map(step).collect::<Vec<_>>(),
            "outputs": self.plan.outputs().iter().map(|output| self.output(output)).collect::<Vec<_>>(),
            "models": self.models.iter().map(|model| {
                let mut info = model.step.file().info().to_dict();
                info["name"] = json!(model.name);
                info["version"] = json!(self.model_version(&model.name));
                info["provider"] = json!(model.step.provider().name());
                info["precision"] = json!(model.precision.precision);
                if let Some(decision) = &model.precision.decision {
                    info["precision_choice"] = json!(decision);
                }
                info["provider_options"] = model.step.provider_options();
                info["fallbacks"] = json!(model.step.fallbacks());
                info["instances"] = json!(model.step.sessions().instances());
                info["threads"] = json!(model.step.threads());
                info["shares_threads"] = json!(model.step.shares_threads());
                if model.step.sessions().max_concurrency() > model.step.sessions().instances() {
                    info["under_load"] = json!({ "instances": model.step.sessions().max_concurrency(), "threads": 1 });
                }
                info["optimized"] = json!(model.step.is_optimized());
                if let Some(batching) = model.step.batching() {
                    info["batching"] = batching;
                }
                if let Some(ranking) = &model.ranking {
                    info["measured"] = json!(ranking.measured);
                }
                if let Some(optimization) = &model.optimization {
                    info["optimization"] = json!(optimization);
                }
                info
            }).collect::<Vec<_>>(),
        })
    }
}

impl Pipeline {
    fn output(&self, output: &PlanOutput) -> Json {
        let declared = self.spec.outputs.iter().find(|declared| declared.name.value == output.name);
        let labels = self.labels(&output.name);
        json!({
            "name": output.name,
            "type": output.kind.to_string(),
            "labels": (!labels.is_empty()).then_some(labels),
            "description": declared.and_then(|declared| declared.description.as_deref()),
        })
    }
}

fn input(input: &PlanInput) -> Json {
    json!({
        "name": input.port.name,
        "type": input.port.kind.to_string(),
        "required": input.is_required(),
        "default": input.default.as_ref().map(to_json),
        "description": input.port.description,
    })
}

fn step(step: &PlannedStep) -> Json {
    let mut details = step.step.details();
    if !step.conversions.is_empty() {
        details["inserted"] = step.conversions.iter().map(|(port, changes)| (port.clone(), json!(changes))).collect();
    }
    let gives = step.output_names().zip(&step.kinds).enumerate().map(|(index, (name, kind))| {
        let mut gives = json!({ "name": name, "type": kind.to_string() });
        if step.outputs_on_device().get(index) == Some(&true) {
            let memory = step.step.device().and_then(|device| device.output_memory(index));
            gives["stays_on"] = json!(memory.map(ToString::to_string));
        }
        gives
    });
    let mut described = json!({
        "name": step.name,
        "gives": gives.collect::<Vec<_>>(),
        "details": details,
    });
    if let Some(inner) = step.inner_plan() {
        described["steps"] = inner.steps().iter().map(self::step).collect();
    }
    described
}
