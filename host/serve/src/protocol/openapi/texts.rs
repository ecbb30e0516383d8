//! The endpoints of other servers' clients, where a pipeline has one.

use std::sync::Arc;

use schemars::JsonSchema;
use serde_json::{Value as Json, json};

use super::answers::{ErrorShape, guarded, response, with_errors};
use super::{Document, get};
use crate::LoadedPipeline;
use crate::protocol::openai::{Embeddings, EmbeddingsRequest, Model, Models};
use crate::protocol::rerank::{self, CohereRequest, CohereResults, JinaRequest, JinaResults};
use crate::protocol::tei::{
    self, Classes, ClassifyRequest, DecodeRequest, EmbedAllRequest, EmbedRequest, RerankRequest, RerankResult,
    SimilarityRequest, Token, TokenizeRequest,
};

/// Error responses of a run.
const ERRORS: [&str; 8] = ["400", "404", "408", "413", "415", "500", "503", "504"];

/// Adds the paths that a pipeline answers.
pub(super) fn paths(document: &mut Document<'_>, loaded: &[Arc<LoadedPipeline>]) {
    let any = |has: fn(&LoadedPipeline) -> bool| loaded.iter().any(|loaded| has(loaded));
    let embeds = any(|loaded| loaded.info().endpoints.embeddings.is_some());
    let ranks = any(|loaded| loaded.info().endpoints.rerank.is_some());
    let classifies = any(|loaded| loaded.info().endpoints.classify.is_some());
    let [embed, ranking, similarity, embed_all, classify, tokenize, decode] = tei::PATHS;
    if embeds || ranks || classifies {
        let schema = document.subschema::<Models>();
        let models = get("openai_models", "The pipelines that have such an endpoint", "all of them", schema);
        document.get("/v1/models", guarded(models, ErrorShape::OpenAi));
        let schema = document.subschema::<Model>();
        let mut model = get("openai_model", "One of them", "it has such an endpoint", schema);
        let schema = json!({ "type": "string", "minLength": 1 });
        model["parameters"] = json!([{ "name": "model", "in": "path", "required": true, "schema": schema }]);
        with_errors(&mut model, ErrorShape::OpenAi, &["404", "503"]);
        document.get("/v1/models/{model}", guarded(model, ErrorShape::OpenAi));
    }
    if embeds {
        let operation =
            run::<EmbeddingsRequest, Embeddings>(document, "embeddings", "Vectors of texts", ErrorShape::OpenAi);
        document.post("/v1/embeddings", operation);
        let operation = run::<EmbedRequest, Vec<Vec<f32>>>(document, "tei_embed", "Vectors of texts", ErrorShape::Tei);
        document.post(embed, operation);
        let summary = "Cosines between a text and others";
        let operation = run::<SimilarityRequest, Vec<f32>>(document, "tei_similarity", summary, ErrorShape::Tei);
        document.post(similarity, operation);
    }
    if any(|loaded| loaded.info().endpoints.embeddings.as_ref().is_some_and(|endpoint| endpoint.has_token_vectors)) {
        let summary = "Vectors of all tokens of texts";
        let operation = run::<EmbedAllRequest, Vec<Vec<Vec<f32>>>>(document, "tei_embed_all", summary, ErrorShape::Tei);
        document.post(embed_all, operation);
    }
    if classifies {
        let summary = "Classes of texts with their scores";
        let operation = run::<ClassifyRequest, Classes>(document, "tei_classify", summary, ErrorShape::Tei);
        document.post(classify, operation);
    }
    if any(|loaded| loaded.info().endpoints.tokenizer.is_some()) {
        let summary = "Tokens of texts";
        let operation = run::<TokenizeRequest, Vec<Vec<Token>>>(document, "tei_tokenize", summary, ErrorShape::Tei);
        document.post(tokenize, operation);
        let operation = run::<DecodeRequest, Vec<String>>(document, "tei_decode", "Texts of tokens", ErrorShape::Tei);
        document.post(decode, operation);
    }
    if ranks {
        let (form, summary) = (ErrorShape::Rerank, "Documents by their scores for a query");
        let [jina, cohere] = rerank::PATHS;
        let operation = run::<JinaRequest, JinaResults>(document, "rerank_jina", summary, form);
        document.post(jina, operation);
        let operation = run::<CohereRequest, CohereResults>(document, "rerank_cohere", summary, form);
        document.post(cohere, operation);
        let operation = run::<RerankRequest, Vec<RerankResult>>(document, "tei_rerank", summary, ErrorShape::Tei);
        document.post(ranking, operation);
    }
}

fn run<Q: JsonSchema, A: JsonSchema>(document: &mut Document<'_>, id: &str, summary: &str, form: ErrorShape) -> Json {
    let request = document.reading.subschema_for::<Q>().to_value();
    let result = document.subschema::<A>();
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "requestBody": { "required": true, "content": { "application/json": { "schema": request } } },
        "responses": { "200": response("the results", result) },
    });
    with_errors(&mut operation, form, &ERRORS);
    guarded(operation, form)
}
