//! Texts become vectors.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{Stream, StreamExt as _};
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::named;
use super::{TextInput, Wanted, floats, run_each, unfit};
use crate::protocol::http::json_list::JsonList;
use crate::{Execution, LoadedPipeline, RequestOptions, ServeError, Server};
use gpux::internal::{EmbeddingEndpoint, MASK, TOKEN_VECTORS};
use gpux_core::{Outputs, Request, Tensor, Value, encoded_size, write_json};

/// How the numbers of a vector are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    /// as a list
    #[default]
    Float,
    /// as the base64 of 32-bit floats, little-endian
    Base64,
}

/// The vectors that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vectors {
    pub(crate) encoding: Encoding,
    /// the first so many numbers alone, scaled to length 1 again
    pub(crate) dimensions: Option<usize>,
    /// whether it is scaled to length 1
    pub(crate) normalize: bool,
}

impl Vectors {
    /// Runs each text, and adds what `write` makes of its number and its encoded vector to the list.
    pub(crate) async fn collect(
        self,
        server: &Server,
        loaded: &Arc<LoadedPipeline>,
        endpoint: EmbeddingEndpoint,
        (options, texts, wanted): (RequestOptions, Vec<TextInput>, &Wanted),
        list: &mut JsonList,
        write: impl Fn(usize, &[u8]) -> Vec<u8>,
    ) -> Result<(), ServeError> {
        let name = endpoint.vector.clone();
        let finish = move |execution: &Execution, (), outputs: Outputs| {
            execution.reserve_response(outputs.iter().map(|(_, value)| value), || {
                outputs.iter().map(|(_, value)| encoded_size::json(value)).sum()
            })?;
            self.encode(&vector(outputs, &name)?)
        };
        let (options, prepare) = (options_for(options, &texts), inputs_of(&endpoint, wanted));
        let mut results = std::pin::pin!(run_each(server, loaded, options, texts, prepare, finish));
        let mut index = 0;
        while let Some(result) = results.next().await {
            list.push(&write(index, &result?))?;
            index += 1;
        }
        wanted.check()
    }

    fn encode(self, numbers: &[f32]) -> Result<Vec<u8>, ServeError> {
        let wanted = self.dimensions.unwrap_or(numbers.len());
        let cut = numbers.get(..wanted).filter(|cut| !cut.is_empty());
        let cut = cut.ok_or_else(|| ServeError::invalid(format!("`dimensions` is 1 to {}", numbers.len())))?;
        let numbers = if self.normalize || self.dimensions.is_some() { normalized(cut) } else { cut.to_vec() };
        Ok(match self.encoding {
            Encoding::Float => {
                let mut text = Vec::with_capacity(numbers.len() * 14);
                let vector = Tensor::new([numbers.len()], numbers).map_err(|error| unfit(error.to_string()))?;
                write_json(&Value::from(vector), &mut text);
                text
            }
            Encoding::Base64 => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                format!("\"{}\"", BASE64_STANDARD.encode(bytes)).into_bytes()
            }
        })
    }
}

/// Runs each text, and gives their vectors in order.
pub(crate) fn vectors<'a>(
    server: &'a Server,
    loaded: &'a Arc<LoadedPipeline>,
    endpoint: &EmbeddingEndpoint,
    (options, texts, wanted): (RequestOptions, Vec<TextInput>, &Wanted),
) -> impl Stream<Item = Result<Vec<f32>, ServeError>> + use<'a> {
    let (options, prepare, name) = (options_for(options, &texts), inputs_of(endpoint, wanted), endpoint.vector.clone());
    run_each(server, loaded, options, texts, prepare, move |_, (), outputs| vector(outputs, &name))
}

/// The inputs of a text.
fn inputs_of(
    endpoint: &EmbeddingEndpoint,
    wanted: &Wanted,
) -> impl Fn(&Execution, TextInput) -> Result<(Request, ()), ServeError> + Clone + Send + use<> {
    let (name, wanted) = (endpoint.text.clone(), wanted.clone());
    move |execution, text| {
        let text = text.into_text(execution)?;
        Ok((wanted.request(vec![named(&name, text)]), ()))
    }
}

/// Numbers of tokens are made a text by a run of the pipeline, for which no I/O thread may wait.
fn options_for(options: RequestOptions, texts: &[TextInput]) -> RequestOptions {
    let has_ids = texts.iter().any(|text| matches!(text, TextInput::Ids(_)));
    RequestOptions { body_bytes: options.body_bytes.filter(|_| !has_ids), ..options }
}

/// The vectors of the tokens of each text, as JSON, in order. Padding is left out.
pub(crate) fn token_vectors<'a>(
    server: &'a Server,
    loaded: &'a Arc<LoadedPipeline>,
    endpoint: &EmbeddingEndpoint,
    (options, texts, wanted): (RequestOptions, Vec<TextInput>, &Wanted),
) -> impl Stream<Item = Result<Vec<u8>, ServeError>> + use<'a> {
    let (name, wanted, options) = (endpoint.text.clone(), wanted.clone(), options_for(options, &texts));
    let prepare = move |execution: &Execution, text: TextInput| {
        let text = text.into_text(execution)?;
        Ok((wanted.branch(TOKEN_VECTORS, vec![named(&name, text)]), ()))
    };
    run_each(server, loaded, options, texts, prepare, |execution, (), outputs| {
        execution.reserve_response(outputs.iter().map(|(_, value)| value), || {
            outputs.iter().map(|(_, value)| encoded_size::json(value)).sum()
        })?;
        rows(outputs)
    })
}

