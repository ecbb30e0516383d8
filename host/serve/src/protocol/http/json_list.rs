//! Collects the results of a list.

use axum::response::Response;

use super::response;
use crate::engine::body_budget::RequestBudget;
use crate::engine::memory_charge::Charge;
use crate::engine::request_context::RequestContext;
use crate::{ServeError, Server};
use gpux_core::MemoryPermit;

/// The largest response to a list, in bytes: a request of a few bytes may produce megabytes.
const MAX_RESULTS: usize = 256 << 20;

/// A JSON text that ends in a list, charged to the budget of responses as it grows.
pub(crate) struct JsonList {
    text: Vec<u8>,
    is_empty: bool,
    budget: RequestBudget,
    permit: MemoryPermit,
}

impl JsonList {
    /// The text before the first item, which opens the list.
    pub(crate) fn new(server: &Server, opening: impl Into<Vec<u8>>) -> Result<Self, ServeError> {
        let budget = server.response_budget().for_request();
        let permit = budget.reserve(0)?;
        Ok(Self { text: opening.into(), is_empty: true, budget, permit })
    }

    /// Adds an item.
    pub(crate) fn push(&mut self, item: &[u8]) -> Result<(), ServeError> {
        if !std::mem::take(&mut self.is_empty) {
            self.text.push(b',');
        }
        self.text.extend_from_slice(item);

        let most = MAX_RESULTS.min(self.budget.limit());
        if self.text.len() > most {
            let message = format!("the results of the list take more than {} MiB; send it in parts", most >> 20);
            return Err(ServeError::invalid(message));
        }

        let more = self.text.len().saturating_sub(self.permit.bytes());
        if more > 0 && Charge::ListResults.applies_to(self.text.len()) {
            self.permit.merge(self.budget.reserve(more.max(Charge::ListResults.free_bytes()))?);
        }
        Ok(())
    }

    /// The response, with the text behind the last item, which closes the list.
    pub(crate) fn into_response(mut self, closing: &str) -> Response {
        self.text.extend_from_slice(closing.as_bytes());
        if let Some(context) = RequestContext::current() {
            context.keep_list_permit(self.permit);
        }
        response::bytes(response::JSON, self.text)
    }
}
