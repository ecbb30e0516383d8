//! What the endpoints of other servers' clients need beside a pipeline's outputs: values between its steps, and its
//! tokenizer.

use std::sync::Arc;

use super::endpoints::{Endpoints, TokenizerEndpoint};
use super::lineage::Lineage;
use gpux_core::{Kind, Names, Plan, PlanBuilder, PlanInput, PlanOutput, Port, Step, TextOptions, TokenizerRequest};

/// The vectors of tokens, before a step pools them.
pub const TOKEN_VECTORS: &str = "@token_vectors";

/// The scores of classes, before a step lists the best.
pub const SCORES: &str = "@scores";

/// The scores before they become probabilities.
pub const RAW_SCORES: &str = "@raw_scores";

/// The name of which tokens count, beside [`TOKEN_VECTORS`].
pub const MASK: &str = "@mask";

/// Branches to be added to a plan.
#[derive(Default)]
pub(super) struct Branches {
    /// names, with the values that each gives
    parts: Vec<Vec<(&'static str, usize)>>,
    /// the number of the step whose texts requests may say something of
    tokenize: Option<usize>,
    tokenizer: Option<Arc<dyn Step>>,
}

impl Branches {
    /// Finds those that the endpoints can use, and notes them there.
    pub(super) fn find(plan: &Plan, lineage: &Lineage<'_>, endpoints: &mut Endpoints) -> Self {
        let mut branches = Self::default();
        if endpoints.is_empty() {
            return branches;
        }
        let slot = |name: &str| plan.outputs().iter().find(|output| output.name == name).map(PlanOutput::slot);

        if let Some(embeddings) = &mut endpoints.embeddings
            && let Some((step, tag)) = slot(&embeddings.vector).and_then(|slot| lineage.pooling(slot))
        {
            let mut inputs = step.input_slots();
            embeddings.pooling = Some(pooling(tag, &step.step.details()));
            if let Some(vectors) = inputs.next().flatten() {
                embeddings.has_token_vectors = true;
                let mask = inputs.next().flatten().map(|mask| (MASK, mask));
                branches.parts.push([(TOKEN_VECTORS, vectors)].into_iter().chain(mask).collect());
            }
        }
        if let Some(rerank) = &mut endpoints.rerank
            && let Some(raw) = slot(&rerank.scores).and_then(|slot| lineage.before_probability(slot))
        {
            rerank.has_raw_scores = true;
            branches.parts.push(vec![(RAW_SCORES, raw)]);
        }
        if let Some(classify) = &mut endpoints.classify {
            branches.parts.push(vec![(SCORES, classify.scores)]);
            if let Some(raw) = lineage.before_probability(classify.scores) {
                classify.are_probabilities = true;
                branches.parts.push(vec![(RAW_SCORES, raw)]);
            }
        }

        let tokenize = lineage.built_in_steps().find(|(_, _, tag)| *tag == "tokenize");
        if let Some((index, step, _)) = tokenize {
            let details = step.step.details();
            branches.tokenizer = step.step.tokenizer();
            let mut inputs = step.input_slots();
            let [text, pair] = [inputs.next().flatten(), inputs.next().flatten()];
            let is_free = inputs.next() == Some(None);
            branches.tokenize = is_free.then_some(index);
            let name_of = |slot: Option<usize>| Some(plan.inputs().get(slot?)?.port.name.clone());
            let names =
                |json: &serde_json::Value| json.as_object().into_iter().flat_map(|map| map.keys()).cloned().collect();
            endpoints.tokenizer = Some(TokenizerEndpoint {
                takes_options: is_free || plan.signature().port(TextOptions::NAME).is_some(),
                text: name_of(text),
                pair: name_of(pair),
                max_length: details["max_length"].as_u64(),
                prompts: names(&details["prompts"]["prompts"]),
            });
        }
        branches
    }

    /// Adds them.
    pub(super) fn add_to(self, plan: &mut Plan) {
        // Parts have it, too.
        if let Some(step) = self.tokenize {
            plan.add_internal_input(TextOptions::NAME, step, 2);
        }
        for part in self.parts {
            let Some((name, _)) = part.first().copied() else { continue };
            let inputs = plan.inputs().len();
            let gives =
                |slot: usize| plan.steps().iter().position(|step| step.output_slots().any(|given| given == slot));
            let steps = part.iter().filter(|(_, slot)| *slot >= inputs).filter_map(|(_, slot)| gives(*slot)).max();
            let outputs = part.iter().map(|(name, slot)| ((*name).to_owned(), *slot)).collect();
            plan.add_part(name, steps.map_or(0, |step| step + 1), outputs);
        }
        if let Some(plan_of_tokenizer) = self.tokenizer.and_then(tokenizer_plan) {
            plan.add_branch(TokenizerRequest::NAME, plan_of_tokenizer);
        }
    }
}

/// The plan of the tokenizer alone.
fn tokenizer_plan(step: Arc<dyn Step>) -> Option<Plan> {
    let port = Port::new(TokenizerRequest::NAME, Kind::Json);
    let mut builder = PlanBuilder::new(Some(vec![PlanInput { port, default: None, columns: None }]));
    let names = |name: &str| Names::Ordered(vec![name.to_owned()]);
    let name = TokenizerRequest::NAME;
    builder.push("tokenizer", step, Some(&names(name)), Some(&names(name))).ok()?;
    builder.finish(None).ok()
}

/// The pooling in Text Embeddings Inference's words, where it has one.
fn pooling(tag: &str, details: &serde_json::Value) -> String {
    match (tag, &details["token"], &details["mode"]) {
        ("cls-pool", token, _) if token == "last" => "last_token".to_owned(),
        ("cls-pool", ..) => "cls".to_owned(),
        ("pool", _, serde_json::Value::String(mode)) if mode == "lasttoken" => "last_token".to_owned(),
        ("pool", _, serde_json::Value::String(mode)) => mode.clone(),
        ("pool", _, serde_json::Value::Array(modes)) => {
            modes.iter().filter_map(serde_json::Value::as_str).collect::<Vec<_>>().join("+")
        }
        _ => "mean".to_owned(),
    }
}
