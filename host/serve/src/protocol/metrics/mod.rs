//! `GET /metrics`.

pub(crate) mod json;
mod process;
pub(crate) mod prometheus;
mod triton;
mod writer;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue};

use super::http::accept::Accept;
use super::http::response;
use crate::protocol::metrics::json::to_json;
use crate::protocol::metrics::prometheus::{MetricsFormat, to_text};
use crate::{ServeError, Server};

/// All metrics as JSON, unless the client prefers a Prometheus text format.
pub(crate) async fn metrics(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    let asked = server.clone();
    let made = server.scrapes().run(move || {
        let Some(exposition) = wanted(&headers) else { return response::json(&to_json(&asked)) };
        match to_text(&asked, exposition) {
            Ok(text) => response::bytes(HeaderValue::from_static(exposition.media_type()), text),
            Err(error) => response::error(&ServeError::Body(error.to_string())),
        }
    });
    made.await.unwrap_or_else(|error| response::error(&error))
}

/// The text format that the client prefers; `None` for JSON, which also wins ties, as with `*/*`. A scraper that names
/// a text format prefers it to others of the same type.
fn wanted(headers: &HeaderMap) -> Option<MetricsFormat> {
    let accept = Accept::from_headers(headers);
    let json = accept.preference("application/json");
    let texts =
        [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics].map(|text| (accept.preference(text.name()), text));
    texts
        .into_iter()
        .max_by_key(|(preference, _)| *preference)
        .filter(|(preference, _)| *preference > json)
        .map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    #[test]
    fn scrapers_get_text_and_others_json() {
        let wanted = |accept: &'static str| wanted(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]));
        // The headers of Prometheus 2 and 3.
        let two = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                   text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let three = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                     application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;q=0.4";
        assert_eq!([two, three].map(wanted), [Some(MetricsFormat::OpenMetrics); 2]);
        assert_eq!(wanted("text/plain"), Some(MetricsFormat::Prometheus));
        assert_eq!(wanted("application/openmetrics-text;q=0, text/plain"), Some(MetricsFormat::Prometheus));
        // The last is what axios sends.
        for accept in ["*/*", "application/json", "text/html", "text/plain;q=0", "application/json, text/plain, */*"] {
            assert_eq!(wanted(accept), None, "{accept}");
        }
    }
}
