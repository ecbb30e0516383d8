//! Asks a server for vectors, as OpenAI's clients do.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use gpux_core::sanitize::sanitize_for_terminal;
use gpux_hub::{HttpLimits, http_agent, read_body};

/// The most bytes of an answer.
const MAX_ANSWER: u64 = 64 << 20;
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// Texts in a request.
const TOGETHER: usize = 16;

/// A client of one server.
pub(super) struct EmbeddingsClient {
    agent: Agent,
    /// without `/v1`
    base: String,
    model: String,
    authorization: Option<HeaderValue>,
}

/// The vectors of texts, with what the server says about them.
pub(super) struct Embeddings {
    pub(super) vectors: Vec<Vec<f64>>,
    /// gpux's servers alone say it
    pub(super) space: Option<String>,
    pub(super) numerics: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
    space: Option<String>,
    numerics: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f64>,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// What gpux says of its only pipeline.
#[derive(Deserialize)]
struct Info {
    name: String,
}

impl EmbeddingsClient {
    /// A client of the server at `url`, with the model that the URL names, else the server's only one.
    pub(super) fn new(url: &str, key: Option<&str>) -> Result<Self, String> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let uri: Uri = address.parse().map_err(|error| format!("{error}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err("a server's address begins with http:// or https://".to_owned());
        }
        let authorization = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}"))).transpose();
        let mut authorization = authorization.map_err(|_| "its key has letters that no header can have".to_owned())?;
        if let Some(key) = &mut authorization {
            key.set_sensitive(true);
        }
        // It follows no redirects: the key goes to this server alone.
        let limits = HttpLimits { answer: ANSWER_LIMIT, stall: ANSWER_LIMIT, body: Some(ANSWER_LIMIT) };
        let agent = http_agent(uri.scheme_str() == Some("https"), limits)?;
        let base = address.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        let mut client = Self { agent, base, model: String::new(), authorization };
        client.model = match query.strip_prefix("model=") {
            Some(model) => model.to_owned(),
            None if query.is_empty() => client.only_model()?,
            None => return Err(format!("`?{query}` is not `?model=NAME`")),
        };
        Ok(client)
    }

    fn get(&self, path: &str) -> Result<Response<Body>, String> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(key) = &self.authorization {
            request = request.header(AUTHORIZATION, key);
        }
        request.call().map_err(|error| error.to_string())
    }

    /// The server's only model. Some servers have one and do not list it; gpux lists its aliases, too.
    fn only_model(&self) -> Result<String, String> {
        let response = self.get("/v1/models")?;
        if response.status() == 404 {
            return Ok("default".to_owned());
        }
        let models: Models = read(response)?;
        match models.data.as_slice() {
            [] => Err("the server has no model that gives embeddings".to_owned()),
            [first] => Ok(first.id.clone()),
            several => {
                let only = self.get("/info").and_then(read::<Info>).ok().map(|info| info.name);
                if let Some(only) = only.filter(|only| several.iter().any(|model| model.id == *only)) {
                    return Ok(only);
                }
                let names: Vec<_> = several.iter().take(20).map(|model| model.id.as_str()).collect();
                let message = "the server has several models, so add `?model=NAME` to its address with one of";
                Err(format!("{message} {}", names.join(", ")))
            }
        }
    }

    /// The vectors of these texts, in their order.
    pub(super) fn embed(&self, texts: &[String]) -> Result<Embeddings, String> {
        let mut all = Embeddings { vectors: Vec::new(), space: None, numerics: None };
        for part in texts.chunks(TOGETHER) {
            let body = json!({ "model": self.model, "input": part, "encoding_format": "float" }).to_string();
            let mut request = self.agent.post(format!("{}/v1/embeddings", self.base));
            request = request.header(CONTENT_TYPE, "application/json");
            if let Some(key) = &self.authorization {
                request = request.header(AUTHORIZATION, key);
            }
            let mut answer: Answer = read(request.send(body).map_err(|error| error.to_string())?)?;
            answer.data.sort_by_key(|item| item.index);
            if !answer.data.iter().map(|item| item.index).eq(0..part.len()) {
                return Err(format!("it gave {} vectors for {} texts", answer.data.len(), part.len()));
            }
            all.vectors.extend(answer.data.into_iter().map(|item| item.embedding));
            (all.space, all.numerics) = (answer.space, answer.numerics);
        }
        let width = all.vectors.first().map_or(0, Vec::len);
        let is_odd = |vector: &Vec<f64>| vector.len() != width || vector.iter().any(|number| !number.is_finite());
        if width == 0 || all.vectors.iter().any(is_odd) {
            return Err("its vectors differ in length, are empty, or have numbers that are not finite".to_owned());
        }
        Ok(all)
    }
}

/// The body of an answer, if it is one of success.
fn read<T: for<'de> Deserialize<'de>>(response: Response<Body>) -> Result<T, String> {
    let status = response.status();
    let bytes = read_body(response, MAX_ANSWER).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("its answer has more than {} MiB", MAX_ANSWER >> 20))?;
    if !status.is_success() {
        let text = String::from_utf8_lossy(&bytes);
        let message = serde_json::from_str::<serde_json::Value>(&text).ok();
        let message = message.and_then(|json| Some(json["error"]["message"].as_str()?.to_owned()));
        let message = message.unwrap_or_else(|| text.chars().take(200).collect());
        let message: String = sanitize_for_terminal(&message).chars().take(500).collect();
        return Err(format!("it answered {status}: {message}"));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("its answer is not that of OpenAI's embeddings: {error}"))
}
