//! The Open Inference Protocol over REST, as bytes on the wire. Its clients are tried in `tests/oip`.

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value as Json, json};
use std::io::Write as _;

use crate::test_server::{Answer, Server};

fn model(name: &str) -> String {
    format!("tests/oip/models/{name}")
}

fn serve(models: &[&str], more: &[&str]) -> Server {
    let models: Vec<_> = models.iter().map(|name| model(name)).collect();
    let arguments: Vec<_> = models.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Server::start(&arguments)
}

fn floats(shape: &[usize], data: &[f32]) -> Json {
    json!({ "inputs": [{ "name": "x", "datatype": "FP32", "shape": shape, "data": data }] })
}

/// The message of an error: its only field.
fn fault(answer: &Answer, status: u16) -> String {
    let json = answer.with_status(status);
    assert_eq!(json.as_object().unwrap().len(), 1, "{json}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    json["error"].as_str().unwrap().to_owned()
}

#[test]
fn describes_the_server_and_its_models() {
    let server = serve(&["matrix", "text"], &[]);
    for path in ["/v2", "/v2/"] {
        assert_eq!(server.get(path).with_status(200)["name"], "gpux");
    }
    assert_eq!(server.get("/v2/health/live").with_status(200), json!({ "live": true }));
    assert_eq!(server.get("/v2/health/ready").with_status(200), json!({ "ready": true }));
    assert_eq!(server.ask("HEAD", "/v2/health/ready", &[], b"").status, 200);
    assert_eq!(server.get("/v2/models").with_status(200), json!({ "models": ["matrix", "text"] }));
    let described = json!({
        "name": "matrix",
        "versions": ["1"],
        "platform": "onnx_onnxv1",
        "inputs": [{ "name": "x", "datatype": "FP32", "shape": [-1, 3] }],
        "outputs": [{ "name": "y", "datatype": "FP32", "shape": [-1, 3] }],
    });
    // Names may be percent-encoded; a version is its number or written out.
    for path in ["matrix", "m%61trix", "matrix/versions/1", "matrix/versions/1.2.0"] {
        assert_eq!(server.get(&format!("/v2/models/{path}")).with_status(200), described, "{path}");
    }
    assert_eq!(server.get("/v2/models/text/ready").with_status(200)["ready"], true);
    let config = server.get("/v2/models/matrix/config").with_status(200);
    assert_eq!(config["input"][0]["dims"], json!([-1, 3]));
    let index = server.ask("POST", "/v2/repository/index", &[], b"").with_status(200);
    assert_eq!(index[1], json!({ "name": "text", "version": "3", "state": "READY" }));
}

#[test]
fn returns_errors_in_the_protocols_format() {
    let server = serve(&["matrix", "identity_int8"], &[]);
    let infer = "/v2/models/matrix/infer";
    assert!(fault(&server.get("/v2/nothing"), 404).contains("/v2/nothing"));
    assert!(fault(&server.get(infer), 405).contains("GET"));
    assert!(fault(&server.get("/v2/models/nobody"), 404).contains("`matrix`"));
    assert!(fault(&server.get("/v2/models/%ff"), 400).contains("UTF-8"));
    assert!(fault(&server.get("/v2/models/matrix/versions/2/ready"), 404).contains("version 1 (1.2.0)"));
    for (body, why) in [
        ("", "EOF"),
        ("{\"inputs\":", "EOF"),
        ("[]", "an object"),
        (r#"{"inputs":[]}"#, "it is missing"),
        (r#"{"inputs":[{"name":"z","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}"#, "the pipeline has none"),
        (r#"{"inputs":[{"name":"x","datatype":"INT32","shape":[1,3],"data":[1,2,3]}]}"#, "element type is int32"),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}"#, "axis 1 is 2, not 3"),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[2,3],"data":[1,2]}]}"#, "6 elements, but its data has 2"),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,"a"]}]}"#, "is not a float32"),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,nan]}]}"#, "expected ident"),
        (r#"{"inputs":[],"outputs":[{"name":"w"}]}"#, "no output `w`, but `y`"),
        (r#"{"inputs":[],"parameters":{"timeout":-1}}"#, "`timeout` is a whole number"),
    ] {
        let said = fault(&server.ask("POST", infer, &[], body.as_bytes()), 400);
        assert!(said.contains(why), "{body}: {said}");
    }
    let beyond = json!({ "inputs": [{ "name": "x", "datatype": "INT8", "shape": [1], "data": [300] }] });
    assert!(fault(&server.json("/v2/models/identity_int8/infer", &beyond), 400).contains("300 is not a int8"));
    let unloaded = server.ask("POST", "/v2/repository/models/matrix/unload", &[], b"");
    assert!(fault(&unloaded, 403).contains("--model-control"));
    // After all that, it still answers.
    server.json(infer, &floats(&[1, 3], &[1.0, 2.0, 3.0])).with_status(200);
}

#[test]
fn answers_json_with_json() {
    let server = serve(&["matrix"], &[]);
    let nested = json!({
        "id": "seven",
        "parameters": { "timeout": 60_000_000, "priority": 1, "unknown": [1] },
        "inputs": [{ "shape": [2, 3], "data": [[1, 2, 3], [4.5, -0.0, 1e-40]], "datatype": "FP32", "name": "x" }],
        "outputs": [{ "name": "y" }],
    });
    // No content type is required: the most used client sends none.
    for head in [&[][..], &["content-type: application/octet-stream"], &["content-type: text/plain"]] {
        let answer = server.ask("POST", "/v2/models/matrix/infer", head, nested.to_string().as_bytes());
        let expected = r#"{"model_name":"matrix","model_version":"1","id":"seven","outputs":[{"name":"y","datatype":"FP32","shape":[2,3],"data":[1.0,2.0,3.0,4.5,-0.0,1e-40]}]}"#;
        assert_eq!(answer.text(), expected);
    }
}

#[test]
fn carries_binary_tensors_behind_the_json() {
    let server = serve(&["matrix", "text"], &[]);
    let json = br#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"parameters":{"binary_data_size":12}}],"parameters":{"binary_data_output":true}}"#;
    let data: Vec<u8> = [1.0_f32, f32::NAN, f32::NEG_INFINITY].iter().flat_map(|number| number.to_le_bytes()).collect();
    let length = format!("inference-header-content-length: {}", json.len());
    let body = [json.as_slice(), &data].concat();
    let infer = "/v2/models/matrix/infer";
    let answer = server.ask("POST", infer, &[&length], &body);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let split: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
    let heading: Json = serde_json::from_slice(&answer.body[..split]).unwrap();
    assert_eq!(heading["outputs"][0]["parameters"]["binary_data_size"], 12);
    assert_eq!(answer.body[split..], data);

    // Without JSON, the body is the input, and its length determines the shape.
    let raw = server.ask("POST", infer, &["inference-header-content-length: 0"], &data);
    assert_eq!((raw.status, &raw.body[raw.body.len() - 12..]), (200, data.as_slice()));
    let raw = server.ask("POST", "/v2/models/text/infer", &["inference-header-content-length: 0"], b"WORD");
    assert!(raw.body.ends_with(b"\x04\0\0\0word"), "{}", String::from_utf8_lossy(&raw.body));

    let long = format!("inference-header-content-length: {}", body.len() + 1);
    assert!(fault(&server.ask("POST", infer, &[&long], &body), 400).contains("the body has only"));
    assert!(fault(&server.ask("POST", infer, &["inference-header-content-length: x"], &body), 400).contains("number"));
    assert!(fault(&server.ask("POST", infer, &[&length], &body[..body.len() - 1]), 400).contains("but 11 follow"));
}

#[test]
fn accepts_compressed_bodies_up_to_the_limit() {
    let server = serve(&["matrix"], &["--max-body", "1MB"]);
    let infer = "/v2/models/matrix/infer";
    let plain = floats(&[1, 3], &[1.0, 2.0, 3.0]).to_string();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(plain.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflate.write_all(plain.as_bytes()).unwrap();
    let deflate = deflate.finish().unwrap();
    let expected = server.ask("POST", infer, &[], plain.as_bytes()).with_status(200);
    for (encoding, body) in [("gzip", &gzip), ("deflate", &deflate)] {
        let said = format!("content-encoding: {encoding}");
        for said in [said.to_uppercase(), said] {
            assert_eq!(server.ask("POST", infer, &[&said], body).with_status(200), expected, "{said}");
        }
        let accepts = format!("accept-encoding: {encoding}");
        let answer = server.ask("POST", infer, &[&accepts], plain.as_bytes());
        assert_eq!(answer.header("content-encoding"), Some(encoding));
        // Only results are compressed: clients would not decompress other responses.
        assert_eq!(server.ask("GET", "/v2", &[&accepts], b"").header("content-encoding"), None);
        fault(&server.ask("POST", infer, &[&accepts], b"{}"), 400);
    }
    assert!(fault(&server.ask("POST", infer, &["content-encoding: br"], b"x"), 415).contains("`br`"));
    fault(&server.ask("POST", infer, &["content-encoding: gzip"], b"not gzip"), 400);
    // Four megabytes that are four kilobytes on the way.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b' '; 4 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 8 << 10);
    assert!(fault(&server.ask("POST", infer, &["content-encoding: gzip"], &bomb), 413).contains("larger than"));
}

#[test]
fn generates_text_by_model_name() {
    let server = serve(&["text", "matrix"], &[]);
    let asked = json!({ "text": "ONE", "id": "7", "parameters": { "stream": false }, "temperature": 0 });
    let expected = json!({ "model_name": "text", "model_version": "3", "id": "7", "text": "one" });
    assert_eq!(server.json("/v2/models/text/generate", &asked).with_status(200), expected);
    let stream = server.json("/v2/models/text/generate_stream", &asked);
    assert_eq!(stream.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let event = stream.text().strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
    assert_eq!(serde_json::from_str::<Json>(event).unwrap(), expected);
    assert!(fault(&server.json("/v2/models/text/generate", &json!({ "word": 1 })), 400).contains("`text`"));
    let flat = server.json("/v2/models/matrix/generate", &json!({ "x": [[1, 2, 3], [4, 5, 6]] })).with_status(200);
    assert_eq!(flat["y"], json!([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
}

#[test]
fn returns_tritons_settings_read_only() {
    let server = serve(&["matrix"], &["--access-log"]);
    for memory in ["/v2/systemsharedmemory", "/v2/cudasharedmemory"] {
        assert_eq!(server.get(&format!("{memory}/status")).with_status(200), json!([]));
        assert!(fault(&server.get(&format!("{memory}/region/r%20s/status")), 404).contains("`r s`"));
        let body = json!({ "key": "/r", "offset": 0, "byte_size": 64 });
        assert!(fault(&server.json(&format!("{memory}/region/r/register"), &body), 400).contains("not supported"));
        for path in ["unregister", "region/r/unregister"] {
            assert_eq!(server.ask("POST", &format!("{memory}/{path}"), &[], b"").status, 200);
        }
    }
    assert!(fault(&server.get("/v2/systemsharedmemory/region/%ff/status"), 400).contains("UTF-8"));
    let logging = server.get("/v2/logging").with_status(200);
    assert_eq!((&logging["log_verbose_level"], &logging["log_info"]), (&json!(1), &json!(true)));
    assert_eq!(server.json("/v2/logging", &json!({ "log_verbose_level": 1 })).with_status(200), logging);
    assert!(fault(&server.json("/v2/logging", &json!({ "log_info": false })), 400).contains("`log_info`"));
    let tracing = server.get("/v2/trace/setting").with_status(200);
    assert_eq!(tracing["trace_level"], json!(["OFF"]));
    assert_eq!(server.get("/v2/models/matrix/trace/setting").with_status(200), tracing);
    fault(&server.get("/v2/models/nobody/trace/setting"), 404);
    let change = server.json("/v2/trace/setting", &json!({ "trace_level": ["TIMESTAMPS"] }));
    assert!(fault(&change, 400).contains("operator"));
    assert!(fault(&server.json("/v2/trace/setting", &json!([1])), 400).contains("object"));
}

#[test]
fn lets_clients_load_and_unload_if_enabled() {
    let server = serve(&["matrix"], &["--model-control"]);
    let call = |call: &str, body: &str| {
        server.ask("POST", &format!("/v2/repository/models/matrix/{call}"), &[], body.as_bytes())
    };
    assert_eq!(call("unload", "").status, 200);
    let answer = server.json("/v2/models/matrix/infer", &floats(&[1, 3], &[0.0; 3]));
    assert!(fault(&answer, 404).contains("unloaded"));
    assert_eq!(answer.header("retry-after"), None, "waiting does not help");
    assert_eq!(server.json("/v2/repository/index", &json!({ "ready": true })).with_status(200), json!([]));
    assert!(fault(&call("load", r#"{"parameters":{"config":"{}"}}"#), 400).contains("not supported"));
    assert_eq!(call("load", "").status, 200);
    assert_eq!(server.get("/v2/models/matrix/ready").status, 200);
}
