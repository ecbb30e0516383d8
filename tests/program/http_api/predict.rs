//! `POST /predict`: every kind of body and response, and rejected requests.

use base64::Engine as _;
use serde_json::json;

use super::{Server, pipeline, seven};
use crate::digits::root;

const PREDICT: &str = "/pipelines/digits/predict";

#[test]
fn accepts_an_image_in_every_encoding() {
    let server = Server::start(&["."]);
    let image = seven();
    let base64 = base64::engine::general_purpose::STANDARD.encode(&image);
    let raw = |media_type: &str| server.ask("POST", "/predict", &[&format!("content-type: {media_type}")], &image);
    let expected = raw("image/png").with_status(200);
    assert_eq!(expected["top"][0]["label"], "seven");
    assert_eq!(raw("application/octet-stream").with_status(200), expected);
    assert_eq!(raw("Image/X-Anything; q=1").with_status(200), expected);
    // Without a type, or with the one that curl states for `--data-binary`.
    for head in ["", "content-type: application/x-www-form-urlencoded"] {
        assert_eq!(server.ask("POST", "/predict", &[head], &image).with_status(200), expected, "{head}");
        let json = json!({ "image": base64 }).to_string();
        assert_eq!(server.ask("POST", "/predict", &[head], json.as_bytes()).with_status(200), expected, "{head}");
    }
    for body in [
        json!({ "image": { "base64": base64 } }),
        json!({ "image": base64 }),
        json!({ "image": format!("data:image/png;base64,{base64}") }),
        json!({ "base64": base64 }),
        json!(base64),
    ] {
        assert_eq!(server.json("/predict", &body).with_status(200), expected, "{}", &body.to_string()[..40]);
    }
    for name in ["image", "file"] {
        let mut form = format!(
            "--edge\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a b.png\"\r\n\
             Content-Type: image/png\r\n\r\n"
        )
        .into_bytes();
        form.extend_from_slice(&image);
        form.extend_from_slice(b"\r\n--edge--\r\n");
        let answer = server.ask("POST", PREDICT, &["content-type: multipart/form-data; boundary=edge"], &form);
        assert_eq!(answer.with_status(200), expected, "{name}");
    }
    let list = json!([{ "image": base64 }, { "image": "no base64!" }, { "image": base64 }]);
    let results = server.json("/predict", &list).with_status(200);
    assert_eq!((&results[0], &results[2]), (&expected, &expected));
    assert_eq!(results[1]["error"], "ValidationError");
}

#[test]
fn reads_json_as_other_programs_write_it() {
    let server = Server::start(&[&pipeline("scores"), &pipeline("text")]);
    let ask = |path: &str, media_type: &str, body: &[u8]| {
        server.ask("POST", &format!("/pipelines/{path}/predict"), &[&format!("content-type: {media_type}")], body)
    };
    let (json, any) = ("application/json", "application/x-www-form-urlencoded");
    // Python's `json.dumps` writes the first; quotes stay as they are.
    let bare = ask("scores", json, br#"{"x": [1, NaN, -Infinity, 4]}"#).with_status(200);
    assert_eq!(bare, ask("scores", json, br#"{"x": [1, "NaN", "-Infinity", 4]}"#).with_status(200));
    let list = ask("scores", json, br#"[{"x": [1, 2, 3, 4]}, {"x": [1, NaN, 3, 4]}]"#).with_status(200);
    assert_eq!(list.as_array().unwrap().len(), 2);
    for wrong in [r#"{"x": [1, NaNs, 3, 4]}"#, r#"{"x": [1, NaN, 3, 4}"#, "NaN"] {
        assert_eq!(ask("scores", json, wrong.as_bytes()).status, 400, "{wrong}");
    }
    let body = r#"{"x": [1, 2, 3, 4]}"#;
    let expected = ask("scores", json, body.as_bytes()).with_status(200);
    let marked = format!("\u{feff}{body}");
    for media_type in [json, any] {
        assert_eq!(ask("scores", media_type, marked.as_bytes()).with_status(200), expected);
        for text in [body, &marked] {
            let utf16: Vec<_> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            assert!(ask("scores", media_type, &utf16).error(400).contains("UTF-16"), "{media_type}");
        }
    }
    let infer = |body: Vec<u8>| server.ask("POST", "/v2/models/scores/infer", &[], &body).status;
    assert_eq!(infer(format!("\u{feff}{INFER}").into_bytes()), 200);
    assert_eq!(infer(INFER.encode_utf16().flat_map(u16::to_be_bytes).collect()), 400);
    let text = ask("text", "text/plain", b"a fox").with_status(200);
    assert_eq!(ask("text", "text/plain", "\u{feff}a fox".as_bytes()).with_status(200), text);
    let utf16: Vec<_> = "\u{feff}a fox".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(ask("text", "text/plain; charset=utf-16", &utf16).error(400).contains("UTF-16"));
}

const INFER: &str = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, NaN, 4]}]}"#;

