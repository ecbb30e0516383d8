//! `/openapi.json` says what the server does.

use serde_json::{Value as Json, json};

use super::{Server, pipeline, seven};

/// What is wrong with `answer`, by the schema that the document has for it.
fn faults(document: &Json, path: &str, method: &str, status: &str, answer: &Json) -> Vec<String> {
    let response = &document["paths"][path][method]["responses"][status];
    let mut schema = response["content"]["application/json"]["schema"].clone();
    assert!(schema.is_object(), "{method} {path} has no {status}");
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator.iter_errors(answer).map(|error| error.to_string()).collect()
}

#[test]
fn answers_are_what_the_document_says() {
    let server = Server::start(&[".", &pipeline("scores"), &pipeline("text"), &pipeline("sound")]);
    let document = server.get("/openapi.json").with_status(200);
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/predict"].is_null(), "there is no only pipeline");
    let right = |path: &str, method: &str, status: u16, answer: &Json| {
        let found = faults(&document, path, method, &status.to_string(), answer);
        assert!(found.is_empty(), "{method} {path} {status}: {found:?} in {answer}");
    };
    for path in ["/health", "/health/live", "/health/ready", "/pipelines", "/pipelines/digits/info"] {
        right(path, "get", 200, &server.get(path).with_status(200));
    }
    for (name, body) in [
        ("scores", json!({ "x": [[1, 2], [3, "Infinity"]] })),
        ("scores", json!([{ "x": [[1, 2], [3, 4]] }, { "x": "no" }])),
        ("text", json!({ "text": "a fox" })),
    ] {
        let path = format!("/pipelines/{name}/predict");
        right(&path, "post", 200, &server.json(&path, &body).with_status(200));
        if body.is_object() {
            let traced = server.json(&format!("{path}?trace=true"), &body).with_status(200);
            assert!(traced["trace"]["steps"].is_array());
            right(&path, "post", 200, &traced);
        }
        right(&path, "post", 400, &server.json(&path, &json!({ "none": 1 })).with_status(400));
    }
    let path = "/pipelines/digits/predict";
    let traced = server.ask("POST", &format!("{path}?trace=true"), &["content-type: image/png"], &seven());
    right(path, "post", 200, &traced.with_status(200));

    // The schemas do refuse.
    assert!(!faults(&document, path, "post", "400", &json!({ "error": "x" })).is_empty());
    let odd = json!({ "outputs": {}, "trace": { "queued_ms": 1 } });
    assert!(!faults(&document, "/pipelines/scores/predict", "post", "200", &odd).is_empty());
}

#[test]
fn each_pipeline_has_its_own_inputs() {
    let server = Server::start(&[]);
    let document = server.get("/openapi.json").with_status(200);
    let operation = &document["paths"]["/predict"]["post"];
    let content = operation["requestBody"]["content"].as_object().unwrap();
    let kinds: Vec<_> = content.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["application/json", "multipart/form-data", "application/octet-stream", "image/*"]);
    let object = &content["application/json"]["schema"]["anyOf"][0];
    assert_eq!(object["required"], json!(["image"]));
    assert_eq!(object["properties"]["image"]["description"], "a photo or scan of one digit");
    let parameters: Vec<_> = operation["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(parameters, ["timeout", "priority", "output", "trace"]);
    assert_eq!(operation["parameters"][1]["schema"]["oneOf"].as_array().map(Vec::len), Some(3), "{operation:#}");
    assert!(operation["responses"]["503"]["headers"]["Retry-After"].is_object());
}
