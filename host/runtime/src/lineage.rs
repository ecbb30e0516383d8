//! Traces values back through the built-in steps that produced them.

use gpux_config::{Action, StepSpec};
use gpux_core::{ElementSet, Kind, Plan, PlannedStep, TensorKind};

/// Steps that move or drop elements without changing them.
const REARRANGING_STEPS: [&str; 9] =
    ["concat", "expand", "pad-tensor", "reshape", "slice", "split", "squeeze", "stack", "transpose"];

/// The origins of a plan's values.
pub(super) struct Lineage<'p> {
    specs: &'p [StepSpec],
    plan: &'p Plan,
}

impl<'p> Lineage<'p> {
    /// The `plan` was built from `specs`, step by step.
    pub(super) const fn new(specs: &'p [StepSpec], plan: &'p Plan) -> Self {
        Self { specs, plan }
    }

    /// Of the plans that steps run for each item.
    fn inner(&self) -> impl Iterator<Item = Self> {
        let steps = self.plan.steps().iter().zip(self.specs);
        steps.filter_map(|(step, spec)| Some(Self::new(spec.inner(), step.inner_plan()?)))
    }

    /// The outputs whose scores are probabilities, because they come from `softmax` or `sigmoid`.
    pub(super) fn probabilities(&self) -> impl Iterator<Item = &'p str> {
        let outputs = self.plan.outputs().iter().filter(|output| {
            let listed = match self.producer(output.slot()) {
                Some((step, "top-k" | "threshold")) => step.input_slots().next().flatten(),
                _ => Some(output.slot()),
            };
            listed.is_some_and(|number| self.is_probability(number))
        });
        outputs.map(|output| output.name.as_str())
    }

    /// Whether an output is one vector for a text, because it comes from a step that pools or normalizes vectors.
    pub(super) fn is_embedding(&self, output: &str) -> bool {
        const MAKERS: [&str; 4] = ["cls-pool", "l2-normalize", "mean-pool", "pool"];
        let output = self.plan.outputs().iter().find(|known| known.name == output);
        let maker = output.and_then(|output| self.producer(output.slot()));
        maker.is_some_and(|(_, step)| MAKERS.contains(&step))
    }

    /// Whether an output is scaled to length 1 as the last thing.
    pub(super) fn has_unit_length(&self, output: &str) -> bool {
        let output = self.plan.outputs().iter().find(|known| known.name == output);
        let maker = output.and_then(|output| self.producer(output.slot()));
        maker.is_some_and(|(step, tag)| tag == "l2-normalize" && step.step.details()["axis"] == -1)
    }

    /// The step that makes one vector of those of the tokens, with its tag.
    pub(super) fn pooling(&self, slot: usize) -> Option<(&'p PlannedStep, &'p str)> {
        const POOLS: [&str; 3] = ["cls-pool", "mean-pool", "pool"];
        match self.producer(slot)? {
            found @ (_, tag) if POOLS.contains(&tag) => Some(found),
            (step, tag) if ["l2-normalize", "cast"].contains(&tag) || REARRANGING_STEPS.contains(&tag) => {
                self.pooling(step.input_slots().next().flatten()?)
            }
            _ => None,
        }
    }

    /// What `softmax` or `sigmoid` read, if a value comes from them.
    pub(super) fn before_probability(&self, slot: usize) -> Option<usize> {
        match self.producer(slot)? {
            (step, "softmax" | "sigmoid") => step.input_slots().next().flatten(),
            (step, "cast") => self.before_probability(step.input_slots().next().flatten()?),
            _ => None,
        }
    }

    /// The built-in steps with their numbers, from 0, and tags.
    pub(super) fn built_in_steps(&self) -> impl Iterator<Item = (usize, &'p PlannedStep, &'p str)> {
        let steps = self.plan.steps().iter().zip(self.specs).enumerate();
        steps
            .filter(|(_, (_, spec))| matches!(spec.action, Action::BuiltIn(_)))
            .map(|(index, (step, spec))| (index, step, spec.tag.value.as_str()))
    }

    /// A warning for each image of whole numbers that a model of floats is given as it was decoded.
    pub(super) fn unscaled_images(&self) -> Vec<String> {
        let steps = self.plan.steps().iter().zip(self.specs);
        let models = steps.filter(|(_, spec)| matches!(spec.action, Action::Model(_))).map(|(step, _)| step);
        let own = models.flat_map(|model| self.unscaled_inputs(model));
        own.chain(self.inner().flat_map(|inner| inner.unscaled_images())).collect()
    }

    fn unscaled_inputs(&self, model: &PlannedStep) -> Vec<String> {
        let ports = model.step.signature().inputs.iter().zip(model.input_slots());
        let warning = |(port, number): (&gpux_core::Port, Option<usize>)| {
            let number = number.filter(|number| self.is_unscaled_image(*number))?;
            let (_, changes) = model.conversions.iter().find(|(name, _)| *name == port.name)?;
            let to = changes.iter().find_map(|change| change.strip_prefix("cast to "))?;
            let elements = self.tensor(number)?.elements;
            to.contains("float").then(|| {
                format!(
                    "the {} takes {to}, but `{}` is an image of {elements} whose values no step has scaled: add what \
                     the model was trained with before it, such as `- normalize: {{ method: imagenet }}`, or \
                     `- normalize: {{ scale: 0.00392157 }}` for 0 to 1; where the model takes such values, say so with \
                     `- cast: {{ to: {to} }}`",
                    model.name, port.name
                )
            })
        };
        ports.filter_map(warning).collect()
    }

    /// A warning for each tokenizer that has more tokens than the table of the model that they go to has rows; `limit`
    /// gives the rows by model and input.
    pub(super) fn oversized_vocabularies(&self, limit: &dyn Fn(Option<&str>, &str) -> Option<u64>) -> Vec<String> {
        let mut warnings: Vec<_> = self.inner().flat_map(|inner| inner.oversized_vocabularies(limit)).collect();
        for (step, spec) in self.plan.steps().iter().zip(self.specs) {
            let Action::Model(call) = &spec.action else { continue };
            let model = call.name.as_ref().map(|name| name.value.as_str());
            for (port, number) in step.step.signature().inputs.iter().zip(step.input_slots()) {
                let (Some(number), Some(rows)) = (number, limit(model, &port.name)) else { continue };
                let Some((tokenizer, "tokenize" | "chunk")) = self.producer(number) else { continue };
                let is_ids = tokenizer.output_slots().next() == Some(number);
                let tokens = tokenizer.step.details()["vocabulary"].as_u64().unwrap_or(0);
                if is_ids && tokens > rows {
                    warnings.push(format!(
                        "the vocabulary of `{}` has {tokens} tokens, but `{}` has a table of {rows}: is the tokenizer another \
                         model's?",
                        tokenizer.name, step.name
                    ));
                }
            }
        }
        warnings
    }

    /// The built-in step that gave the value, with its tag.
    pub(super) fn producer(&self, number: usize) -> Option<(&'p PlannedStep, &'p str)> {
        let mut steps = self.plan.steps().iter().zip(self.specs);
        let (step, spec) = steps.find(|(step, _)| step.output_slots().any(|given| given == number))?;
        matches!(spec.action, Action::BuiltIn(_)).then_some((step, spec.tag.value.as_str()))
    }

    fn tensor(&self, number: usize) -> Option<&'p TensorKind> {
        let inputs = self.plan.inputs();
        let kind = match inputs.get(number) {
            Some(input) => &input.port.kind,
            None => self.plan.steps().iter().find_map(|step| {
                let mut values = step.output_slots().zip(&step.kinds);
                values.find(|(given, _)| *given == number).map(|(_, kind)| kind)
            })?,
        };
        if let Kind::Tensor(kind) = kind { Some(kind) } else { None }
    }

    fn is_probability(&self, number: usize) -> bool {
        match self.producer(number) {
            Some((_, "softmax" | "sigmoid")) => true,
            // The mean, or the largest, of probabilities is one.
            Some((step, "cast" | "join")) => {
                step.input_slots().next().flatten().is_some_and(|read| self.is_probability(read))
            }
            Some((step, tag)) if REARRANGING_STEPS.contains(&tag) => {
                step.input_slots().flatten().all(|read| self.is_probability(read))
            }
            _ => false,
        }
    }

    fn is_unscaled_image(&self, number: usize) -> bool {
        let Some(kind) = self.tensor(number) else { return false };
        if kind.elements.intersection(ElementSet::integers()) != kind.elements {
            return false;
        }
        match self.producer(number) {
            Some((_, "decode-image")) => true,
            Some((_, "cast")) => false,
            Some((step, tag)) if kind.layout.is_some() || REARRANGING_STEPS.contains(&tag) => {
                step.input_slots().next().flatten().is_some_and(|read| self.is_unscaled_image(read))
            }
            Some(_) => false,
            // An input of the pipeline, or an output of a component.
            None => kind.layout.is_some(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::path::PathBuf;

    use crate::internal::Definition;
    use crate::{LoadOptions, Pipeline};
    use gpux_config::Variables;

    fn open(text: &str) -> Pipeline {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/gpux.yml"));
        let text = format!("name: t\nversion: 1.0.0\n{text}");
        let (document, spec) =
            gpux_config::parse("gpux.yml", text, &Variables::empty(), &crate::source::check_step).unwrap();
        Pipeline::load(Definition::new(path, document, spec), &LoadOptions::default()).unwrap()
    }

    #[test]
    fn scores_are_probabilities_only_after_softmax_or_sigmoid() {
        for (steps, expected) in [
            ("softmax, top-k", true),
            ("sigmoid, threshold", true),
            ("softmax, squeeze, cast: { to: float64 }, top-k", true),
            ("softmax, { transpose: { axes: [1, 0] } }", true),
            ("top-k", false),
            ("softmax, { scale: { factor: 2 } }, top-k", false),
            ("l2-normalize, { cosine: { vectors: [[1, 0, 0]] } }", false),
            ("softmax, argmax", false),
        ] {
            let steps = steps.replace("cast: { to: float64 }", "{ cast: { to: float64 } }");
            let pipeline = open(&format!("inputs: {{ x: {{ type: float32, shape: [1, 3] }} }}\npipeline: [{steps}]\n"));
            let name = &pipeline.plan().outputs()[0].name;
            assert_eq!(pipeline.is_probability(name), expected, "{steps}");
        }
    }

    #[test]
    fn warns_of_unscaled_integer_images() {
        let warnings = |steps: &str| {
            let pipeline = open(&format!("model: {{ source: ./colors.onnx }}\npipeline: [{steps}]\n"));
            pipeline.warnings().iter().filter(|warning| warning.contains("no step has scaled")).count()
        };
        for (steps, expected) in [
            ("decode-image, model", 1),
            ("decode-image, { resize: { size: 4 } }, model", 1),
            ("decode-image, { transpose: { axes: [2, 0, 1] } }, { expand: { axes: 0 } }, model", 1),
            ("decode-image, { normalize: { scale: 0.5 } }, model", 0),
            ("decode-image, to-tensor, model", 0),
            ("decode-image, { cast: { to: float32 } }, model", 0),
            ("decode-image, { cast: { to: int16 } }, model", 0),
            ("decode-image, { scale: { factor: 0.5 } }, model", 0),
        ] {
            assert_eq!(warnings(steps), expected, "{steps}");
        }
    }
}
