//! Which endpoints of other servers' clients a pipeline can answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::lineage::Lineage;
use gpux_config::{Diagnostic, Endpoint, Spec};
use gpux_core::{ElementType, Kind, Plan, PlanOutput, Port};

/// The endpoints that a pipeline answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// texts become vectors
    pub embeddings: Option<EmbeddingEndpoint>,
    /// documents get scores for a query
    pub rerank: Option<RerankEndpoint>,
    /// the classes of a text get scores
    pub classify: Option<ClassifyEndpoint>,
    /// how the texts of any of them become tokens; `None` if that is not known
    pub tokenizer: Option<TokenizerEndpoint>,
    /// whether clients may send numbers of tokens in place of texts
    pub token_ids: bool,
}

impl Endpoints {
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.embeddings.is_none() && self.rerank.is_none() && self.classify.is_none()
    }
}

/// How texts become tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerEndpoint {
    /// whether a request may say something of its texts
    pub takes_options: bool,
    /// the input of the pipeline that is tokenized as it is
    pub text: Option<String>,
    /// the input that is the second of a pair
    pub pair: Option<String>,
    /// the most tokens of a text, if it is bounded
    pub max_length: Option<u64>,
    /// the names of its prompts
    pub prompts: Vec<String>,
}

/// Where a text goes in, and its vector comes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingEndpoint {
    /// the name of the input
    pub text: String,
    /// the name of the output: a tensor of floats, `[size]` or `[1, size]`
    pub vector: String,
    /// how the vectors of tokens become one, if a step does it
    pub pooling: Option<String>,
    /// whether a request can ask for the vectors of tokens
    pub has_token_vectors: bool,
}

/// Where a text goes in, and scores of classes come out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassifyEndpoint {
    /// the name of the input
    pub text: String,
    /// the name of the second text's input
    pub pair: Option<String>,
    /// the names of the classes
    pub labels: Vec<String>,
    /// whether the scores are probabilities; others can be asked for then
    pub are_probabilities: bool,
    /// the number of the scores in the plan's frame
    #[serde(skip)]
    pub(super) scores: usize,
}

/// Where a query and documents go in, and the scores come out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RerankEndpoint {
    /// the name of the query's input
    pub query: String,
    /// the name of the documents' input
    pub documents: String,
    /// whether that is a JSON list; otherwise it is one text, and each document a request
    pub takes_list: bool,
    /// the name of the output: a tensor of floats, one for each document
    pub scores: String,
    /// whether the scores are probabilities, and a request can ask for those before
    pub has_raw_scores: bool,
}

/// The endpoints that gpux.yml names, or those that are clear from the steps. Fails with each that is named and does
/// not fit.
pub(super) fn of(
    spec: &Spec,
    plan: &Plan,
    lineage: &Lineage<'_>,
    labels: &BTreeMap<String, Vec<String>>,
) -> Result<Endpoints, Vec<Diagnostic>> {
    let token_ids = spec.serving.token_ids;
    let Some(named) = &spec.serving.endpoints else {
        return Ok(Endpoints {
            token_ids,
            classify: classify(plan, lineage, labels),
            tokenizer: None,
            embeddings: embeddings(plan).filter(|endpoint| lineage.is_embedding(&endpoint.vector)),
            rerank: rerank(plan).filter(|endpoint| (&*endpoint.query, &*endpoint.documents) == ("query", "documents")),
        });
    };

    let (mut endpoints, mut faults) = (Endpoints { token_ids, ..Endpoints::default() }, Vec::new());
    for endpoint in named {
        let (fits, needs) = match endpoint.value {
            Endpoint::Embeddings => {
                endpoints.embeddings = embeddings(plan);
                (
                    endpoints.embeddings.is_some(),
                    "a text as the only input that it needs, and a vector as the only output",
                )
            }
            Endpoint::Rerank => {
                endpoints.rerank = rerank(plan);
                let needs = "a text and a JSON list (or two texts) as inputs, and scores as the only output";
                (endpoints.rerank.is_some(), needs)
            }
            Endpoint::Classify => {
                endpoints.classify = classify(plan, lineage, labels);
                let needs = "a text (or two) as inputs, and scores with labels as the only output: of `top-k` or \
                             `threshold` with `labels`, or of an output with `labels`";
                (endpoints.classify.is_some(), needs)
            }
        };
        if !fits {
            let message = format!("the pipeline does not fit this endpoint, which needs {needs}");
            let hint = format!("it takes {}", plan.signature().describe_inputs());
            faults.push(Diagnostic::new("endpoints", endpoint.span.clone(), message).hint(hint));
        }
    }
    if faults.is_empty() { Ok(endpoints) } else { Err(faults) }
}

fn required(plan: &Plan) -> Vec<&Port> {
    plan.inputs().iter().filter(|input| input.is_required()).map(|input| &input.port).collect()
}

/// The only output, if it is a tensor of floats of at most `rank` axes.
fn floats(plan: &Plan, rank: usize) -> Option<&PlanOutput> {
    let [output] = plan.outputs() else { return None };
    let Kind::Tensor(kind) = &output.kind else { return None };
    let fits = kind.shape.as_ref().is_none_or(|shape| (1..=rank).contains(&shape.len()));
    (fits && kind.element().is_some_and(ElementType::is_float)).then_some(output)
}

fn embeddings(plan: &Plan) -> Option<EmbeddingEndpoint> {
    let inputs = required(plan);
    let [text] = inputs.as_slice() else { return None };
    let vector = floats(plan, 2)?;
    (text.kind == Kind::Text).then(|| EmbeddingEndpoint {
        text: text.name.clone(),
        vector: vector.name.clone(),
        pooling: None,
        has_token_vectors: false,
    })
}

fn rerank(plan: &Plan) -> Option<RerankEndpoint> {
    let inputs = required(plan);
    let [first, second] = inputs.as_slice() else { return None };
    let (query, documents) = match (&first.kind, &second.kind) {
        (Kind::Text, Kind::Json) => (first, second),
        (Kind::Json, Kind::Text) => (second, first),
        (Kind::Text, Kind::Text) if second.name == "query" => (second, first),
        (Kind::Text, Kind::Text) => (first, second),
        _ => return None,
    };
    let scores = floats(plan, 2)?.name.clone();
    let takes_list = documents.kind == Kind::Json;
    let (query, documents) = (query.name.clone(), documents.name.clone());
    Some(RerankEndpoint { query, documents, takes_list, scores, has_raw_scores: false })
}

fn classify(plan: &Plan, lineage: &Lineage<'_>, labels: &BTreeMap<String, Vec<String>>) -> Option<ClassifyEndpoint> {
    let inputs = required(plan);
    let (text, pair) = match inputs.as_slice() {
        [text] => (text, None),
        [text, pair] => (text, Some(pair)),
        _ => return None,
    };
    if text.kind != Kind::Text || pair.is_some_and(|pair| pair.kind != Kind::Text) {
        return None;
    }
    let [output] = plan.outputs() else { return None };
    let (scores, labels) = match lineage.producer(output.slot()) {
        Some((step, "top-k" | "threshold")) => (step.input_slots().next().flatten()?, step.step.class_names().to_vec()),
        _ => (floats(plan, 2)?.slot(), labels.get(&output.name)?.clone()),
    };
    (!labels.is_empty()).then(|| ClassifyEndpoint {
        text: text.name.clone(),
        pair: pair.map(|pair| pair.name.clone()),
        labels,
        are_probabilities: false,
        scores,
    })
}