#[test]
fn tells_how_many_texts_were_truncated() {
    for isolation in ["none", "pipeline"] {
        let server = Server::start(&[&pipeline("text"), "--isolation", isolation]);
        let long = "a fox jumps over the lazy dog and over the quick brown fox".to_owned();
        let texts = [(json!("a fox"), None), (json!(long), Some("1")), (json!([long, "a", long]), Some("2"))];
        for (text, truncated) in texts {
            let answer = server.json("/predict", &json!({ "text": text }));
            assert_eq!((answer.status, answer.header("x-gpux-truncated")), (200, truncated), "{answer:?}");
        }
        let traced = server.json("/predict?trace=true", &json!({ "text": long })).with_status(200);
        assert_eq!(traced["trace"]["steps"][0]["truncated"], 1, "{traced}");
        assert_eq!(server.metric("gpux_truncated_texts_total{pipeline=\"text\"} ") as u64, 4);
    }
}

#[test]
fn accepts_text_audio_and_npy_bodies() {
    let server = Server::start(&[&pipeline("text"), &pipeline("sound"), &pipeline("scores"), &pipeline("draw-boxes")]);
    let text = server.ask("POST", "/pipelines/text/predict", &["content-type: text/plain; charset=utf-8"], b"a fox");
    let text = text.with_status(200);
    assert_eq!(server.json("/pipelines/text/predict", &json!({ "text": "a fox" })).with_status(200), text);
    let wrong = server.ask("POST", "/pipelines/text/predict", &["content-type: text/plain"], b"\xff");
    assert!(wrong.error(400).contains("gets bytes"));

    let sound = std::fs::read(root().join("tests/cases/pipelines/files/sound.wav")).unwrap();
    let sound = server.ask("POST", "/pipelines/sound/predict", &["content-type: audio/wav"], &sound).with_status(200);
    assert!(sound.as_object().unwrap().values().all(serde_json::Value::is_array), "{sound}");

    let path = "/pipelines/scores/predict";
    let scores = server.json(path, &json!({ "x": [[1, 2], [3, 4]] })).with_status(200);
    assert_eq!(server.json(path, &json!([[1, 2], [3, 4]])).with_status(200), scores, "the only input's value");
    assert_eq!(server.json(path, &json!({ "x": [1, 2, 3, 4] })).with_status(200), scores, "a flat list");
    let explicit = json!({ "x": { "type": "float32", "shape": [2, 2], "data": [1, 2, 3, 4] } });
    assert_eq!(server.json(path, &explicit).with_status(200), scores);
    let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    npy.extend(format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }").bytes());
    npy.extend([1_f32, 2.0, 3.0, 4.0].iter().flat_map(|number| number.to_le_bytes()));
    for head in ["content-type: application/x-npy", ""] {
        assert_eq!(server.ask("POST", path, &[head], &npy).with_status(200), scores, "{head}");
    }
    assert!(server.ask("POST", path, &[], b"1, 2").error(400).contains("`Content-Type`"));
    let data = json!({ "x": { "data": [1, 2, 3, 4] } });
    assert_eq!(server.json(path, &data).with_status(200), scores, "the declared shape");
    let unnamed = server.ask("POST", "/pipelines/text/predict", &[], b"a fox").with_status(200);
    assert_eq!(unnamed, text);

    let found = r#"[{"box": [1, 1, 20, 20]}]"#;
    let mut form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"found\"\r\n\r\n{found}\r\n\
         --b\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"x\"\r\n\r\n"
    )
    .into_bytes();
    form.extend_from_slice(&seven());
    form.extend_from_slice(b"\r\n--b--");
    let head = ["content-type: multipart/form-data; boundary=b"];
    let corner = server.ask("POST", "/pipelines/draw-boxes/predict", &head, &form).with_status(200);
    assert_eq!(corner["corner"].as_array().unwrap().len(), 3);
}

