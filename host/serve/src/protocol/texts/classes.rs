//! The classes of texts get scores.

use std::sync::Arc;

use futures_util::Stream;
use schemars::JsonSchema;
use serde::Serialize;

use super::inputs::named;
use super::{Wanted, floats, run_each, unfit};
use crate::{Execution, LoadedPipeline, RequestOptions, ServeError, Server};
use gpux::internal::{ClassifyEndpoint, RAW_SCORES, SCORES};
use gpux_core::{Request, Tensor};

/// A text or a pair of them.
#[derive(Clone)]
pub(crate) struct Sequence {
    pub(crate) text: String,
    pub(crate) pair: Option<String>,
}

/// A class with its score.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Class {
    score: f32,
    label: String,
}

/// The classes of each text, the best first. Scores that are not probabilities become some, unless `raw` ones are
/// wanted: by a softmax, or a sigmoid where there is one class alone.
pub(crate) fn classify<'a>(
    server: &'a Server,
    loaded: &'a Arc<LoadedPipeline>,
    endpoint: ClassifyEndpoint,
    options: RequestOptions,
    texts: Vec<Sequence>,
    (wanted, raw): (Wanted, bool),
) -> impl Stream<Item = Result<Vec<Class>, ServeError>> + use<'a> {
    let name = if raw && endpoint.are_probabilities { RAW_SCORES } else { SCORES };
    let takes = endpoint.clone();
    let prepare = move |_: &Execution, sequence| Ok((wanted.branch(name, inputs(&takes, sequence)?), ()));
    let finish = move |_: &Execution, (), outputs| classes(&floats(outputs, name)?, &endpoint, raw);
    run_each(server, loaded, options, texts, prepare, finish)
}

fn inputs(endpoint: &ClassifyEndpoint, Sequence { text, pair }: Sequence) -> Result<Request, ServeError> {
    let mut inputs = vec![named(&endpoint.text, text)];
    match (&endpoint.pair, pair) {
        (Some(name), Some(pair)) => inputs.push(named(name, pair)),
        (None, None) => {}
        (Some(_), None) => return Err(ServeError::invalid("the pipeline classifies pairs of texts: `[one, other]`")),
        (None, Some(_)) => {
            let message =
                "the pipeline classifies single texts: of several, each is a list of its own, `[[one], [other]]`";
            return Err(ServeError::invalid(message));
        }
    }
    Ok(inputs)
}

fn classes(tensor: &Tensor, endpoint: &ClassifyEndpoint, raw: bool) -> Result<Vec<Class>, ServeError> {
    let numbers = tensor.as_slice::<f32>().unwrap_or_default();
    if numbers.len() != endpoint.labels.len() {
        let message = format!("it has {} labels, but scores of the shape {:?}", endpoint.labels.len(), tensor.shape());
        return Err(unfit(message));
    }
    if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
        return Err(unfit(format!("a score is {number}")));
    }
    let scores = if raw || endpoint.are_probabilities { numbers.to_vec() } else { probabilities(numbers) };
    let class = |(score, label): (f32, &String)| Class { score, label: label.clone() };
    let mut classes: Vec<_> = scores.into_iter().zip(&endpoint.labels).map(class).collect();
    classes.sort_by(|one, other| other.score.total_cmp(&one.score));
    Ok(classes)
}

fn probabilities(numbers: &[f32]) -> Vec<f32> {
    if let [only] = numbers {
        return vec![super::scores::sigmoid(*only)];
    }
    let most = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<_> = numbers.iter().map(|number| f64::from(number - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| (power / sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_a_softmax() {
        assert_eq!(probabilities(&[0.0]), [0.5]);
        assert_eq!(probabilities(&[1000.0, 1000.0]), [0.5, 0.5]);
        // transformers: torch.softmax(torch.tensor([1., 2., 4.]), 0)
        for (ours, right) in probabilities(&[1.0, 2.0, 4.0]).into_iter().zip([0.042_010, 0.114_195, 0.843_795]) {
            assert!((ours - right).abs() < 1e-6, "{ours}");
        }
    }
}
