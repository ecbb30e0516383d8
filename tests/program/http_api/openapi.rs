//! `/openapi.json` matches the server's behaviour.

use serde_json::{Value as Json, json};

use super::{Server, pipeline, seven};

/// The node itself, or the target of its `$ref`.
fn followed<'a>(document: &'a Json, node: &'a Json) -> &'a Json {
    match node["$ref"].as_str() {
        Some(pointer) => document.pointer(pointer.trim_start_matches('#')).unwrap(),
        None => node,
    }
}

/// The errors of `json` under this schema of the document.
fn unfit(document: &Json, schema: &Json, json: &Json) -> Vec<String> {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator.iter_errors(json).map(|error| error.to_string()).collect()
}

/// The errors of `answer` under the document's schema for it.
fn faults(document: &Json, path: &str, method: &str, status: &str, answer: &Json) -> Vec<String> {
    let response = followed(document, &document["paths"][path][method]["responses"][status]);
    let schema = &response["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {path} has no {status}");
    unfit(document, schema, answer)
}

/// The schema of a request in JSON.
fn request<'a>(document: &'a Json, path: &str) -> &'a Json {
    &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
}

#[test]
fn responses_match_the_openapi_document() {
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
fn openapi_lists_the_inputs_of_each_pipeline() {
    let server = Server::start(&[]);
    let document = server.get("/openapi.json").with_status(200);
    let operation = &document["paths"]["/predict"]["post"];
    let content = operation["requestBody"]["content"].as_object().unwrap();
    let kinds: Vec<_> = content.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["application/json", "multipart/form-data", "application/octet-stream", "image/*"]);
    let object = followed(&document, &content["application/json"]["schema"]["anyOf"][0]);
    assert_eq!(object["required"], json!(["image"]));
    assert_eq!(object["properties"]["image"]["description"], "a photo or scan of one digit");
    let parameters = operation["parameters"].as_array().unwrap().iter();
    let parameters: Vec<_> = parameters.map(|one| followed(&document, one)).collect();
    let names: Vec<_> = parameters.iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["timeout", "priority", "trace", "output"]);
    assert_eq!(parameters[1]["schema"]["oneOf"].as_array().map(Vec::len), Some(3), "{operation:#}");
    assert!(followed(&document, &operation["responses"]["503"])["headers"]["Retry-After"].is_object());
}

#[test]
fn openapi_describes_the_open_inference_protocol() {
    let server = Server::start(&[".", &pipeline("scores"), &pipeline("text"), &pipeline("draw-boxes")]);
    let document = server.get("/openapi.json").with_status(200);
    let right = |path: &str, method: &str, status: u16, answer: &Json| {
        let found = faults(&document, path, method, &status.to_string(), answer);
        assert!(found.is_empty(), "{method} {path} {status}: {found:?} in {answer}");
    };
    for path in [
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models",
        "/v2/models/stats",
        "/v2/logging",
        "/v2/trace/setting",
        "/v2/cudasharedmemory/status",
    ] {
        right(path, "get", 200, &server.get(path).with_status(200));
    }
    for (template, path) in [
        ("/v2/models/{model}", "/v2/models/draw-boxes"),
        ("/v2/models/{model}/versions/{version}", "/v2/models/draw-boxes/versions/1"),
    ] {
        for rest in ["", "/ready", "/config", "/stats"] {
            let answer = server.get(&format!("{path}{rest}")).with_status(200);
            right(&format!("{template}{rest}"), "get", 200, &answer);
        }
        let unknown = server.get(&path.replace("draw-boxes", "nobody")).with_status(404);
        right(template, "get", 404, &unknown);
    }
    let index = server.ask("POST", "/v2/repository/index", &[], b"").with_status(200);
    right("/v2/repository/index", "post", 200, &index);

    for name in ["digits", "scores", "text"] {
        let path = format!("/v2/models/{name}/infer");
        let (schema, example) = (&request(&document, &path)["schema"], &request(&document, &path)["example"]);
        assert_eq!(unfit(&document, schema, example), Vec::<String>::new(), "{name}");
        let answer = server.json(&path, example).with_status(200);
        right(&path, "post", 200, &answer);
        right("/v2/models/{model}/versions/{version}/infer", "post", 200, &answer);
        let path = format!("/v2/models/{name}/generate");
        right(&path, "post", 200, &server.json(&path, &request(&document, &path)["example"]).with_status(200));
    }

    // The server rejects requests that the schema rejects.
    let (path, schema) = ("/v2/models/scores/infer", &request(&document, "/v2/models/scores/infer")["schema"]);
    let example = &request(&document, path)["example"];
    for (field, wrong) in [
        ("name", json!("y")),
        ("datatype", json!("FP64")),
        ("shape", json!([2, 3])),
        ("data", json!([1, 2, 3, "four"])),
        ("data", json!(1)),
    ] {
        let mut request = example.clone();
        request["inputs"][0][field] = wrong;
        assert!(!unfit(&document, schema, &request).is_empty(), "{request}");
        right(path, "post", 400, &server.json(path, &request).with_status(400));
    }
    for wrong in [json!(["id", {}, example["inputs"]]), json!({ "inputs": example["inputs"], "outputs": [["scores"]] })]
    {
        assert!(!unfit(&document, schema, &wrong).is_empty(), "{wrong}");
        right(path, "post", 400, &server.json(path, &wrong).with_status(400));
    }
}

#[test]
fn openapi_document_grows_little_per_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let length = |pipelines: usize| {
        for number in 0..pipelines {
            let text = std::fs::read_to_string(crate::digits::root().join(pipeline("scores"))).unwrap();
            let text = text.replace("name: scores", &format!("name: scores {number}"));
            std::fs::write(folder.path().join(format!("{number}.yml")), text).unwrap();
        }
        let paths: Vec<_> = (0..pipelines).map(|number| format!("{}/{number}.yml", folder.path().display())).collect();
        let server = Server::start(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        let answer = server.get("/openapi.json");
        answer.with_status(200);
        answer.body.len()
    };
    let each = (length(12) - length(2)) / 10;
    assert!(each < 10_000, "{each} bytes for each pipeline");
}
