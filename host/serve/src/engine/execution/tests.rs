#![allow(clippy::unwrap_used, reason = "tests")]

use std::future::pending;
use std::sync::mpsc::{Sender, channel};

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, Request as HttpRequest, StatusCode};
use http_body_util::BodyExt as _;

use super::*;
use crate::edge::authentication::api_keys::ApiKeys;
use crate::edge::host_check::Peer;
use crate::edge::service::EdgeService;
use crate::engine::tenant::Tenant;
use crate::protocol::metrics::prometheus::{MetricsFormat, to_text};
use crate::{PipelineSource, Server, Settings};
use gpux::{EngineChoice, LoadOptions};

/// A server with one worker, which is busy until `release` is dropped.
struct Busy {
    server: Arc<Server>,
    front: Arc<EdgeService>,
    release: Option<Sender<()>>,
}

impl Busy {
    async fn new(settings: Settings) -> Self {
        let mut load_options = LoadOptions::default();
        load_options.engine.choice = EngineChoice::Embedded;
        let server = Arc::new(Server::new(Settings { workers: 1, ..settings }, load_options));
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oip/models");
        server
            .add(&["matrix", "identity_fp16", "text"].map(|name| PipelineSource(format!("{models}/{name}"))))
            .unwrap();
        let (release, released) = channel();
        let busy =
            Self { front: Arc::new(EdgeService::without_telemetry(&server).unwrap()), server, release: Some(release) };
        let (server, loaded) = (busy.server.clone(), busy.loaded("matrix"));
        tokio::spawn(async move {
            let options = RequestOptions { body_bytes: None, ..RequestOptions::default() };
            let wait = move |_: &Execution| {
                let _ = released.recv();
                Ok(())
            };
            server.run(&loaded, options, wait).await
        });
        busy.until(|load| load.running == 1).await;
        busy
    }

    fn loaded(&self, name: &str) -> Arc<LoadedPipeline> {
        self.server.repository().get(name).unwrap()
    }

    async fn until(&self, done: impl Fn(crate::Load) -> bool) {
        while !done(self.loaded("matrix").load()) {
            tokio::task::yield_now().await;
        }
    }

    /// Sends a request; the task returns its status and body.
    fn post(&self, path: &str, body: impl Into<Body>) -> tokio::task::JoinHandle<(StatusCode, String)> {
        let request = HttpRequest::post(path).header(CONTENT_TYPE, "application/json").body(body.into()).unwrap();
        self.send(request)
    }

    fn send(&self, request: HttpRequest<Body>) -> tokio::task::JoinHandle<(StatusCode, String)> {
        let front = self.front.clone();
        tokio::spawn(async move {
            let response = front.answer(request, None).await;
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            // The start of the body is enough for messages.
            (status, String::from_utf8_lossy(&body).chars().take(300).collect())
        })
    }

    fn metric(&self, line: &str) -> f64 {
        let text = to_text(&self.server, MetricsFormat::Prometheus).unwrap();
        let value = text.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no `{line}` in\n{text}")).parse().unwrap()
    }
}

const INFER: &str = "/v2/models/matrix/infer";

/// Rows of three values: enough to make a request large.
const ROWS: usize = 20_000;

