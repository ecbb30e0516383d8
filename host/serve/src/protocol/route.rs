//! Route templates of paths: a bounded set of names for traces.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// HTTP paths; a segment in braces matches any segment. Fixed segments precede variable ones that would match them.
const PATHS: [&str; 49] = [
    "/",
    "/docs",
    "/health",
    "/health/live",
    "/health/ready",
    "/info",
    "/metrics",
    "/openapi.json",
    "/page/{file}",
    "/pipelines",
    "/pipelines/{name}/info",
    "/pipelines/{name}/predict",
    "/predict",
    "/v2",
    "/v2/",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models",
    "/v2/models/stats",
    "/v2/models/{model}",
    "/v2/models/{model}/config",
    "/v2/models/{model}/generate",
    "/v2/models/{model}/generate_stream",
    "/v2/models/{model}/infer",
    "/v2/models/{model}/ready",
    "/v2/models/{model}/stats",
    "/v2/models/{model}/versions/{version}",
    "/v2/models/{model}/versions/{version}/config",
    "/v2/models/{model}/versions/{version}/generate",
    "/v2/models/{model}/versions/{version}/generate_stream",
    "/v2/models/{model}/versions/{version}/infer",
    "/v2/models/{model}/versions/{version}/ready",
    "/v2/models/{model}/versions/{version}/stats",
    "/v2/cudasharedmemory/region/{region}/register",
    "/v2/cudasharedmemory/region/{region}/status",
    "/v2/cudasharedmemory/region/{region}/unregister",
    "/v2/cudasharedmemory/status",
    "/v2/cudasharedmemory/unregister",
    "/v2/logging",
    "/v2/models/{model}/trace/setting",
    "/v2/systemsharedmemory/region/{region}/register",
    "/v2/systemsharedmemory/region/{region}/status",
    "/v2/systemsharedmemory/region/{region}/unregister",
    "/v2/systemsharedmemory/status",
    "/v2/systemsharedmemory/unregister",
    "/v2/trace/setting",
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
];

/// gRPC calls.
const CALLS: [&str; 22] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
    "/inference.GRPCInferenceService/ModelReady",
    "/inference.GRPCInferenceService/ServerMetadata",
    "/inference.GRPCInferenceService/ModelMetadata",
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/inference.GRPCInferenceService/ModelConfig",
    "/inference.GRPCInferenceService/ModelStatistics",
    "/inference.GRPCInferenceService/RepositoryIndex",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/inference.GRPCInferenceService/RepositoryModelUnload",
    "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
    "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
    "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
    "/inference.GRPCInferenceService/CudaSharedMemoryStatus",
    "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
    "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
    "/inference.GRPCInferenceService/TraceSetting",
    "/inference.GRPCInferenceService/LogSettings",
];

/// The route template of a path.
pub(crate) fn template(path: &str) -> Option<&'static str> {
    PATHS.into_iter().chain(CALLS).find(|route| fits(path, route))
}

/// Whether a route is a gRPC call.
pub(crate) fn is_call(route: &str) -> bool {
    CALLS.contains(&route)
}

/// Whether a route only tells whether something is ready.
pub(crate) fn is_probe(route: &str) -> bool {
    let calls = ["/Check", "/Watch", "/ServerLive", "/ServerReady", "/ModelReady"];
    let is_path = route.starts_with("/health") || route.starts_with("/v2/health/") || route.ends_with("/ready");
    is_path || is_call(route) && calls.iter().any(|call| route.ends_with(call))
}

fn fits(path: &str, route: &str) -> bool {
    let (mut parts, mut places) = (path.split('/'), route.split('/'));
    loop {
        match (parts.next(), places.next()) {
            (None, None) => return true,
            (Some(part), Some(place)) if part == place || place.starts_with('{') && !part.is_empty() => {}
            _ => return false,
        }
    }
}

/// The start of a path or method, for logs.
pub(crate) fn truncated(text: &str) -> &str {
    const LONGEST: usize = 1 << 10;
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text)
}

/// Whether a request is a gRPC call by its content type: `application/grpc`, with an optional suffix. gRPC-Web is not.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use axum::body::Body;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::protocol::router::{Routes, router};
    use crate::{Server, Settings};
    use gpux::LoadOptions;

    #[test]
    fn maps_paths_to_routes() {
        for (path, route) in [
            ("/predict", Some("/predict")),
            ("/pipelines/digits/predict", Some("/pipelines/{name}/predict")),
            ("/v2/models/stats", Some("/v2/models/stats")),
            ("/v2/models/m/versions/1/infer", Some("/v2/models/{model}/versions/{version}/infer")),
            ("/inference.GRPCInferenceService/ModelInfer", Some("/inference.GRPCInferenceService/ModelInfer")),
            ("/inference.GRPCInferenceService/Other", None),
            ("/pipelines//predict", None),
            ("/pipelines/a/b/predict", None),
            ("", None),
        ] {
            assert_eq!(template(path), route, "{path}");
        }
        let service = include_str!("../../proto/open_inference.proto");
        let calls = service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        assert!(calls.clone().count() > 0);
        for call in calls {
            assert!(template(&format!("/inference.GRPCInferenceService/{call}")).is_some_and(is_call), "{call}");
        }
    }

    #[test]
    fn probes_ask_whether_something_is_ready() {
        let probes: Vec<_> = PATHS.into_iter().chain(CALLS).filter(|route| is_probe(route)).collect();
        assert_eq!(
            probes,
            [
                "/health",
                "/health/live",
                "/health/ready",
                "/v2/health/live",
                "/v2/health/ready",
                "/v2/models/{model}/ready",
                "/v2/models/{model}/versions/{version}/ready",
                "/grpc.health.v1.Health/Check",
                "/grpc.health.v1.Health/Watch",
                "/inference.GRPCInferenceService/ServerLive",
                "/inference.GRPCInferenceService/ServerReady",
                "/inference.GRPCInferenceService/ModelReady",
            ]
        );
    }

    #[tokio::test]
    async fn knows_every_documented_path() {
        let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
        let routes = Routes::new(&server);
        let document = routes.answer(Request::builder().uri("/openapi.json").body(Body::empty()).unwrap()).await;
        let document = document.into_body().collect().await.unwrap().to_bytes();
        let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
        for (path, _) in document["paths"].as_object().unwrap() {
            assert!(template(path).is_some(), "{path}");
        }
    }

    #[tokio::test]
    async fn every_call_is_routed() {
        let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
        let routes = Routes::new(&server);
        for call in CALLS {
            let request = Request::builder().method("PATCH").uri(call).body(Body::empty());
            let answer = routes.answer(request.unwrap()).await;
            assert_ne!(answer.status(), StatusCode::NOT_FOUND, "{call}");
        }
    }

    #[test]
    fn knows_exactly_the_routed_paths() {
        let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
        // Only the router's `Debug` output lists its paths.
        let public_message = format!("{:?}", router(&server));
        let paths = public_message.split('"').filter(|text| text.starts_with('/') && !text.contains("__private"));
        // Most gRPC calls are dispatched by their service, not by the router.
        let (calls, paths): (BTreeSet<_>, BTreeSet<_>) =
            paths.filter(|path| !path.ends_with("/{call}")).partition(|path| path.contains("GRPC"));
        assert_eq!(paths, PATHS.into_iter().collect());
        assert!(calls.is_subset(&CALLS.into_iter().collect()), "{calls:?}");
    }
}
