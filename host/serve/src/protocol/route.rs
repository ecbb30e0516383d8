//! The routes of the server: their templates are a bounded set of names for traces, their purposes decide on rights.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use Purpose::{Change, Other, Probe};

/// A route of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// a segment in braces matches any segment, with a star any rest
    pub(crate) template: &'static str,
    pub(crate) purpose: Purpose,
    /// whether it is a gRPC call
    pub(crate) is_call: bool,
}

/// The purpose of a route, whatever the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// tells whether something is ready
    Probe,
    /// changes the server if the method is not a read: pages of other sites may not
    Change,
    Other,
}

/// HTTP paths. Fixed segments precede variable ones that would match them.
const PATHS: [(&str, Purpose); 67] = [
    ("/", Other),
    ("/docs", Other),
    ("/health", Probe),
    ("/health/live", Probe),
    ("/health/ready", Probe),
    ("/info", Other),
    ("/metrics", Other),
    ("/openapi.json", Other),
    ("/page/{file}", Other),
    ("/pipelines", Other),
    ("/pipelines/{name}/info", Other),
    ("/pipelines/{name}/predict", Other),
    ("/pipelines/{name}/sample", Other),
    ("/predict", Other),
    ("/sample", Other),
    ("/v1/models", Other),
    ("/v1/models/{*model}", Other),
    ("/v1/embeddings", Other),
    ("/openai/v1/models", Other),
    ("/openai/v1/models/{*model}", Other),
    ("/openai/v1/embeddings", Other),
    ("/embeddings", Other),
    ("/v1/rerank", Other),
    ("/v2/rerank", Other),
    ("/embed", Other),
    ("/rerank", Other),
    ("/similarity", Other),
    ("/embed_all", Other),
    ("/classify", Other),
    ("/tokenize", Other),
    ("/decode", Other),
    ("/v2", Other),
    ("/v2/", Other),
    ("/v2/health/live", Probe),
    ("/v2/health/ready", Probe),
    ("/v2/models", Other),
    ("/v2/models/stats", Other),
    ("/v2/models/{model}", Other),
    ("/v2/models/{model}/config", Other),
    ("/v2/models/{model}/generate", Other),
    ("/v2/models/{model}/generate_stream", Other),
    ("/v2/models/{model}/infer", Other),
    ("/v2/models/{model}/ready", Probe),
    ("/v2/models/{model}/stats", Other),
    ("/v2/models/{model}/versions/{version}", Other),
    ("/v2/models/{model}/versions/{version}/config", Other),
    ("/v2/models/{model}/versions/{version}/generate", Other),
    ("/v2/models/{model}/versions/{version}/generate_stream", Other),
    ("/v2/models/{model}/versions/{version}/infer", Other),
    ("/v2/models/{model}/versions/{version}/ready", Probe),
    ("/v2/models/{model}/versions/{version}/stats", Other),
    ("/v2/cudasharedmemory/region/{region}/register", Change),
    ("/v2/cudasharedmemory/region/{region}/status", Other),
    ("/v2/cudasharedmemory/region/{region}/unregister", Change),
    ("/v2/cudasharedmemory/status", Other),
    ("/v2/cudasharedmemory/unregister", Change),
    ("/v2/logging", Change),
    ("/v2/models/{model}/trace/setting", Change),
    ("/v2/systemsharedmemory/region/{region}/register", Change),
    ("/v2/systemsharedmemory/region/{region}/status", Other),
    ("/v2/systemsharedmemory/region/{region}/unregister", Change),
    ("/v2/systemsharedmemory/status", Other),
    ("/v2/systemsharedmemory/unregister", Change),
    ("/v2/trace/setting", Change),
    ("/v2/repository/index", Other),
    ("/v2/repository/models/{model}/load", Change),
    ("/v2/repository/models/{model}/unload", Change),
];

/// gRPC calls.
const CALLS: [(&str, Purpose); 24] = [
    ("/grpc.health.v1.Health/Check", Probe),
    ("/grpc.health.v1.Health/Watch", Probe),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Other),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Other),
    ("/inference.GRPCInferenceService/ServerLive", Probe),
    ("/inference.GRPCInferenceService/ServerReady", Probe),
    ("/inference.GRPCInferenceService/ModelReady", Probe),
    ("/inference.GRPCInferenceService/ServerMetadata", Other),
    ("/inference.GRPCInferenceService/ModelMetadata", Other),
    ("/inference.GRPCInferenceService/ModelInfer", Other),
    ("/inference.GRPCInferenceService/ModelStreamInfer", Other),
    ("/inference.GRPCInferenceService/ModelConfig", Other),
    ("/inference.GRPCInferenceService/ModelStatistics", Other),
    ("/inference.GRPCInferenceService/RepositoryIndex", Other),
    ("/inference.GRPCInferenceService/RepositoryModelLoad", Change),
    ("/inference.GRPCInferenceService/RepositoryModelUnload", Change),
    ("/inference.GRPCInferenceService/SystemSharedMemoryStatus", Other),
    ("/inference.GRPCInferenceService/SystemSharedMemoryRegister", Change),
    ("/inference.GRPCInferenceService/SystemSharedMemoryUnregister", Change),
    ("/inference.GRPCInferenceService/CudaSharedMemoryStatus", Other),
    ("/inference.GRPCInferenceService/CudaSharedMemoryRegister", Change),
    ("/inference.GRPCInferenceService/CudaSharedMemoryUnregister", Change),
    ("/inference.GRPCInferenceService/TraceSetting", Change),
    ("/inference.GRPCInferenceService/LogSettings", Change),
];

/// The route of a path.
pub(crate) fn find(path: &str) -> Option<Route> {
    let routes = |table: &'static [(&str, Purpose)], is_call| {
        table.iter().map(move |&(template, purpose)| Route { template, purpose, is_call })
    };
    routes(&PATHS, false).chain(routes(&CALLS, true)).find(|route| fits(path, route.template))
}

fn fits(path: &str, route: &str) -> bool {
    let (mut parts, mut places) = (path.split('/'), route.split('/'));
    loop {
        match (parts.next(), places.next()) {
            (None, None) => return true,
            (Some(part), Some(place)) if place.starts_with("{*") => return !part.is_empty(),
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
            assert_eq!(find(path).map(|found| found.template), route, "{path}");
        }
        let service = include_str!("../../proto/open_inference.proto");
        let calls = service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        assert!(calls.clone().count() > 0);
        for call in calls {
            let route = find(&format!("/inference.GRPCInferenceService/{call}")).unwrap();
            let has_changing_name = ["Load", "Unload", "egister", "Setting"].iter().any(|part| call.contains(part));
            assert_eq!((route.is_call, route.purpose == Change), (true, has_changing_name), "{call}");
        }
    }

    #[test]
    fn probes_ask_whether_something_is_ready() {
        let probes = PATHS.into_iter().chain(CALLS).filter(|(_, purpose)| *purpose == Probe);
        let probes: Vec<_> = probes.map(|(route, _)| route).collect();
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
            assert!(find(path).is_some(), "{path}");
        }
    }

    #[tokio::test]
    async fn every_call_is_routed() {
        let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
        let routes = Routes::new(&server);
        for (call, _) in CALLS {
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
        assert_eq!(paths, PATHS.into_iter().map(|(path, _)| path).collect());
        assert!(calls.is_subset(&CALLS.into_iter().map(|(call, _)| call).collect()), "{calls:?}");
    }
}
