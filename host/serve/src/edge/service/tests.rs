#![allow(clippy::unwrap_used, reason = "tests")]

use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;

use super::*;
use crate::protocol::metrics::prometheus::{MetricsFormat, to_text};
use crate::{PipelineSource, Settings};
use gpux::LoadOptions;

/// A server with the pipelines `one` and `two`; alice's key permits `one`, root's key permits everything.
fn guarded(folder: &std::path::Path) -> (Arc<Server>, Arc<EdgeService>) {
    let path = folder.join("keys.yml");
    let keys = "keys: [{name: alice, key: key-of-alice, pipelines: [one], rate: 1, burst: 3}, \
                {name: root, key: key-of-root, admin: true}, \
                {name: prometheus, key: key-of-prometheus, metrics: true}]";
    std::fs::write(&path, keys).unwrap();
    let pipelines = ["one", "two"].map(|name| {
        let text = format!(
            "name: {name}\nversion: 1.0.0\ninputs:\n  x: {{ type: float32, shape: [2] }}\npipeline: [softmax]\n"
        );
        let path = folder.join(format!("{name}.yml"));
        std::fs::write(&path, text).unwrap();
        PipelineSource(path.display().to_string())
    });
    let settings = Settings { keys: Some(path), model_control: true, ..Settings::default() };
    let server = Arc::new(Server::new(settings, LoadOptions::default()));
    server.add(&pipelines).unwrap();
    let front = Arc::new(EdgeService::without_telemetry(&server).unwrap());
    (server, front)
}

/// A gRPC message whose first field is this text.
fn message(first: &str) -> Vec<u8> {
    let field = [&[0x0a, first.len() as u8], first.as_bytes()].concat();
    [&[0, 0, 0, 0, field.len() as u8], field.as_slice()].concat()
}

/// The status of a call, and its response body.
async fn call(front: &Arc<EdgeService>, path: &str, key: &str, body: Vec<u8>) -> (String, Vec<u8>) {
    let request = Request::builder().method(Method::POST).uri(path).version(Version::HTTP_2);
    let request = request.header(CONTENT_TYPE, "application/grpc").header("te", "trailers");
    let request = if key.is_empty() { request } else { request.header("authorization", format!("Bearer {key}")) };
    let response = front.answer(request.body(Body::from(body)).unwrap(), None).await;
    assert_eq!(response.status(), StatusCode::OK);
    let head = response.headers().get("grpc-status").cloned();
    let collected = response.into_body().collect().await.unwrap();
    let trailer = collected.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
    let status = head.or(trailer).unwrap().to_str().unwrap().to_owned();
    (status, collected.to_bytes().to_vec())
}

const SERVICE: &str = "/inference.GRPCInferenceService";

