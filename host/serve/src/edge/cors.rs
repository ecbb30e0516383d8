//! CORS (`--cors`).

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Method};
use tower_http::cors::{AllowHeaders, Any, CorsLayer, ExposeHeaders};

/// The CORS layer for these origins; `None` without origins. It answers preflight requests before authentication:
/// browsers send them without a key.
pub(crate) fn layer(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let exposed = [
        "x-request-id",
        "x-gpux-truncated",
        "x-gpux-space",
        "x-gpux-numerics",
        "x-tensor-type",
        "x-tensor-shape",
        "retry-after",
        "inference-header-content-length",
    ];
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST])
        // `*` would exclude `Authorization`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(ExposeHeaders::list(exposed.map(http::HeaderName::from_static)))
        .max_age(std::time::Duration::from_hours(1));
    Some(if origins.iter().any(|origin| origin == "*") {
        layer.allow_origin(Any)
    } else {
        layer.allow_origin(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect::<Vec<_>>())
    })
}

/// Whether the request is a CORS preflight.
pub(crate) fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}
