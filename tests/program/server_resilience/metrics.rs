//! Metrics, logs and traces of the server.

use rustix::process::Signal;
use serde_json::Value as Json;

use super::{ONE, SCORES, Server, replace};
use crate::digits::root;

#[test]
fn serves_metrics_as_json_and_prometheus() {
    let server = Server::start(&[SCORES]);
    for _ in 0..3 {
        server.assert_alive();
    }
    assert_eq!(server.post("/predict", "", "{\"x\": \"wrong\"}").status, 400);
    assert_eq!(server.get("/nowhere").status, 404);

    let json = server.get("/metrics").read();
    assert!(json["provider"].is_null(), "this pipeline has no model: {json}");
    assert_eq!(json["available_providers"], serde_json::json!([]));
    assert_eq!(json["pipelines"][0]["requests"], serde_json::json!({ "succeeded": 3, "failed": 1 }));
    assert_eq!(json["pipelines"][0]["steps"][0]["time_ms"]["count"], 3);
    assert!(json["memory_bytes"].as_u64().unwrap() > 1 << 20);

    // What Prometheus 3 sends.
    let accept = "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;\
                  version=1.0.0;q=0.5,*/*;q=0.1";
    let open = server.get_with("/metrics", accept);
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(open.text().ends_with("# EOF\n"));
    for line in [
        "gpux_requests_total{pipeline=\"scores\",protocol=\"http\",status=\"200\"} 3",
        "gpux_requests_total{pipeline=\"scores\",protocol=\"http\",status=\"400\"} 1",
        "gpux_requests_total{pipeline=\"\",protocol=\"http\",status=\"404\"} 1",
        "gpux_step_duration_seconds_count{pipeline=\"scores\",step=\"softmax\",number=\"1\"} 3",
        "gpux_step_duration_seconds_bucket{le=\"+Inf\",pipeline=\"scores\",step=\"softmax\",number=\"1\"} 3",
        "gpux_pipeline_ready{pipeline=\"scores\"} 1",
        "gpux_refusals_total{pipeline=\"scores\",reason=\"queue_full\"} 0",
        "gpux_ready 1",
        "# TYPE gpux_request_duration_seconds histogram",
        "# UNIT gpux_request_duration_seconds seconds",
    ] {
        assert!(open.text().lines().any(|found| found == line), "no `{line}` in\n{}", open.text());
    }
    let plain = server.get_with("/metrics", "accept: text/plain");
    assert!(plain.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(plain.text().contains("# TYPE gpux_requests_total counter\n") && !plain.text().contains("# EOF"));
    assert!(!plain.text().contains("nv_inference"));
}

#[test]
fn exports_provider_and_triton_metrics_on_request() {
    let server = Server::start(&["tests/models/square.onnx", "--triton-metrics"]);
    assert_eq!(
        server.post("/predict", "", "{\"x\": [[1, 2], [3, 4]]}").read()["y"],
        serde_json::json!([[7.0, 10.0], [15.0, 22.0]])
    );
    let json = server.get("/metrics").read();
    assert_eq!(json["provider"]["provider"], "CPUExecutionProvider");
    assert_eq!(json["available_providers"], serde_json::json!(["CPUExecutionProvider"]));
    let plain = server.get_with("/metrics", "accept: text/plain");
    let text = plain.text();
    assert!(text.contains("provider=\"CPUExecutionProvider\",precision=\"exact\"} 1"), "{text}");
    assert!(text.contains("# TYPE nv_inference_request_success counter\n"), "{text}");
    assert!(text.contains("nv_inference_request_success{model=\"square\",version=\"1\"} 1"), "{text}");
}

#[test]
fn counts_components_that_hit_a_limit() {
    let server = Server::start(&["tests/cases/pipelines/never-ends.yml", "--allow-outside"]);
    assert_eq!(server.post("/predict", "content-type: text/plain", "x").status, 500);
    assert!(server.metric("gpux_sandbox_limits_total{pipeline=\"never-ends\"") >= 1.0);
}

#[test]
fn counters_survive_reloads() {
    let folder = tempfile::tempdir().unwrap();
    let write = |version: &str| {
        let text = format!("name: seen\nversion: {version}\ninputs: {{ in: bytes }}\npipeline: [decode-image]\n");
        replace(&folder.path().join("gpux.yml"), text.as_bytes());
    };
    write("1.0.0");
    let server = Server::start(&[folder.path().to_str().unwrap(), "--triton-metrics"]);
    let picture = std::fs::read(root().join("models/samples/seven.png")).unwrap();
    let ask = |body: &[u8]| server.ask("POST", "/predict", &["content-type: application/octet-stream"], body).status;
    let success = || server.metric("nv_inference_request_success{model=\"seen\",version=\"1\"}");
    let runs = || server.metric("gpux_step_duration_seconds_count{pipeline=\"seen\",step=\"decode-image\"");
    let refused = || server.metric("gpux_step_failures_total{pipeline=\"seen\",step=\"decode-image\",number=\"1\"");
    assert_eq!([ask(&picture), ask(b"no picture")], [200, 400]);
    assert_eq!([success(), runs(), refused()], [1.0, 2.0, 1.0]);
    server.signal(Signal::HUP);
    server.line("seen was loaded again");
    assert_eq!([success(), runs(), refused()], [1.0, 2.0, 1.0]);
    assert_eq!([ask(&picture), ask(b"no picture")], [200, 400]);
    assert_eq!([success(), runs(), refused()], [2.0, 4.0, 2.0]);

    // A new version begins at 0, and the old one goes on where it was.
    write("2.0.0");
    server.signal(Signal::HUP);
    server.line("seen was loaded again");
    assert_eq!(ask(&picture), 200);
    assert_eq!(server.metric("nv_inference_request_success{model=\"seen\",version=\"2\"}"), 1.0);
    write("1.0.1");
    server.signal(Signal::HUP);
    server.line("seen was loaded again");
    assert_eq!([success(), runs(), refused()], [2.0, 5.0, 2.0]);
}

#[test]
fn batch_counters_survive_reloads_in_every_protocol() {
    let server = Server::start(&["tests/cases/pipelines/together.yml", "--allow-outside", "--triton-metrics"]);
    let ask = || {
        let asked = serde_json::json!({ "input_ids": [[1, 2]], "attention_mask": [[1, 1]] });
        server.json("/predict", &asked).with_status(200);
    };
    let statistics = || server.get("/v2/models/together/stats").read()["model_stats"][0].clone();
    let batches = || server.metric("gpux_batch_size_count{pipeline=\"together\"");
    let told = || server.metric("nv_inference_exec_count{model=\"together\"");
    ask();
    ask();
    assert_eq!([batches(), told()], [2.0, 2.0], "what warmed it up does not count");
    server.signal(Signal::HUP);
    server.line("was loaded again");
    ask();
    assert_eq!([batches(), told()], [3.0, 3.0]);
    let statistics = statistics();
    assert_eq!([&statistics["inference_count"], &statistics["execution_count"]], [3, 3], "{statistics}");
    assert_eq!(statistics["inference_stats"]["queue"]["count"], 3);
    assert!(statistics["last_inference"].as_u64().unwrap() > 1_700_000_000_000, "{statistics}");
}

#[test]
fn responses_and_log_carry_request_ids() {
    let server = Server::start(&[SCORES, "--access-log", "--log-format", "json"]);
    let named = server.post("/predict?output=scores", "x-request-id: abc-1", ONE);
    assert_eq!((named.status, named.header("x-request-id")), (200, Some("abc-1")));
    let line: Json = serde_json::from_str(&server.line("abc-1")).unwrap();
    assert_eq!(line["path"], "/predict", "what follows the question mark may be a secret");
    assert_eq!((&line["method"], &line["status"], &line["pipeline"]), (&"POST".into(), &200.into(), &"scores".into()));
    assert!(line["duration_ms"].as_f64().unwrap() > 0.0 && line["client"].as_str().unwrap().starts_with("127.0.0.1"));

    let odd = server.post("/predict", "x-request-id: a{b}", "no JSON");
    let made = odd.header("x-request-id").unwrap();
    assert_eq!((odd.status, made.len()), (400, 16));
    assert_eq!(odd.read()["details"]["request_id"], made);
    server.line(made);
}

#[test]
fn dashboard_and_alerts_query_existing_metrics() {
    let server = Server::start(&["tests/models/square.onnx"]);
    server.post("/predict", "", "{\"x\": [[1, 2], [3, 4]]}");
    let plain = server.get_with("/metrics", "accept: text/plain");
    let text = plain.text();
    let known: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut seen = 0;
    for file in ["deploy/grafana-dashboard.json", "deploy/prometheus-alerts.yml"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("gpux_") || word.starts_with("process_")) {
            seen += 1;
            let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            let is_known = known.iter().any(|(name, kind)| *name == word || (*kind == "histogram" && *name == base));
            assert!(is_known, "{file} asks for `{word}`, which the server does not give");
        }
    }
    assert!(seen > 20, "the test found hardly any query");
}