fn inputs() -> String {
    let data = vec!["1,2,3"; ROWS].join(",");
    format!(r#""inputs":[{{"name":"x","datatype":"FP32","shape":[{ROWS},3],"data":[{data}]}}]"#)
}

#[tokio::test]
async fn large_request_is_scheduled_by_its_priority() {
    let mut busy = Busy::new(Settings::default()).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut answers = Vec::new();
    for (place, priority) in [r#""priority":9"#, r#""other":0"#, r#""priority":1"#].into_iter().enumerate() {
        let body = format!(r#"{{{},"parameters":{{{priority}}}}}"#, inputs());
        let (answer, order) = (busy.post(INFER, body), order.clone());
        answers.push(tokio::spawn(async move {
            let (status, answer) = answer.await.unwrap();
            order.lock().unwrap().push(place);
            (status, answer)
        }));
        busy.until(|load| load.waiting == place + 1).await;
    }
    busy.release = None;
    for answer in answers {
        let (status, text) = answer.await.unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    assert_eq!(*order.lock().unwrap(), [2, 1, 0]);
    // The running request, and these three.
    assert_eq!(busy.metric("gpux_queue_duration_seconds_count{pipeline=\"matrix\"}").to_bits(), 4.0_f64.to_bits());
}

#[tokio::test]
async fn large_request_keeps_its_timeout() {
    let busy = Busy::new(Settings::default()).await;
    let asked = r#""parameters":{"timeout":20000}"#;
    let rows = vec!["[1,2,3]"; ROWS].join(",");
    for (path, body) in [
        (INFER, format!("{{{},{asked}}}", inputs())),
        ("/v2/models/matrix/generate", format!("{{{asked},\"x\":[{rows}]}}")),
    ] {
        // The worker stays busy until the end.
        let (status, text) = busy.post(path, body).await.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    }
    let refused = busy.metric("gpux_refusals_total{pipeline=\"matrix\",reason=\"expired\"}");
    let failed = busy.loaded("matrix").inferences().fail().count;
    assert_eq!((refused.to_bits(), failed), (2.0_f64.to_bits(), 2));
}

#[tokio::test]
async fn timeout_in_the_body_counts_from_arrival() {
    let mut busy = Busy::new(Settings::default()).await;
    let more = "1,".repeat(ROWS * 4);
    let body = |timeout: usize| format!(r#"{{{},"parameters":{{"timeout":{timeout}}},"other":[{more}1]}}"#, inputs());
    let (late, early) = (busy.post(INFER, body(1)), busy.post(INFER, body(10_000_000)));
    busy.until(|load| load.waiting == 2).await;
    busy.release = None;
    let (status, text) = late.await.unwrap();
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains("passed before it could run"), "{text}");
    let (status, text) = early.await.unwrap();
    assert_eq!(status, StatusCode::OK, "{text}");
}

/// A request that announces a body of 1 MiB and sends nothing.
fn promised(path: &str, content_type: &str) -> HttpRequest<Body> {
    let body = Body::from_stream(stream::once(pending::<Result<bytes::Bytes, Infallible>>()));
    HttpRequest::post(path).header(CONTENT_TYPE, content_type).header(CONTENT_LENGTH, 1 << 20).body(body).unwrap()
}

const PATHS: [&str; 3] = ["/pipelines/matrix/predict", INFER, "/v2/models/matrix/generate"];

#[tokio::test]
async fn full_queue_rejects_before_reading_the_body() {
    let mut busy = Busy::new(Settings { max_queue: 1, ..Settings::default() }).await;
    // The highest priority, as a body of the protocol may request it.
    let waits = busy.post(INFER, format!(r#"{{{},"parameters":{{"priority":1}}}}"#, inputs()));
    busy.until(|load| load.waiting == 1).await;
    for path in PATHS {
        let (status, text) = busy.send(promised(path, "application/json")).await.unwrap();
        assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains("1 requests wait"), "{path}: {text}");
    }
    let refused = busy.metric("gpux_refusals_total{pipeline=\"matrix\",reason=\"queue_full\"}");
    let failed = busy.loaded("matrix").inferences().fail().count;
    assert_eq!((refused.to_bits(), failed), (3.0_f64.to_bits(), 3));
    busy.release = None;
    assert_eq!(waits.await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn urgent_request_evicts_a_normal_one() {
    let mut busy = Busy::new(Settings { max_queue: 1, ..Settings::default() }).await;
    let path = |priority: &str| format!("{}?priority={priority}", PATHS[0]);
    let body = r#"{"x":[[1,2,3]]}"#;
    let low = busy.post(&path("low"), body);
    busy.until(|load| load.waiting == 1).await;
    let high = busy.post(&path("high"), body);
    let (status, text) = low.await.unwrap();
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains("1 requests wait"), "{text}");
    let (status, text) = busy.send(promised(&path("normal"), "application/json")).await.unwrap();
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains("1 requests wait"), "{text}");
    let refused = busy.metric("gpux_refusals_total{pipeline=\"matrix\",reason=\"queue_full\"}");
    assert_eq!(refused.to_bits(), 2.0_f64.to_bits());
    busy.release = None;
    assert_eq!(high.await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn flood_leaves_queue_space_to_others() {
    const QUEUE: usize = 8;
    let mut busy = Busy::new(Settings { max_queue: QUEUE, ..Settings::default() }).await;
    let send = |address: [u8; 4]| {
        let request = HttpRequest::post(PATHS[0]).header(CONTENT_TYPE, "application/json").header(HOST, "localhost");
        let (front, request) = (busy.front.clone(), request.body(Body::from(r#"{"x":[[1,2,3]]}"#)).unwrap());
        let peer = Peer::new((address, 1234).into(), None);
        tokio::spawn(async move { front.answer(request, Some(peer)).await.status() })
    };
    let (flood, polite) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut flooding: Vec<_> = (0..QUEUE).map(|_| send(flood)).collect();
    busy.until(|load| load.waiting == QUEUE).await;
    flooding.push(send(flood));
    let polite: Vec<_> = (0..QUEUE / 2).map(|_| send(polite)).collect();
    // The evicted requests of the flood, and the rejected one, have their responses before any execution.
    let is_refused = |one: &tokio::task::JoinHandle<_>| one.is_finished();
    while flooding.iter().filter(|one| is_refused(one)).count() <= QUEUE / 2 {
        tokio::task::yield_now().await;
    }
    busy.release = None;
    for one in polite {
        assert_eq!(one.await.unwrap(), StatusCode::OK);
    }
    let mut answered = 0;
    for one in flooding {
        answered += usize::from(one.await.unwrap() == StatusCode::OK);
    }
    assert_eq!(answered, QUEUE / 2);
}

#[tokio::test]
async fn counts_bodies_rejected_for_memory() {
    let busy = Busy::new(Settings { body_memory: 2 << 20, ..Settings::default() }).await;
    let _held = busy.server.request_budget().for_request().reserve((2 << 20) - (10 << 10)).unwrap();
    for path in PATHS {
        let (status, text) = busy.send(promised(path, "application/json")).await.unwrap();
        assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains("as much as is allowed"), "{path}: {text}");
    }
    // The pipeline of a gRPC call is named in its message, whose length precedes it.
    let head = stream::iter([Ok::<_, Infallible>(bytes::Bytes::from_static(&[0, 0, 1, 0, 0]))]);
    let execute = HttpRequest::post("/inference.GRPCInferenceService/ModelInfer")
        .header(CONTENT_TYPE, "application/grpc")
        .body(Body::from_stream(head.chain(stream::pending())))
        .unwrap();
    busy.send(execute).await.unwrap();
    let refused = |pipeline: &str| {
        busy.metric(&format!("gpux_refusals_total{{pipeline=\"{pipeline}\",reason=\"memory\"}}")).to_bits()
    };
    let failed = busy.loaded("matrix").inferences().fail().count;
    assert_eq!((refused("matrix"), refused(""), failed), (3.0_f64.to_bits(), 1.0_f64.to_bits(), 3));
}

#[tokio::test]
async fn counts_memory_rejections_once() {
    let mut busy = Busy::new(Settings { body_memory: 20 << 10, ..Settings::default() }).await;
    busy.release = None;
    let _held = busy.server.request_budget().for_request().reserve(10 << 10).unwrap();
    // The budget has room for the text, but not for the copy in which `NaN` is quoted.
    let data = format!("1,2,{}NaN", " ".repeat(6 << 10));
    let body = format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[1,3],"data":[{data}]}}]}}"#);
    let (status, text) = busy.post(INFER, body).await.unwrap();
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains("as much as is allowed"), "{text}");
    let refused = busy.metric("gpux_refusals_total{pipeline=\"matrix\",reason=\"memory\"}");
    let failed = busy.loaded("matrix").inferences().fail().count;
    assert_eq!((refused.to_bits(), failed), (1.0_f64.to_bits(), 1));
}

#[tokio::test]
async fn reserves_memory_for_decoded_json() {
    let mut busy = Busy::new(Settings { body_memory: 32 << 20, ..Settings::default() }).await;
    busy.release = None;
    let _held = busy.server.request_budget().for_request().reserve(30 << 20).unwrap();
    let rows = vec!["[0,0,0]"; 80_000].join(",");
    let infer = |datatype: &str| {
        let input = format!(r#""name":"x","datatype":"{datatype}","shape":[80000,3],"data":[{rows}]"#);
        (INFER, format!(r#"{{"inputs":[{{{input}}}]}}"#))
    };
    let fields = format!("{{\"x\":[{rows}]}}");
    for ((path, body), expected) in [
        (infer("FP32"), StatusCode::OK),
        (infer("FP64"), StatusCode::SERVICE_UNAVAILABLE),
        ((PATHS[0], fields.clone()), StatusCode::OK),
        ((PATHS[0], format!("[{fields},{fields}]")), StatusCode::SERVICE_UNAVAILABLE),
        ((PATHS[2], fields), StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let (status, text) = busy.post(path, body).await.unwrap();
        assert_eq!(status, expected, "{path}: {text}");
    }
    let refused = busy.metric("gpux_refusals_total{pipeline=\"matrix\",reason=\"memory\"}");
    assert_eq!(refused.to_bits(), 3.0_f64.to_bits());
}

#[tokio::test]
async fn rejects_requests_that_never_fit() {
    let mut busy = Busy::new(Settings { body_memory: 2 << 20, ..Settings::default() }).await;
    busy.release = None;
    let rows = vec!["[0,0,0]"; 80_000].join(",");
    let input = format!(r#""name":"x","datatype":"FP64","shape":[80000,3],"data":[{rows}]"#);
    let fields = format!("{{\"x\":[{rows}]}}");
    for (path, body) in [
        (INFER, format!(r#"{{"inputs":[{{{input}}}]}}"#)),
        (PATHS[0], format!("[{fields},{fields}]")),
        (PATHS[2], fields),
        (PATHS[0], " ".repeat((2 << 20) + 1)),
    ] {
        let (status, text) = busy.post(path, body).await.unwrap();
        assert!(status == StatusCode::PAYLOAD_TOO_LARGE && text.contains("`--body-memory`"), "{path}: {text}");
    }
    let refused = busy.metric("gpux_refusals_total{pipeline=\"matrix\",reason=\"memory\"}");
    assert_eq!(refused.to_bits(), 0.0_f64.to_bits(), "no other request had the room");
}

#[tokio::test]
async fn reserves_memory_before_encoding() {
    let settings = Settings { body_memory: 32 << 20, ..Settings::default() };
    let mut busy = Busy::new(settings).await;
    busy.release = None;
    let rows = |rows: usize| (format!("{{\"x\":[{}]}}", vec!["[1,2,3]"; rows].join(",")), rows);
    let tensor = |(_, rows): &(String, usize)| {
        let data = vec!["1"; 3 * rows].join(",");
        format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[{rows},3],"data":[{data}]}}]}}"#)
    };
    let (fits, never) = (rows(60_000), rows(600_000));
    let held = busy.server.response_budget().for_request().reserve(30 << 20).unwrap();
    for (path, body) in [(PATHS[0], fits.0.clone()), (PATHS[2], fits.0.clone()), (INFER, tensor(&fits))] {
        let (status, text) = busy.post(path, body).await.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {text:.200}");
    }
    drop(held);
    for (path, body) in [(PATHS[0], fits.0.clone()), (INFER, tensor(&fits))] {
        let (status, text) = busy.post(path, body).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}: {text:.200}");
    }
    for (path, body) in [(PATHS[0], never.0.clone()), (INFER, tensor(&never))] {
        let (status, text) = busy.post(path, body).await.unwrap();
        assert!(status == StatusCode::BAD_REQUEST && text.contains("ask for it in parts"), "{path}: {text:.200}");
    }
    // All memory is released.
    busy.server.response_budget().for_request().reserve(32 << 20).unwrap();
}

#[tokio::test]
async fn invalid_requests_are_no_failed_inferences() {
    let mut busy = Busy::new(Settings::default()).await;
    busy.release = None;
    let failed = |name: &str| busy.loaded(name).inferences().fail().count;
    // Invalid, with and without a trace.
    for query in ["", "?trace=true"] {
        let (status, text) = busy.post(&format!("/pipelines/matrix/predict{query}"), r#"{"x":[[1,2]]}"#).await.unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    }
    assert_eq!(failed("matrix"), 0);
    assert_eq!(busy.metric("gpux_run_duration_seconds_count{pipeline=\"matrix\"}").to_bits(), 0.0_f64.to_bits());
    // JSON cannot represent its output; raw bytes and classes can.
    let json = |outputs: &str| {
        format!(
            r#"{{"inputs":[{{"name":"x","datatype":"FP16","shape":[1],"parameters":{{"binary_data_size":2}}}}]{outputs}}}"#
        )
    };
    let asked = |json: String| {
        let request = HttpRequest::post("/v2/models/identity_fp16/infer");
        let request = request.header("inference-header-content-length", json.len());
        busy.send(request.body(Body::from(format!("{json}ab"))).unwrap())
    };
    let output = |parameters: &str| json(&format!(r#","outputs":[{{"name":"y","parameters":{{{parameters}}}}}]"#));
    for refused in [json(""), output("")] {
        let (status, text) = asked(refused).await.unwrap();
        assert!(status == StatusCode::BAD_REQUEST && text.contains("FP16"), "{text}");
    }
    assert_eq!((failed("identity_fp16"), busy.loaded("identity_fp16").inferences().success().count), (0, 0));
    for given in [output(r#""binary_data":true"#), output(r#""classification":1"#)] {
        let (status, text) = asked(given).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    // Its output has no classes, which is known before the run.
    let body = r#"{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["a"]}],
        "outputs":[{"name":"text","parameters":{"classification":1}}]}"#;
    let (status, text) = busy.post("/v2/models/text/infer", body).await.unwrap();
    assert!(status == StatusCode::BAD_REQUEST && text.contains("cannot be classified"), "{text}");
    assert_eq!(failed("text"), 0);
    // The steps have run; only the output cannot be encoded as requested.
    let loaded = busy.loaded("matrix");
    let work = |execution: &Execution| {
        let values = execution.loaded().signature().reader(&[]).json(serde_json::json!({ "x": [[1, 2, 3]] }))?;
        execution.infer(values, None)?;
        Err::<(), _>(ServeError::invalid("it does not fit"))
    };
    busy.server.run(&loaded, RequestOptions::default(), work).await.unwrap_err();
    assert_eq!((failed("matrix"), loaded.inferences().success().count), (1, 0));
}

#[tokio::test]
async fn small_requests_of_cheap_pipelines_run_inline() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = |name: &str, input: &str, step: &str| {
        let path = folder.path().join(format!("{name}.yml"));
        let text = format!("name: {name}\nversion: 1.0.0\ninputs:\n  x: {input}\npipeline: [{step}]\n");
        std::fs::write(&path, text).unwrap();
        PipelineSource(path.display().to_string())
    };
    let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
    let sources = [
        pipeline("numbers", "{ type: float32, shape: [n] }", "softmax"),
        pipeline("texts", "{ type: text }", "json-template: { template: '{{ x }}' }"),
        pipeline("matrices", "{ type: float32, shape: [n, m] }", "softmax"),
    ];
    server.add(&sources).unwrap();
    let io_thread = std::thread::current().id();
    for (name, body_bytes, is_inline) in [
        ("numbers", Some(100), true),
        ("numbers", Some(1 << 20), false),
        ("numbers", None, false),
        ("texts", Some(100), false),
        ("matrices", Some(100), false),
    ] {
        let loaded = server.repository().get(name).unwrap();
        let options = RequestOptions { body_bytes, ..RequestOptions::default() };
        let thread = server.run(&loaded, options, |_: &Execution| Ok(std::thread::current().id())).await.unwrap();
        assert_eq!(thread == io_thread, is_inline, "{name} {body_bytes:?}");
    }
}

/// A tenant that may have two concurrent requests.
fn alice(folder: &std::path::Path) -> Arc<Tenant> {
    let file = folder.join("keys.yml");
    std::fs::write(&file, "keys:\n  - { name: alice, key: 0123456789abcdef, concurrency: 2 }\n").unwrap();
    let head = HeaderMap::from_iter([(HeaderName::from_static("x-api-key"), "0123456789abcdef".parse().unwrap())]);
    ApiKeys::load(&file, &gpux_config::Variables::empty(), None).unwrap().tenant(&head).unwrap()
}

#[tokio::test]
async fn dropped_items_release_their_slots() {
    let mut busy = Busy::new(Settings { workers: 1, ..Settings::default() }).await;
    busy.release = None;
    let folder = tempfile::tempdir().unwrap();
    let tenant = alice(folder.path());
    let permit = tenant.begin_request().unwrap();
    let context = Arc::new(RequestContext::new("items", Some(permit), None));
    let (loaded, (release, released)) = (busy.loaded("matrix"), channel::<()>());
    let item = |work: Box<dyn Fn() + Send>| {
        let options = RequestOptions { body_bytes: None, ..RequestOptions::default() };
        let loaded = loaded.clone();
        let run = async move {
            let work = move |_: &Execution| {
                work();
                Ok(())
            };
            execute(&loaded, options, work).await
        };
        Box::pin(context.clone().scope(run))
    };
    let mut first = item(Box::new(move || released.recv().unwrap_or_default()));
    let mut second = item(Box::new(|| {}));
    let mut third = item(Box::new(|| {}));
    for item in [&mut first, &mut second, &mut third] {
        assert!(futures_util::poll!(item).is_pending());
    }
    tokio::task::yield_now().await;
    assert!(tenant.begin_request().is_err(), "the second has the slot that is left, though its turn is yet to come");
    drop(release);
    // Nothing polls the items' futures.
    while tenant.begin_request().is_err() {
        tokio::task::yield_now().await;
    }
    for item in [first, second, third] {
        item.await.unwrap();
    }
}

#[tokio::test]
async fn permit_is_held_until_the_run_ends() {
    let mut busy = Busy::new(Settings::default()).await;
    busy.release = None;
    let folder = tempfile::tempdir().unwrap();
    let tenant = alice(folder.path());
    let context = Arc::new(RequestContext::new("leaves", Some(tenant.begin_request().unwrap()), None));
    let (loaded, (release, released), (begun, begins)) = (busy.loaded("matrix"), channel::<()>(), channel());
    let work = move |_: &Execution| {
        begun.send(()).unwrap();
        let _ = released.recv();
        Ok(())
    };
    let options = RequestOptions { body_bytes: None, ..RequestOptions::default() };
    let mut left = Box::pin(context.scope(async move { execute(&loaded, options, work).await }));
    assert!(futures_util::poll!(&mut left).is_pending());
    begins.recv().unwrap();
    drop(left);
    let under_way: Vec<_> = std::iter::from_fn(|| tenant.begin_request().ok()).collect();
    assert_eq!(under_way.len(), 1, "one of two is still at work");
    drop((under_way, release));
    while std::iter::from_fn(|| tenant.begin_request().ok()).collect::<Vec<_>>().len() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn reserves_memory_while_collecting_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.yml");
    let text = "name: wide\nversion: 1.0.0\ninputs:\n  x: { type: float32, shape: [1] }\n\
                pipeline: [expand: { broadcast: [100000] }]\n";
    std::fs::write(&path, text).unwrap();
    let settings = Settings { max_body: 64 << 10, body_memory: 16 << 20, ..Settings::default() };
    let server = Arc::new(Server::new(settings, LoadOptions::default()));
    server.add(&[PipelineSource(path.display().to_string())]).unwrap();
    let front = Arc::new(EdgeService::without_telemetry(&server).unwrap());
    // Each result takes half a megabyte.
    let list = |items: usize| {
        let body = Body::from(format!("[{}]", vec![r#"{"x":[0.125]}"#; items].join(",")));
        let request = HttpRequest::post("/predict").header(CONTENT_TYPE, "application/json").body(body).unwrap();
        let front = front.clone();
        async move { front.answer(request, None).await.status() }
    };
    let held = server.response_budget().for_request().reserve(12 << 20).unwrap();
    assert_eq!(list(1).await, StatusCode::OK);
    let more = server.response_budget().for_request().reserve(1 << 20).unwrap();
    assert_eq!(list(8).await, StatusCode::SERVICE_UNAVAILABLE);
    drop((held, more));
    assert_eq!(list(8).await, StatusCode::OK);
    assert!(!list(30).await.is_success(), "it never fits");
    // Items that run while the list is dropped release their memory when they end.
    while server.response_budget().for_request().reserve(16 << 20).is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn slot_is_free_once_the_response_is_sent() {
    let mut busy = Busy::new(Settings::default()).await;
    busy.release = None;
    let folder = tempfile::tempdir().unwrap();
    let tenant = alice(folder.path());
    let _other = tenant.begin_request().unwrap();
    for _ in 0..200 {
        let context = Arc::new(RequestContext::new("again", Some(tenant.begin_request().unwrap()), None));
        let loaded = busy.loaded("matrix");
        let options = RequestOptions { body_bytes: None, ..RequestOptions::default() };
        context.scope(async move { execute(&loaded, options, |_: &Execution| Ok(())).await }).await.unwrap();
    }
}
