//! The calls that a component makes of models and built-in steps, as a user sees them.

use serde_json::{Value as Json, json};

use crate::digits::{gpux, root, stdout};
use crate::test_server::Server;

const DECODER: [&str; 7] =
    ["run", "examples/decoder", "--allow-outside", "--engine", "embedded", "--input", "text=zwei plus drei"];

/// A pipeline whose component calls `resize`; the folder lives as long as its test.
pub(crate) fn thumbnails() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("guest-examples/rust/thumbnail.wasm"), folder.path().join("thumbnail.wasm")).unwrap();
    let text = "name: thumbnails\nversion: 1.0.0\ninputs: { photo: bytes }\n\
                pipeline: [{ decode-image: { channels: rgb } }, { wasm: { component: ./thumbnail.wasm, options: { side: 32 } } }]\n";
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    folder
}

#[test]
fn run_shows_calls_in_traces_and_benchmarks() {
    let traced: Json = serde_json::from_str(&stdout(&gpux(&[&DECODER[..], &["--trace", "--json"]].concat()))).unwrap();
    let steps = traced["trace"]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == "greedy-decoder.wasm").unwrap();
    let call = &step["calls"][0];
    let count = call["count"].as_u64().unwrap();
    assert!(call["name"] == "model model" && count > 1 && call["failed"] == 0, "{step}");
    assert!(call["time_ms"].as_f64().unwrap() <= step["time_ms"].as_f64().unwrap(), "{step}");
    assert!(steps.iter().all(|step| step["name"] == "greedy-decoder.wasm" || step.get("calls").is_none()));

    let output = gpux(&[&DECODER[..], &["--trace"]].concat());
    let table = String::from_utf8_lossy(&output.stderr);
    let row = table.lines().find(|line| line.contains("model model")).unwrap();
    assert!(row.contains(&format!("  model model × {count} ")) && row.contains('%'), "{table}");

    let benchmark = [&DECODER[..], &["--benchmark", "--runs", "3", "--warmup", "0"]].concat();
    let timed: Json = serde_json::from_str(&stdout(&gpux(&[&benchmark[..], &["--json"]].concat()))).unwrap();
    let steps = timed["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == "greedy-decoder.wasm").unwrap();
    assert_eq!(step["calls"][0]["calls_per_run"], count as f64, "{step}");
    assert!(step["calls"][0]["time_ms_per_run"].as_f64() > Some(0.0), "{step}");
    let table = stdout(&gpux(&benchmark));
    assert!(table.contains(&format!("  model model × {count} ")), "{table}");
}

#[test]
fn server_shows_calls_in_traces_and_metrics() {
    let folder = thumbnails();
    let photo = std::fs::read(root().join("models/samples/seven.png")).unwrap();
    let isolations: &[&str] = if cfg!(target_os = "linux") { &["none", "pipeline"] } else { &["none"] };
    for isolation in isolations {
        let server = Server::start(&[folder.path().to_str().unwrap(), "--isolation", isolation]);
        let ask = |path: &str| server.ask("POST", path, &["content-type: image/png"], &photo).with_status(200);
        let steps = ask("/predict?trace=true")["trace"]["steps"].clone();
        assert!(steps[0].get("calls").is_none(), "{steps}");
        let call = &steps[1]["calls"][0];
        assert_eq!((&call["name"], &call["count"], call.get("failed")), (&json!("resize"), &json!(1), None), "{steps}");
        ask("/predict");

        let labels = "{pipeline=\"thumbnails\",step=\"thumbnail.wasm\",number=\"2\",called=\"resize\"}";
        let metric = |name: &str| server.metric(&format!("{name}{labels}"));
        assert!((metric("gpux_step_calls_total") - 2.0).abs() < 1e-9, "{isolation}");
        assert!(metric("gpux_step_call_failures_total").abs() < 1e-9, "{isolation}");
        let seconds = metric("gpux_step_call_time_seconds_total");
        assert!(seconds > 0.0 && seconds < 60.0, "{isolation}: {seconds}");
        let metrics = server.get_with("/metrics", "accept: application/json").with_status(200);
        let steps = &metrics["pipelines"][0]["steps"];
        assert_eq!(steps[0]["calls"], json!([]));
        assert_eq!((&steps[1]["calls"][0]["name"], &steps[1]["calls"][0]["count"]), (&json!("resize"), &json!(2)));
    }
}
