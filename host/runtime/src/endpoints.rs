//! Which endpoints of other servers' clients a pipeline can answer.

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
}

/// Where a text goes in, and its vector comes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingEndpoint {
    /// the name of the input
    pub text: String,
    /// the name of the output: a tensor of floats, `[size]` or `[1, size]`
    pub vector: String,
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
}

/// The endpoints that gpux.yml names, or those that are clear from the steps. Fails with each that is named and does
/// not fit.
pub(super) fn of(spec: &Spec, plan: &Plan, lineage: &Lineage<'_>) -> Result<Endpoints, Vec<Diagnostic>> {
    let Some(named) = &spec.serving.endpoints else {
        return Ok(Endpoints {
            embeddings: embeddings(plan).filter(|endpoint| lineage.is_embedding(&endpoint.vector)),
            rerank: rerank(plan).filter(|endpoint| (&*endpoint.query, &*endpoint.documents) == ("query", "documents")),
        });
    };

    let (mut endpoints, mut faults) = (Endpoints::default(), Vec::new());
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
    (text.kind == Kind::Text).then(|| EmbeddingEndpoint { text: text.name.clone(), vector: vector.name.clone() })
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
    Some(RerankEndpoint { query: query.name.clone(), documents: documents.name.clone(), takes_list, scores })
}
