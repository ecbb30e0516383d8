//! Traces, as a collector gets them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;

use super::{ONE, PATIENCE, SCORES, Server, command};

/// A collector that takes whatever is exported: its address, and what came, message by message.
fn collector(runtime: &tokio::runtime::Runtime) -> (SocketAddr, Receiver<(String, Bytes)>) {
    let (sender, messages) = channel();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let (sender, path) = (sender.clone(), request.uri().path().to_owned());
                async move {
                    let message = request.into_body().collect().await.unwrap().to_bytes();
                    sender.send((path, message)).unwrap();
                    let trailers = HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        HeaderValue::from_static("0"),
                    )]);
                    // An empty message, and its status.
                    let frames = [Frame::data(Bytes::from_static(&[0; 5])), Frame::trailers(trailers)];
                    let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
                    Response::builder().header("content-type", "application/grpc").body(StreamBody::new(frames))
                }
            });
            tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, messages)
}

fn holds(message: &[u8], part: &[u8]) -> bool {
    message.windows(part.len()).any(|window| window == part)
}

#[test]
fn exports_a_span_per_request_and_step() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, messages) = collector(&runtime);
    let mut server = Server::start(&[SCORES, "--otlp", &format!("http://{address}")]);
    let traced = ["traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-request-id: r-1"];
    assert_eq!(server.ask("POST", "/predict", &traced, ONE.as_bytes()).status, 200);
    // The caller does not sample this one.
    let not = ["traceparent: 00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "x-request-id: r-2"];
    assert_eq!(server.ask("POST", "/predict", &not, ONE.as_bytes()).status, 200);
    // What has not been sent is sent before the end.
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let (path, message) = messages.recv_timeout(PATIENCE).unwrap();
    assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    for part in ["POST /predict", "softmax", "r-1", "gpux.pipeline", "service.name"] {
        assert!(holds(&message, part.as_bytes()), "no `{part}` in {:?}", String::from_utf8_lossy(&message));
    }
    let trace = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    let parent = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes();
    assert!(holds(&message, &trace) && holds(&message, &parent));
    assert!(!holds(&message, b"r-2") && messages.try_recv().is_err());
}

#[test]
fn exports_a_span_for_the_calls_of_a_step() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, messages) = collector(&runtime);
    let folder = crate::calls::thumbnails();
    let mut server = Server::start(&[folder.path().to_str().unwrap(), "--otlp", &format!("http://{address}")]);
    let photo = std::fs::read(crate::digits::root().join("models/samples/seven.png")).unwrap();
    assert_eq!(server.ask("POST", "/predict", &["content-type: image/png"], &photo).status, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let (_, message) = messages.recv_timeout(PATIENCE).unwrap();
    for part in ["thumbnail.wasm", "resize", "gpux.calls"] {
        assert!(holds(&message, part.as_bytes()), "no `{part}` in {:?}", String::from_utf8_lossy(&message));
    }
}

#[test]
fn span_names_have_low_cardinality() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, messages) = collector(&runtime);
    let mut server = Server::start(&[SCORES, "--otlp", &format!("http://{address}")]);
    server.ask("POST", "/pipelines/some-pipeline/predict?secret", &[], ONE.as_bytes()).error(404);
    server.ask("POST", &format!("/nothing/{}", "p".repeat(20_000)), &[], b"").error(404);
    server.ask("ODD", "/predict", &[], b"").error(405);
    server.ask("POST", "/inference.GRPCInferenceService/ServerLive", &["content-type: application/grpc"], b"");
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let (_, message) = messages.recv_timeout(PATIENCE).unwrap();
    // A name is the fifth field of a span, a value of text the first of a value.
    let text = |field: u8, text: &str| [&[field << 3 | 2, text.len() as u8], text.as_bytes()].concat();
    let seen = || String::from_utf8_lossy(&message);
    for name in ["POST /pipelines/{name}/predict", "POST", "HTTP /predict", "inference.GRPCInferenceService/ServerLive"]
    {
        assert!(holds(&message, &text(5, name)), "no span `{name}` in {}", seen());
    }
    for value in ["/pipelines/some-pipeline/predict", "/pipelines/{name}/predict", "_OTHER"] {
        assert!(holds(&message, &text(1, value)), "no value `{value}` in {}", seen());
    }
    assert!(!holds(&message, b"secret") && !holds(&message, b"ODD"), "{}", seen());
    assert!(message.len() < 8 << 10, "{} bytes of four spans", message.len());
}

#[test]
fn ignores_trace_headers_of_untrusted_clients() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, messages) = collector(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.yml");
    std::fs::write(&keys, "keys:\n  - { name: a, key: key-of-a-0123456789 }\n").unwrap();
    let endpoint = format!("http://{address}");
    let mut server = Server::start(&[SCORES, "--otlp", &endpoint, "--keys", keys.to_str().unwrap()]);
    for path in ["/health", "/info", "/docs"] {
        server.get(path);
    }
    server.ask("POST", "/predict", &["x-request-id: r-stranger"], ONE.as_bytes()).error(401);
    let state = format!("tracestate: stranger={}", "x".repeat(600));
    let known = ["x-api-key: key-of-a-0123456789", "x-request-id: r-known", &state];
    assert_eq!(server.ask("POST", "/predict", &known, ONE.as_bytes()).status, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let (_, message) = messages.recv_timeout(PATIENCE).unwrap();
    assert!(holds(&message, b"r-known") && holds(&message, b"softmax"));
    for part in ["stranger", "/health", "/info", "/docs"] {
        assert!(!holds(&message, part.as_bytes()), "`{part}` in {:?}", String::from_utf8_lossy(&message));
    }
}

#[test]
fn ignores_unsupported_otel_variables() {
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/none/such.pem"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ] {
        let mut command = command(&[SCORES]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1").env(name, value);
        let mut server = Server::spawn(command);
        assert!(server.line("traces").contains("warning"), "{name}");
        server.line("ready on");
        server.signal(Signal::TERM);
        assert_eq!(server.ended().code(), Some(0), "{name}");
    }
}

#[test]
fn otel_variables_set_endpoint_and_sampler() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, messages) = collector(&runtime);
    let mut command = command(&[SCORES]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")).env("OTEL_TRACES_SAMPLER", "always_off");
    let mut server = Server::of(command);
    server.assert_alive();
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    assert!(messages.try_recv().is_err());
}

#[test]
fn survives_an_unreachable_collector() {
    // Nothing listens where a listener has been closed.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = Server::start(&[SCORES, "--otlp", &format!("http://{address}")]);
    server.assert_alive();
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    // Lost spans are logged.
    server.line("traces are lost");
    let wrong = &mut Server::begin(&[SCORES, "--otlp", "no address"]);
    wrong.line("traces cannot be sent to");
    assert_eq!(wrong.ended().code(), Some(2));
}
