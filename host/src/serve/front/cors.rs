//! Pages of other origins: `--cors`.

use http::{HeaderValue, Method};
use tower_http::cors::{Any, CorsLayer, ExposeHeaders};

/// What lets pages of these origins read answers; `None` for no origin. Browsers' questions before a
/// request are answered before any key is asked for: they carry none.
pub(super) fn layer(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let exposed = ["x-request-id", "x-tensor-type", "x-tensor-shape", "retry-after", "inference-header-content-length"];
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(Any)
        .expose_headers(ExposeHeaders::list(exposed.map(http::HeaderName::from_static)))
        .max_age(std::time::Duration::from_hours(1));
    Some(if origins.iter().any(|origin| origin == "*") {
        layer.allow_origin(Any)
    } else {
        layer.allow_origin(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect::<Vec<_>>())
    })
}