#[tokio::test(flavor = "multi_thread")]
async fn keys_apply_to_grpc_and_streams() {
    let folder = tempfile::tempdir().unwrap();
    let (server, front) = guarded(folder.path());
    let status = async |call_: &str, key: &str, body| call(&front, &format!("{SERVICE}/{call_}"), key, body).await.0;
    assert_eq!(status("ServerLive", "", message("")).await, "0", "probes have no key");
    assert_eq!(status("ModelMetadata", "", message("one")).await, "16");
    assert_eq!(status("ModelMetadata", "wrong", message("one")).await, "16");
    assert_eq!(status("ModelMetadata", "key-of-alice", message("one")).await, "0");
    assert_eq!(status("ModelMetadata", "key-of-alice", message("two")).await, "7");
    assert_eq!(status("RepositoryModelLoad", "key-of-alice", message("one")).await, "7");
    assert_eq!(status("RepositoryModelLoad", "key-of-root", message("one")).await, "0");

    // The pipelines that a stream requests are checked against its key while the stream runs.
    let path = format!("{SERVICE}/ModelStreamInfer");
    let (status, answer) = call(&front, &path, "key-of-root", message("two")).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(status == "0" && !text.contains("may not use"), "{text}");
    let (_, answer) = call(&front, &path, "key-of-alice", message("two")).await;
    assert!(String::from_utf8_lossy(&answer).contains("this key may not use `two`"));

    // Alice's burst of three is used up; on a slow machine, a token may have been refilled since.
    let mut refused = false;
    for _ in 0..50 {
        refused = refused || call(&front, &path, "key-of-alice", message("one")).await.0 == "8";
    }
    assert!(refused);
    let text = to_text(&server, MetricsFormat::Prometheus).unwrap();
    for line in [
        "gpux_refusals_total{pipeline=\"\",reason=\"key_rate\"} ",
        "gpux_requests_total{pipeline=\"\",protocol=\"grpc\",status=\"RESOURCE_EXHAUSTED\"} ",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_apply_to_the_open_inference_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, front) = guarded(folder.path());
    let options = async |method: Method, path: &str, key: &str| {
        let request = Request::builder().method(method).uri(path).header("x-api-key", key);
        let response = front.answer(request.body(Body::empty()).unwrap(), None).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    for open in ["/v2/health/live", "/v2/health/ready", "/health", "/", "/docs"] {
        assert_eq!(options(Method::GET, open, "").await.0, 200, "{open}");
    }
    let (status, body) = options(Method::GET, "/v2/models/one", "").await;
    assert!(status == 401 && body.starts_with("{\"error\":\"a key is needed"), "{body}");
    assert_eq!(options(Method::GET, "/v2/models/one", "key-of-root").await.0, 200);
    assert_eq!(options(Method::GET, "/v2/models/two", "key-of-alice").await.0, 403);
    let (_, index) = options(Method::POST, "/v2/repository/index", "key-of-alice").await;
    assert!(index.contains("\"one\"") && !index.contains("\"two\""), "{index}");
    assert_eq!(options(Method::POST, "/v2/repository/models/one/unload", "key-of-alice").await.0, 403);
    assert_eq!(options(Method::GET, "/openapi.json", "").await.0, 401);
}

#[cfg(feature = "grpc")]
#[tokio::test(flavor = "multi_thread")]
async fn reflection_needs_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, front) = guarded(folder.path());
    // `list_services`, of any value.
    let list = vec![0, 0, 0, 0, 2, 0x3a, 0];
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        for (key, expected) in [("", "16"), ("wrong", "16"), ("key-of-prometheus", "7"), ("key-of-root", "0")] {
            let (status, body) = call(&front, &path, key, list.clone()).await;
            let names_services = String::from_utf8_lossy(&body).contains("inference.GRPCInferenceService");
            assert_eq!((status.as_str(), names_services), (expected, expected == "0"), "{version} {key}");
        }
        // Longer than any name: the stream ends.
        let long = [vec![0, 0, 1, 0, 0, 0x0a], vec![0; 1 << 16]].concat();
        let (_, body) = call(&front, &path, "key-of-root", long).await;
        assert!(body.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_keys_read_metrics_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, front) = guarded(folder.path());
    let status = async |method: Method, path: &str, key: &str| {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {key}"));
        front.answer(request.body(Body::empty()).unwrap(), None).await.status().as_u16()
    };
    let key = "key-of-prometheus";
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(status(method.clone(), "/metrics", key).await, 200, "{method}");
        assert_eq!(status(method.clone(), "/metrics", "key-of-root").await, 200, "{method}");
        assert_eq!(status(method.clone(), "/metrics", "key-of-alice").await, 403, "{method}");
    }
    for path in ["/metrics/", "/pipelines", "/openapi.json", "/info", "/v1/models", "/v2", "/v2/models/stats", "/none"]
    {
        assert_eq!(status(Method::GET, path, key).await, 403, "{path}");
    }
    for path in ["/pipelines/one/predict", "/v2/models/one/infer", "/v2/repository/models/one/unload", "/v1/embeddings"]
    {
        assert_eq!(status(Method::POST, path, key).await, 403, "{path}");
    }
    for name in ["ModelInfer", "ModelStreamInfer", "ModelMetadata", "RepositoryModelLoad"] {
        assert_eq!(call(&front, &format!("{SERVICE}/{name}"), key, message("one")).await.0, "7", "{name}");
    }
}

