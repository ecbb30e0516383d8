//! Triton's settings for shared memory, logging and traces, read-only.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;
use serde_json::{Value as Json, json};

use super::{PathParameters, answered};
use crate::protocol::http::{body, response};
use crate::protocol::oip::{settings, shared_memory};
use crate::{ServeError, Server};
use gpux_core::BoundedJsonTree;

/// `GET /v2/systemsharedmemory/status`, `…/region/NAME/status`, and the same paths for CUDA.
pub(super) async fn regions(named: PathParameters) -> Response {
    let status = shared_memory::status(&named.region);
    answered(status.map(|()| response::json(&json!([]))))
}

/// `POST …/region/NAME/register`.
pub(super) async fn register(
    State(server): State<Arc<Server>>,
    named: PathParameters,
    request: HttpRequest<Body>,
) -> Response {
    let read = read(&server, request).await;
    answered(Err(read.err().unwrap_or_else(|| shared_memory::register(&named.region))))
}

/// `POST …/unregister`, for one region or for all: succeeds, as there are none.
pub(super) async fn unregister(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    answered(read(&server, request).await.map(|_| Response::default()))
}

/// `GET /v2/logging`.
pub(super) async fn logging(State(server): State<Arc<Server>>) -> Response {
    response::json(&json!(settings::logging(server.settings())))
}

/// `POST /v2/logging`.
pub(super) async fn set_logging(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let updated = async { settings::updated(settings::logging(server.settings()), &read(&server, request).await?) };
    answered(updated.await.map(|settings| response::json(&json!(settings))))
}

/// `GET /v2/trace/setting`, and `GET /v2/models/NAME/trace/setting`.
pub(super) async fn tracing(State(server): State<Arc<Server>>, named: PathParameters) -> Response {
    let settings = settings::tracing(&server, &named.model);
    answered(settings.map(|settings| response::json(&json!(settings))))
}

/// `POST` on the same paths.
pub(super) async fn set_tracing(
    State(server): State<Arc<Server>>,
    named: PathParameters,
    request: HttpRequest<Body>,
) -> Response {
    let updated = async {
        let asked = read(&server, request).await?;
        settings::updated(settings::tracing(&server, &named.model)?, &asked)
    };
    answered(updated.await.map(|settings| response::json(&json!(settings))))
}

/// The object in a body, which may be empty.
async fn read(server: &Server, request: HttpRequest<Body>) -> Result<settings::SettingsMap, ServeError> {
    let (head, body) = request.into_parts();
    let body = body::read_small(&head.headers, body, server).await?;
    if body.trim_ascii().is_empty() {
        return Ok(settings::SettingsMap::new());
    }
    match serde_json::from_slice(&body) {
        Ok(BoundedJsonTree(Json::Object(fields))) => Ok(fields),
        Ok(_) => Err(ServeError::invalid("this is not an object of JSON")),
        Err(error) => Err(ServeError::invalid(format!("not an object of JSON: {error}"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tower::ServiceExt as _;

    use super::*;
    use crate::Settings;
    use crate::protocol::http::body::SMALL;
    use gpux::LoadOptions;

    #[tokio::test]
    async fn bounds_bodies_other_than_inference() {
        let settings = Settings { model_control: true, ..Settings::default() };
        let router = super::super::router(Arc::new(Server::new(settings, LoadOptions::default())));
        for path in [
            "/v2/logging",
            "/v2/trace/setting",
            "/v2/systemsharedmemory/unregister",
            "/v2/cudasharedmemory/region/r/register",
            "/v2/cudasharedmemory/region/r/unregister",
            "/v2/repository/index",
            "/v2/repository/models/x/load",
            "/v2/repository/models/x/unload",
        ] {
            for (size, small) in [(SMALL, true), (SMALL + 1, false)] {
                let request = HttpRequest::post(path).body(Body::from(vec![b' '; size])).unwrap();
                let status = router.clone().oneshot(request).await.unwrap().status().as_u16();
                assert_eq!(status != 413, small, "{path}: {status}");
            }
        }
    }
}
