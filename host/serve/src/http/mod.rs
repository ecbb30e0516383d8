//! The HTTP API: `/health`, `/info`, `/predict`, and the same for each of several pipelines.

mod accept;
pub(crate) mod answer;
pub(crate) mod becomes;
pub(super) mod body;
pub(super) mod encoding;
mod health;
mod info;
mod input;
pub(crate) mod members;
mod metrics;
mod morsels;
mod name;
mod openapi;
mod output;
mod page;
mod predict;
mod room;
mod straight;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{get, post};
use http::Request;
use tower::Service as _;

use self::encoding::Accepted;
pub(super) use self::room::{Bodies, Room, Share};
use super::error::ServeError;
use super::front::is_grpc;
use super::oip;
use super::server::Server;
pub(super) use output::{picture, write_fields};

/// What answers requests, by path.
pub(super) struct Routes {
    server: Arc<Server>,
    router: Router,
}

impl Routes {
    /// Every path of every protocol.
    pub(super) fn new(server: &Arc<Server>) -> Self {
        Self { server: server.clone(), router: router(server) }
    }

    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Body>) -> Response {
        let headers = request.headers();
        // The Open Inference Protocol compresses results alone, and by itself.
        let accepted = (!oip::is_path(request.uri().path())).then(|| Accepted::of(headers));
        let response = if encoding::is_encoded(headers) {
            let Ok(response) = self.router.clone().call(encoding::decompressed(request)).await;
            response
        } else if let Some(run) = straight::Run::of(&request) {
            // Boxed: it is large, and would be moved with all that it is part of.
            Box::pin(run.answer(&self.server, request)).await
        } else {
            let Ok(response) = self.router.clone().call(request).await;
            response
        };
        match accepted {
            Some(accepted) => accepted.large(response).await,
            None => response,
        }
    }
}

pub(super) fn router(server: &Arc<Server>) -> Router {
    let router = Router::new()
        .route("/health", get(health::health))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/info", get(info::only))
        .route("/metrics", get(metrics::metrics))
        .route("/predict", post(predict::only))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::start))
        .route("/docs", get(page::docs))
        .route("/page/{file}", get(page::file))
        .route("/pipelines", get(info::all))
        .route("/pipelines/{name}/info", get(info::named))
        .route("/pipelines/{name}/predict", post(predict::named))
        .with_state(server.clone());
    router.merge(oip::router(server)).fallback(unknown).method_not_allowed_fallback(wrong_method)
}

async fn unknown(uri: http::Uri, headers: http::HeaderMap) -> Response {
    if is_grpc(&headers) {
        return oip::no_such_call(uri.path());
    }
    if let Some(response) = oip::no_such_path(uri.path()) {
        return response;
    }
    answer::error(&ServeError::NotFound(format!("there is nothing at `{}`", uri.path())))
}

async fn wrong_method(method: http::Method, uri: http::Uri) -> Response {
    if let Some(response) = oip::no_such_method(uri.path(), &method) {
        return response;
    }
    answer::error(&ServeError::Method(format!("`{}` does not take {method}", uri.path())))
}
