//! Documents get scores for a query.

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::{Wanted, floats, json_list, run_each, unfit};
use crate::{Execution, LoadedPipeline, RequestOptions, ServeError, Server};
use gpux::ExecutionProvider;
use gpux::internal::{RAW_SCORES, RerankEndpoint};
use gpux_core::{Outputs, Value};

/// The most documents that run together: those of similar length, as all are padded to the longest.
const TOGETHER: usize = 32;

/// Bytes of text that run together on a processor, about 500 tokens, where all count as the longest. Beyond that, rows
/// no longer fit a core's cache, and each takes longer than alone.
const BYTES_TOGETHER: usize = 2048;

/// The most documents of a request.
const MOST: usize = 10_000;

/// A document with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ranked {
    /// its place in the request
    pub(crate) index: usize,
    pub(crate) score: f32,
}

pub(super) fn sigmoid(number: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(number)).exp())) as f32
}

/// What is ranked, and how.
pub(crate) struct Ranking {
    pub(crate) query: String,
    pub(crate) wanted: Wanted,
    /// whether the model's own scores are wanted
    pub(crate) raw: bool,
}

/// The documents with their scores, the best first. Scores that are not probabilities already get a sigmoid, unless raw
/// ones are wanted.
pub(crate) async fn rank(
    server: &Server,
    loaded: &Arc<LoadedPipeline>,
    endpoint: RerankEndpoint,
    options: RequestOptions,
    Ranking { query, wanted, raw }: Ranking,
    documents: &[String],
) -> Result<Vec<Ranked>, ServeError> {
    if documents.is_empty() || query.is_empty() {
        return Err(ServeError::invalid("the query and the list of documents must not be empty"));
    }
    if documents.len() > MOST {
        return Err(ServeError::invalid(format!("a request has at most {MOST} documents")));
    }
    // The longest first: what is left at the end for one session alone is then short.
    let mut order: Vec<usize> = (0..documents.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(documents[*index].len()));
    let together = |longest: usize| {
        if !endpoint.takes_list {
            return 1;
        }
        let on_processor = loaded.info().models.iter().all(|model| model.provider == ExecutionProvider::Cpu);
        let fitting = BYTES_TOGETHER / (query.len() + documents[longest].len()).max(1);
        if on_processor { fitting.clamp(1, TOGETHER) } else { TOGETHER }
    };
    let mut parts: Vec<Vec<String>> = Vec::new();
    let mut rest = order.as_slice();
    while let Some(longest) = rest.first() {
        let (part, others) = rest.split_at(together(*longest).min(rest.len()));
        parts.push(part.iter().map(|index| documents[*index].clone()).collect());
        rest = others;
    }

    let (scores_of, cut) = (endpoint.clone(), wanted.clone());
    let raw_branch = raw && endpoint.has_raw_scores;
    let prepare = move |_: &Execution, mut texts: Vec<String>| {
        let count = texts.len();
        let endpoint = &scores_of;
        let documents =
            if endpoint.takes_list { json_list(texts) } else { Value::from(texts.pop().unwrap_or_default()) };
        let query = Value::from(query.clone());
        let request = vec![(endpoint.query.clone(), query), (endpoint.documents.clone(), documents)];
        let request = if raw_branch { cut.branch(RAW_SCORES, request) } else { cut.request(request) };
        Ok((request, count))
    };
    let scores_of = endpoint.clone();
    let finish = move |_: &Execution, count: usize, outputs: Outputs| {
        let endpoint = &scores_of;
        let scores = floats(outputs, if raw_branch { RAW_SCORES } else { &endpoint.scores })?;
        let scores =
            scores.as_slice::<f32>().filter(|numbers| numbers.len() == count).map(<[f32]>::to_vec).ok_or_else(
                || unfit(format!("`{}` has the shape {:?} for {count} documents", endpoint.scores, scores.shape())),
            )?;
        match scores.iter().find(|score| !score.is_finite()) {
            Some(score) => Err(unfit(format!("`{}` has the score {score}", endpoint.scores))),
            None => Ok(scores),
        }
    };
    let mut results = std::pin::pin!(run_each(server, loaded, options, parts, prepare, finish));
    let mut ranked = Vec::with_capacity(documents.len());
    let mut places = order.iter();
    while let Some(scores) = results.next().await {
        ranked.extend(scores?.into_iter().zip(&mut places).map(|(score, index)| Ranked { index: *index, score }));
    }
    wanted.check()?;
    ranked.sort_by(|one, other| other.score.total_cmp(&one.score).then(one.index.cmp(&other.index)));
    if !raw && !loaded.info().is_probability(&endpoint.scores) {
        for document in &mut ranked {
            document.score = sigmoid(document.score);
        }
    }
    Ok(ranked)
}
