//! The headers in which Text Embeddings Inference tells what a request took.

use std::time::{Duration, Instant};

use axum::response::Response;
use http::{HeaderName, HeaderValue};

use crate::LoadedPipeline;
use crate::engine::request_context::RequestContext;
use gpux_inference::ExecutionProvider;

/// Measures a request from its beginning.
pub(super) struct Timing {
    start: Instant,
    /// characters of its texts
    pub(super) characters: usize,
    /// how many texts it has
    pub(super) texts: usize,
}

impl Timing {
    pub(super) fn start() -> Self {
        Self { start: Instant::now(), characters: 0, texts: 0 }
    }

    /// Counts the texts of the request.
    pub(super) fn count(&mut self, characters: impl Iterator<Item = usize>) {
        for text in characters {
            self.characters += text;
            self.texts += 1;
        }
    }

    /// The response with the headers. Times are whole milliseconds; those of stages are a text's on average.
    pub(super) fn tell(&self, loaded: &LoadedPipeline, mut response: Response) -> Response {
        let Some(context) = RequestContext::current() else { return response };
        let texts = u32::try_from(self.texts.max(1)).unwrap_or(u32::MAX);
        let total = self.start.elapsed();
        let (tokenization, run) = context.run_times();
        let each = |time: Duration| number((time / texts).as_millis());
        let is_on_cpu = loaded.info().models.iter().all(|model| model.provider == ExecutionProvider::Cpu);
        let headers = [
            ("x-compute-type", HeaderValue::from_static(if is_on_cpu { "cpu" } else { "gpu" })),
            ("x-compute-time", number(total.as_millis())),
            ("x-compute-characters", number(self.characters as u128)),
            ("x-compute-tokens", number(context.tokens().into())),
            ("x-total-time", number(total.as_millis())),
            ("x-tokenization-time", each(tokenization)),
            ("x-queue-time", each(context.queued())),
            ("x-inference-time", each(run.saturating_sub(tokenization))),
        ];
        for (name, value) in headers {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
        // A name may have characters that no header takes.
        if let Ok(name) = HeaderValue::try_from(loaded.name()) {
            response.headers_mut().insert(HeaderName::from_static("x-model"), name);
        }
        response
    }
}

fn number(number: u128) -> HeaderValue {
    HeaderValue::from(u64::try_from(number).unwrap_or(u64::MAX))
}