#[test]
fn accept_header_selects_the_format() {
    let server = Server::start(&[&pipeline("scores")]);
    let ask = |accept: &str| {
        let head = ["content-type: application/json", &format!("accept: {accept}")];
        server.ask("POST", "/predict", &head, br#"{"x": [[0, 0], [0, 0]]}"#)
    };
    let json = ask("text/html, application/json;q=0.9, */*;q=0.1").with_status(200);
    let (name, _) = json.as_object().unwrap().iter().next().unwrap();
    let npy = ask("application/x-npy");
    assert_eq!((npy.status, npy.header("content-type")), (200, Some("application/x-npy")));
    assert!(npy.body.starts_with(b"\x93NUMPY"));
    let bytes = ask("application/octet-stream, application/json;q=0.5");
    assert_eq!(bytes.body, [0.5_f32; 4].iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
    assert_eq!((bytes.header("x-tensor-type"), bytes.header("x-tensor-shape")), (Some("float32"), Some("2,2")));
    assert!(ask("image/png").error(406).contains(name.as_str()));
    assert!(ask("text/html").error(406).contains("application/json"));
    assert!(ask("application/json;q=0").error(406).contains("application/x-npy"));
    // The `Accept` headers of jQuery and browsers: the preferred type is not available, but any is accepted.
    for accept in ["text/plain, */*; q=0.01", "image/avif,image/webp,image/*,*/*;q=0.8", ", image/png;q=0, *"] {
        assert_eq!(ask(accept).with_status(200), json, "{accept}");
    }
    assert_eq!(ask("*/*;q=0.5, application/json;q=0").header("content-type"), Some("application/octet-stream"));
}

#[test]
fn rejects_unacceptable_formats_before_the_run() {
    let server = Server::start(&["--allow-outside", &pipeline("never-ends")]);
    let ask = |query: &str, accept: &str| {
        let head = ["content-type: application/json", &format!("accept: {accept}")];
        server.ask("POST", &format!("/predict{query}"), &head, b"{}")
    };
    assert!(ask("?output=none", "*/*").error(400).contains("there is no output `none`"));
    assert!(ask("", "text/html").error(406).contains("application/json"));
}

#[test]
fn rejects_mismatched_inputs() {
    let server = Server::start(&["--allow-outside", &pipeline("scores"), &pipeline("never-ends")]);
    let path = "/pipelines/scores/predict";
    let ask = |path: &str, head: &str, body: &str| server.ask("POST", path, &[head], body.as_bytes());
    let json = "content-type: application/json";
    assert!(ask(path, json, "").error(400).contains("no body"));
    assert!(ask(path, json, "{\"x\": [[1,").error(400).contains("not JSON"));
    assert!(ask(path, json, r#"{"x": [[1, 2]]}"#).error(400).contains("axis 0 is 1, not 2"));
    assert!(ask(path, json, r#"{"x": [[1, 2], [3, "four"]]}"#).error(400).contains("float32 elements"));
    assert!(ask(path, json, r#"{"y": 1}"#).error(400).contains("`x`"));
    assert!(ask(path, "content-type: application/xml", "1,2").error(415).contains("application/xml"));
    assert_eq!(ask(path, "content-type: multipart/form-data", "x").status, 415);
    let form = "content-type: multipart/form-data; boundary=b";
    assert_eq!(ask(path, form, "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n[[1").status, 400);
    for (query, part) in [
        ("timeout=0", "above 0"),
        ("timeout=-1", "above 0"),
        ("timeout=NaN", "above 0"),
        ("timeout=soon", "timeout"),
        ("priority=urgent", "priority"),
        ("retries=3", "retries"),
        ("output=y", "`y`"),
    ] {
        let message = ask(&format!("{path}?{query}"), json, r#"{"x": [[1, 2], [3, 4]]}"#).error(400);
        assert!(message.contains(part), "{query}: {message}");
    }
    let right = ask(&format!("{path}?timeout=5&priority=high"), json, r#"{"x": [[1, 2], [3, 4]]}"#);
    assert_eq!(right.status, 200);

    let endless = server.json("/pipelines/never-ends/predict", &json!({ "in": "x" }));
    assert_eq!(endless.with_status(500)["details"]["limit"], "time");
}

#[test]
fn steps_end_at_the_timeout_of_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late.yml");
    // The request's time ends first, and in the step, though a busy machine starts it late.
    let limits = ("limits: { time: 50ms,", "limits: { time: 10s,");
    let text = std::fs::read_to_string(root().join(pipeline("never-ends"))).unwrap().replace(limits.0, limits.1);
    assert!(text.contains(limits.1), "{text}");
    std::fs::write(&file, text.replace("../../..", root().to_str().unwrap())).unwrap();
    let server = Server::start(&["--allow-outside", file.to_str().unwrap()]);
    let late = server.json("/predict?timeout=1", &json!({ "in": "x" }));
    assert_eq!(late.with_status(504)["error"], "StepError");
}

#[test]
fn rejects_duplicate_json_keys() {
    let server = Server::start(&[&pipeline("scores")]);
    let one = r#"{"x": [[1, 2], [3, 4]]"#;
    for body in [
        format!("{one}, \"x\": [[0, 0], [0, 0]]}}"),
        format!("[{one}}}, {one}, \"x\": [[0, 0], [0, 0]]}}]"),
        r#"{"x": {"shape": [2, 2], "data": [1, 2, 3, 4], "data": [0, 0, 0, 0]}}"#.to_owned(),
        format!("{one}, \"\\u0078\": 1}}"),
    ] {
        let answer = server.ask("POST", "/predict", &["content-type: application/json"], body.as_bytes());
        assert!(answer.error(400).contains("duplicate field"), "{body}: {answer:?}");
    }
    assert_eq!(server.ask("POST", "/predict", &[], format!("{one}}}").as_bytes()).status, 200);
}