/// Wrong keys delay the client that a trusted proxy names, and no other client of that proxy.
#[tokio::test]
async fn brakes_of_wrong_keys_know_clients_behind_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.yml");
    std::fs::write(&path, "keys: [{name: alice, key: key-of-alice-1234}]").unwrap();
    let trusted_proxies = crate::TrustedProxies(vec!["127.0.0.1".parse().unwrap()]);
    let settings = Settings { keys: Some(path), trusted_proxies, ..Settings::default() };
    let front = EdgeService::without_telemetry(&Arc::new(Server::new(settings, LoadOptions::default()))).unwrap();
    let delay = |peer: &str, client: &str| {
        let peer = Peer::new(peer.parse().unwrap(), None);
        let request = Request::get("/pipelines").header("x-api-key", "wrong").header("x-forwarded-for", client);
        let head = request.body(()).unwrap().into_parts().0;
        let sender = Forwarded::read(&front.server.settings().trusted_proxies, peer, &head.headers).sender(peer);
        match front.authenticate(&head, Some(sender)).unwrap_err() {
            ServeError::UnknownKey(delay) => delay,
            other => panic!("{other}"),
        }
    };
    let proxy = "127.0.0.1:50000";
    for _ in 0..40 {
        delay(proxy, "1.2.3.4, 203.0.113.7");
    }
    assert!(delay(proxy, "203.0.113.7") > Duration::ZERO);
    assert_eq!(delay(proxy, "203.0.113.8"), Duration::ZERO);
    // Who is no proxy may write what it likes.
    let own: Vec<_> = (0..40).map(|last| delay("192.0.2.1:50000", &format!("203.0.113.{last}"))).collect();
    assert!(own.last().unwrap() > &Duration::ZERO, "{own:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn detects_the_protocol_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let (_, front) = guarded(folder.path());
    let of = |path: &str, content_type: &str| {
        let request = Request::post(path).header(CONTENT_TYPE, content_type).body(()).unwrap();
        protocol(&request.into_parts().0)
    };
    let grpc = "application/grpc";
    assert_eq!(of("/inference.GRPCInferenceService/ModelInfer", grpc), ProtocolLabel::Grpc);
    assert_eq!(of("/some.Service/Call", grpc), ProtocolLabel::Grpc);
    assert_eq!(of("/v2/models/one/infer", grpc), ProtocolLabel::OipHttp);
    assert_eq!(of("/predict", grpc), ProtocolLabel::Http);

    let request = Request::get("/pipelines/%FF/info").header("x-api-key", "key-of-root").body(Body::empty());
    let response = front.answer(request.unwrap(), None).await;
    let (status, body) = (response.status(), response.into_body().collect().await.unwrap().to_bytes());
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status.as_u16(), &error["error"]), (400, &"ValidationError".into()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_foreign_hosts_on_every_protocol() {
    let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
    let front = Arc::new(EdgeService::without_telemetry(&server).unwrap());
    let local = ([127, 0, 0, 1], 8080).into();
    let peer = Peer::new(([127, 0, 0, 1], 40_000).into(), Some(local));
    let options = async |host: &str, path: &str, content_type: &str| {
        let request = Request::post(format!("http://{host}{path}")).version(Version::HTTP_2);
        let request = request.header(CONTENT_TYPE, content_type).body(Body::empty()).unwrap();
        front.answer(request, Some(peer)).await
    };
    for path in ["/inference.GRPCInferenceService/ServerLive", "/grpc.health.v1.Health/Check", "/any.Service/Call"] {
        let refused = options("evil.example", path, "application/grpc").await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["grpc-status"]),
            (200, &HeaderValue::from(7)),
            "{path}"
        );
        assert!(refused.headers()["grpc-message"].to_str().unwrap().contains("--allow-host evil.example"));
    }
    for path in ["/predict", "/v2/models/m/infer", "/nothing"] {
        assert_eq!(
            options("evil.example", path, "application/json").await.status(),
            StatusCode::MISDIRECTED_REQUEST,
            "{path}"
        );
        assert_ne!(
            options("localhost", path, "application/json").await.status(),
            StatusCode::MISDIRECTED_REQUEST,
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn distinguishes_unknown_calls_from_plain_http() {
    let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
    let front = Arc::new(EdgeService::without_telemetry(&server).unwrap());
    let call = "/inference.GRPCInferenceService/ServerLive";
    let options = async |path: &str, content_type: Option<&str>, body: Vec<u8>| {
        let request = Request::post(path).version(Version::HTTP_2);
        let request = content_type.into_iter().fold(request, |request, of| request.header(CONTENT_TYPE, of));
        front.answer(request.body(Body::from(body)).unwrap(), None).await
    };
    for of in [None, Some("application/json"), Some("application/grpc-web"), Some("application/grpcx"), Some("")] {
        assert_eq!(options(call, of, message("")).await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{of:?}");
    }
    for of in ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"] {
        let answer = options(call, Some(of), message("")).await;
        assert_eq!((answer.status(), answer.headers().get("grpc-status")), (StatusCode::OK, None), "{of}");
    }
    for path in
        ["/inference.GRPCInferenceService/Nope", "/grpc.health.v1.Health/Nope", "/some.Service/Call", "/v2/nope"]
    {
        // The body does not matter: it is never read.
        for body in [Vec::new(), message(""), [message(""), message("")].concat(), vec![0xff; 9]] {
            let answer = options(path, Some("application/grpc"), body).await;
            let status = answer.headers().get("grpc-status");
            assert_eq!((answer.status(), status), (StatusCode::OK, Some(&HeaderValue::from(12))), "{path}");
        }
    }
    assert_eq!(options("/some.Service/Call", None, Vec::new()).await.status(), StatusCode::NOT_FOUND);
}
