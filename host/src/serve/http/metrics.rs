//! `GET /metrics`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};

use super::answer;
use crate::serve::metrics::{Exposition, to_json, to_text};
use crate::serve::{ServeError, Server};

/// JSON, unless a text of Prometheus' is accepted.
pub(super) async fn metrics(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    let asked = server.clone();
    let made = server.scrapes().make(move || {
        let Some(exposition) = wanted(&headers) else { return answer::json(&to_json(&asked)) };
        match to_text(&asked, exposition) {
            Ok(text) => answer::bytes(HeaderValue::from_static(exposition.media_type()), text),
            Err(error) => answer::error(&ServeError::Body(error.to_string())),
        }
    });
    made.await.unwrap_or_else(|error| answer::error(&error))
}

/// The first of the texts that is named; a scraper names one, whatever else it takes.
fn wanted(headers: &HeaderMap) -> Option<Exposition> {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).find_map(|range| {
        let name = range.split(';').next().unwrap_or_default().trim();
        if name.eq_ignore_ascii_case("application/openmetrics-text") {
            Some(Exposition::OpenMetrics)
        } else if name.eq_ignore_ascii_case("text/plain") {
            Some(Exposition::Prometheus)
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_text_and_everybody_else_json() {
        let wanted = |accept: &'static str| wanted(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]));
        // What Prometheus 2 and 3 send.
        let two = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                   text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let three = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                     application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;q=0.4";
        assert_eq!([two, three].map(wanted), [Some(Exposition::OpenMetrics); 2]);
        assert_eq!(wanted("text/plain"), Some(Exposition::Prometheus));
        assert_eq!(["*/*", "application/json", "text/html"].map(wanted), [None; 3]);
    }
}