/// The rows of `[1, tokens, size]` that the mask counts.
fn rows(outputs: Outputs) -> Result<Vec<u8>, ServeError> {
    let mask = outputs.iter().any(|(name, _)| name == MASK).then(|| floats(outputs.clone(), MASK)).transpose()?;
    let tensor = floats(outputs, TOKEN_VECTORS)?;
    let [1, tokens, size] = *tensor.shape() else {
        let message = format!("the vectors of tokens have the shape {:?}, which is not one text's", tensor.shape());
        return Err(unfit(message));
    };
    let counts = mask.as_ref().and_then(|mask| mask.as_slice::<f32>()).filter(|counts| counts.len() == tokens);
    let numbers = tensor.as_slice::<f32>().unwrap_or_default();
    let mut text = vec![b'['];
    for (index, row) in numbers.chunks_exact(size.max(1)).enumerate() {
        if counts.is_some_and(|counts| counts[index] == 0.0) {
            continue;
        }
        check_finite(TOKEN_VECTORS, row)?;
        if text.len() > 1 {
            text.push(b',');
        }
        let row = Tensor::new([size], row.to_vec()).map_err(|error| unfit(error.to_string()))?;
        write_json(&Value::from(row), &mut text);
    }
    text.push(b']');
    Ok(text)
}

/// The numbers of the output, which must be one vector of finite numbers.
fn vector(outputs: Outputs, output: &str) -> Result<Vec<f32>, ServeError> {
    let tensor = floats(outputs, output)?;
    let size = tensor.shape().last().copied().unwrap_or(1);
    if tensor.len() != size {
        return Err(unfit(format!("`{output}` has the shape {:?}, which is not one vector", tensor.shape())));
    }
    let numbers = tensor.as_slice::<f32>().unwrap_or_default();
    check_finite(output, numbers)?;
    Ok(numbers.to_vec())
}

fn check_finite(output: &str, numbers: &[f32]) -> Result<(), ServeError> {
    if numbers.iter().all(|number| number.is_finite()) {
        return Ok(());
    }
    Err(unfit(format!("`{output}` has numbers that are not finite")))
}

/// The numbers, scaled to length 1, unless they have it already but for rounding.
fn normalized(numbers: &[f32]) -> Vec<f32> {
    let length = numbers.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 || (length - 1.0).abs() < 1e-6 {
        return numbers.to_vec();
    }
    numbers.iter().map(|number| (f64::from(*number) / length) as f32).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn encode(shape: &[usize], numbers: &[f32], wanted: Vectors) -> Result<String, String> {
        let tensor = Tensor::new(shape, numbers.to_vec()).unwrap();
        let outputs: Outputs = [("vector".to_owned(), Value::from(tensor))].into_iter().collect();
        let text = vector(outputs, "vector").and_then(|numbers| wanted.encode(&numbers));
        Ok(String::from_utf8(text.map_err(|error| error.to_string())?).unwrap())
    }

    #[test]
    fn leaves_padding_out_of_tokens() {
        let vectors = Tensor::new([1, 3, 2], vec![9.0_f32, 9.0, 1.0, 2.0, 3.0, 4.0]).unwrap();
        let mask = Tensor::new([1, 3], vec![0_i64, 1, 1]).unwrap();
        let both = vec![(TOKEN_VECTORS.to_owned(), vectors.into()), (MASK.to_owned(), mask.into())];
        assert_eq!(rows(both.clone()).unwrap(), b"[[1.0,2.0],[3.0,4.0]]");
        assert_eq!(rows(both[..1].to_vec()).unwrap(), b"[[9.0,9.0],[1.0,2.0],[3.0,4.0]]");
        let odd = Tensor::new([1, 1, 2], vec![1.0_f32, f32::NAN]).unwrap();
        assert!(rows(vec![(TOKEN_VECTORS.to_owned(), odd.into())]).unwrap_err().to_string().contains("not finite"));
        let two = Tensor::new([2, 1, 1], vec![1.0_f32, 2.0]).unwrap();
        assert!(rows(vec![(TOKEN_VECTORS.to_owned(), two.into())]).unwrap_err().to_string().contains("not one text's"));
    }

    #[test]
    fn encodes_one_vector() {
        let float = Vectors { encoding: Encoding::Float, dimensions: None, normalize: false };
        assert_eq!(encode(&[1, 2], &[0.5, -1.0], float).unwrap(), "[0.5,-1.0]");
        assert_eq!(encode(&[2], &[0.5, -1.0], float).unwrap(), "[0.5,-1.0]");
        let base64 = Vectors { encoding: Encoding::Base64, ..float };
        assert_eq!(encode(&[2], &[0.5, -1.0], base64).unwrap(), "\"AAAAPwAAgL8=\"");
        let short = |dimensions| encode(&[3], &[3.0, 4.0, 12.0], Vectors { dimensions: Some(dimensions), ..float });
        assert_eq!(short(2).unwrap(), "[0.6,0.8]");
        let normalized = Vectors { normalize: true, ..float };
        assert_eq!(encode(&[2], &[3.0, 4.0], normalized).unwrap(), "[0.6,0.8]");
        assert_eq!(encode(&[2], &[0.0, 0.0], normalized).unwrap(), "[0.0,0.0]");
        for wrong in [0, 4] {
            assert!(short(wrong).unwrap_err().contains("`dimensions` is 1 to 3"));
        }
        assert!(encode(&[2, 1], &[1.0, 2.0], float).unwrap_err().contains("not one vector"));
        assert!(encode(&[2], &[1.0, f32::NAN], float).unwrap_err().contains("not finite"));
    }
}
