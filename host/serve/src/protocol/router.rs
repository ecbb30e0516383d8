//! Routes of every protocol.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{get, post};
use http::Request;
use tower::Service as _;

use super::http::compression::{self, AcceptedEncodings};
use super::http::response;
use super::route::is_grpc;
use super::{health, metrics, openapi, page, predict};
use super::{oip, openai, rerank, tei};
use crate::engine::error::ServeError;
use crate::engine::metrics::ProtocolLabel;
use crate::engine::server::Server;

/// The handlers of every protocol, by path.
pub(crate) struct Routes(Router);

impl Routes {
    pub(crate) fn new(server: &Arc<Server>) -> Self {
        Self(router(server))
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request<Body>) -> Response {
        let headers = request.headers();
        // The Open Inference Protocol compresses only results, and does so itself.
        let accepted = (!oip::is_path(request.uri().path())).then(|| AcceptedEncodings::from_headers(headers));
        let request = if compression::is_encoded(headers) { compression::decompressed(request) } else { request };
        let Ok(response) = self.0.clone().call(request).await;
        match accepted {
            Some(accepted) => accepted.large(response).await,
            None => response,
        }
    }
}

pub(crate) fn router(server: &Arc<Server>) -> Router {
    let predict = if server.settings().tei_predict { post(tei::predict) } else { post(predict::default_pipeline) };
    let router = Router::new()
        .route("/health", get(health::health))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/info", get(predict::info::default_pipeline))
        .route("/sample", get(predict::info::default_sample))
        .route("/metrics", get(metrics::metrics))
        .route("/predict", predict)
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::start))
        .route("/docs", get(page::docs))
        .route("/page/{file}", get(page::file))
        .route("/pipelines", get(predict::info::all))
        .route("/pipelines/{name}/info", get(predict::info::by_name))
        .route("/pipelines/{name}/sample", get(predict::info::sample_by_name))
        .route("/pipelines/{name}/predict", post(predict::by_name))
        .with_state(server.clone());
    let router = router
        .merge(openai::router(server.clone()))
        .merge(rerank::router(server.clone()))
        .merge(tei::router(server.clone()));
    router.merge(oip::router(server)).fallback(unknown).method_not_allowed_fallback(wrong_method)
}

async fn unknown(uri: http::Uri, headers: http::HeaderMap) -> Response {
    if is_grpc(&headers) {
        return oip::unknown_method(uri.path());
    }
    if let Some(response) = oip::no_such_path(uri.path()) {
        return response;
    }
    let error = ServeError::NotFound(format!("there is nothing at `{}`", uri.path()));
    if ProtocolLabel::of_path(uri.path()) == ProtocolLabel::OpenAi {
        openai::no_such_path(&error)
    } else {
        response::error(&error)
    }
}

async fn wrong_method(method: http::Method, uri: http::Uri) -> Response {
    let error = ServeError::Method(format!("`{}` does not take {method}", uri.path()));
    match ProtocolLabel::of_path(uri.path()) {
        ProtocolLabel::Rerank => rerank::error(&error),
        ProtocolLabel::Tei => tei::error(&error),
        ProtocolLabel::OpenAi => openai::error(&error),
        _ => oip::no_such_method(uri.path(), &method).unwrap_or_else(|| response::error(&error)),
    }
}

impl ProtocolLabel {
    /// The protocol of a path over HTTP.
    pub(crate) fn of_path(path: &str) -> Self {
        if rerank::is_path(path) {
            Self::Rerank
        } else if openai::is_path(path) {
            Self::OpenAi
        } else if tei::is_path(path) {
            Self::Tei
        } else if oip::is_path(path) {
            Self::OipHttp
        } else {
            Self::Http
        }
    }
}
