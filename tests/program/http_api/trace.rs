//! `?trace=true`: what each step of a request did.

use serde_json::json;

use super::{Server, pipeline, seven};

#[test]
fn trace_lists_each_step() {
    let server = Server::start(&[".", &pipeline("text")]);
    let path = "/pipelines/digits/predict";
    let ask = |path: &str| server.ask("POST", path, &["content-type: image/png"], &seven());
    let traced = ask(&format!("{path}?trace=true")).with_status(200);
    assert_eq!(traced["outputs"], ask(path).with_status(200));
    let steps = traced["trace"]["steps"].as_array().unwrap();
    let names: Vec<_> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["decode-image", "center-ink.wasm", "resize", "normalize", "model", "softmax", "top-k"]);
    assert!(steps.iter().all(|step| step["time_ms"].as_f64().unwrap() >= 0.0));
    assert!(steps[1]["memory"].as_u64().unwrap() > 0, "a sandbox has memory");
    assert!(steps[0].get("memory").is_none());

    let resized = &steps[2]["gave"][0];
    assert_eq!((&resized["element"], &resized["shape"]), (&json!("uint8"), &json!([8, 8, 1])));
    assert!(resized["image"].as_str().unwrap().starts_with("data:image/png;base64,"));
    assert_eq!(resized["numbers"].as_array().unwrap().len(), 8);
    let decoded = &steps[0]["gave"][0];
    assert!(decoded.get("numbers").is_none() && decoded["statistics"]["max"].as_f64().unwrap() > 100.0, "{decoded}");
    assert_eq!(steps[6]["gave"][0]["json"], traced["outputs"]["top"]);
    assert!(ask("/pipelines/digits/predict?trace=false").with_status(200)["trace"].is_null());
}

#[test]
fn trace_of_a_failure_lists_the_steps_before_it() {
    let server = Server::start(&["."]);
    let answer = server.ask("POST", "/predict?trace=true", &["content-type: image/png"], b"no picture");
    let json = answer.with_status(400);
    assert_eq!(json["details"]["name"], "decode-image");
    let steps = json["details"]["trace"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 1);
    assert!(steps[0]["failed"].as_str().unwrap().contains("not an image"), "{json}");
}

#[test]
fn returns_a_trace_only_if_enabled_for_one_json_request() {
    let body = json!({ "x": [[1, 2], [3, 4]] });
    let server = Server::start(&[&pipeline("scores")]);
    assert!(server.json("/predict?trace=true", &json!([body])).error(400).contains("one request"));
    let head = ["content-type: application/json", "accept: application/x-npy"];
    let npy = server.ask("POST", "/predict?trace=true", &head, body.to_string().as_bytes());
    assert!(npy.error(406).contains("application/json"));
    drop(server);
    let server = Server::start(&[&pipeline("scores"), "--no-trace"]);
    assert!(server.json("/predict?trace=true", &body).error(400).contains("no traces"));
    assert_eq!(server.json("/predict", &body).status, 200);
    assert_eq!(server.get("/info").with_status(200)["trace"], false);
}
