//! Heads of requests that are made to hurt: each is answered with an error, and the next one as ever.

use super::{ONE, SCORES, Server};

const JSON: &str = "content-type: application/json";

#[test]
fn rejects_malformed_and_oversized_heads() {
    let server = Server::start(&[SCORES, "--access-log"]);
    let length = ONE.len();
    let post = |headers: &str| format!("POST /predict HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{ONE}");
    let many: Vec<_> = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    let many = many.concat();
    for (head, statuses) in [
        (post(&format!("content-length: {length}\r\n{many}")), &[431][..]),
        (post(&format!("content-length: {length}\r\nx: {}\r\n", "y".repeat(1 << 20))), &[431]),
        (format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "p".repeat(1 << 20)), &[414, 431]),
        (post("content-length: -1\r\n"), &[400]),
        (post("content-length: 1\r\ncontent-length: 2\r\n"), &[400]),
        (post("content-length: 99999999999999999999999\r\n"), &[400]),
        (post("transfer-encoding: gzip\r\n"), &[400]),
        (post("content-length: 1\r\nbad header\r\n"), &[400]),
        (post("content-length: 1\r\nx: a\0b\r\n"), &[400]),
        ("POST /predict HTTP/9.9\r\n\r\n".to_owned(), &[400, 505]),
        ("\0\x01\x02\x03\r\n\r\n".to_owned(), &[400]),
    ] {
        let mut connection = server.connect();
        // It may be refused, and closed, before all of it is sent.
        let _ = connection.write(head.as_bytes());
        match connection.answer() {
            Ok(answer) => assert!(statuses.contains(&answer.status), "{head:.80}: {answer:?}"),
            Err(error) => assert!(head.len() > 1 << 20, "{head:.80}: {error}"),
        }
        server.assert_alive();
    }
    // Malformed heads are counted and logged as well.
    for (status, least) in [("400", 7.0), ("431", 2.0)] {
        let counted =
            server.metric(&format!("gpux_requests_total{{pipeline=\"\",protocol=\"http\",status=\"{status}\"}} "));
        assert!(counted >= least, "{counted} of {status}");
    }
    assert!(server.line("could not be read").contains("status=431"));
}

#[test]
fn requires_exactly_one_host() {
    let server = Server::start(&[SCORES]);
    for (lines, status) in [
        ("", 400),
        ("host: localhost\r\n", 200),
        ("host: localhost\r\nhost: localhost\r\n", 400),
        ("host:\r\n", 400),
        ("host: a b\r\n", 400),
        ("host: localhost/x\r\n", 400),
        ("host: me@localhost\r\n", 400),
        ("host: localhost:port\r\n", 400),
        ("host: [::1\r\n", 400),
    ] {
        let mut connection = server.connect();
        connection.write(format!("GET /health HTTP/1.1\r\n{lines}\r\n").as_bytes()).unwrap();
        assert_eq!(connection.answer().unwrap().status, status, "{lines:?}");
    }
    let mut old = server.connect();
    old.write(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.answer().unwrap().status, 200, "it was not asked for then");
}

#[test]
fn closes_connections_with_wrong_content_length() {
    let server = Server::start(&[SCORES, "--body-timeout", "200ms"]);
    // With both lengths, the bytes that a proxy takes for a second request are not executed.
    let (length, chunked) = ("content-length: 4\r\n", "transfer-encoding: chunked\r\n");
    for (fields, statuses) in [
        (format!("{length}{chunked}"), &[400][..]),
        (format!("{chunked}{length}"), &[400]),
        (chunked.to_owned(), &[200, 200]),
    ] {
        let mut both = server.connect();
        let one = format!("POST /predict HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n13\r\n{ONE}\r\n0\r\n\r\n");
        both.write(one.repeat(2).as_bytes()).unwrap();
        for status in statuses {
            assert_eq!(both.answer().unwrap().status, *status, "{fields}");
        }
        assert!(statuses.len() == 2 || both.answer().is_err(), "there is no second answer");
    }
    // The body is shorter than declared.
    let mut short = server.connect();
    short
        .write(b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{\"x\": [1, 2, 3, 4]}")
        .unwrap();
    assert_eq!(short.answer().unwrap().status, 408);
    // The body is longer than declared: the rest is parsed as a request, and malformed.
    let mut long = server.connect();
    let body =
        format!("POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{ONE}{ONE}\r\n\r\n", ONE.len());
    long.write(body.as_bytes()).unwrap();
    assert_eq!(long.answer().unwrap().status, 200);
    assert_eq!(long.answer().unwrap().status, 400);
    server.assert_alive();
}

#[test]
fn answers_pipelined_requests_in_order() {
    let server = Server::start(&[SCORES]);
    let mut connection = server.connect();
    let mut all = Vec::new();
    for number in 0..200 {
        let body = if number % 2 == 0 { ONE } else { "{" };
        let length = body.len();
        all.extend(
            format!(
                "POST /predict HTTP/1.1\r\nhost: localhost\r\nx-request-id: {number}\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .bytes(),
        );
    }
    connection.write(&all).unwrap();
    for number in 0..200 {
        let answer = connection.answer().unwrap();
        assert_eq!(
            (answer.status, answer.header("x-request-id")),
            (if number % 2 == 0 { 200 } else { 400 }, Some(&*number.to_string()))
        );
    }
}

#[test]
fn rejects_unsupported_upgrades_and_methods() {
    let server = Server::start(&[SCORES]);
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    assert_eq!(server.get_with("/health", upgrade).status, 200, "as if nothing had been said");
    assert_eq!(server.get_with("/predict", upgrade).status, 405);
    let h2c = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__";
    assert_eq!(server.get_with("/health", h2c).status, 200);
    for method in ["CONNECT", "TRACE", "PROPFIND", "X"] {
        let answer = server.connect().send(method, "/predict", &[], b"").unwrap();
        assert!((400..500).contains(&answer.status), "{method}: {answer:?}");
    }
    server.assert_alive();
}

#[test]
fn path_names_open_no_file_and_add_no_metric() {
    let server = Server::start(&[SCORES, "--model-control", "--triton-metrics"]);
    let before = server.get_with("/metrics", "accept: text/plain").text().lines().count();
    for number in 0..300 {
        let name = format!("..%2f..%2f{number}%00%0a%22");
        for path in [format!("/pipelines/{name}/predict"), format!("/v2/models/{name}/infer")] {
            let answer = server.post(&path, "", ONE);
            assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        }
    }
    for path in ["/page/..%2f..%2fCargo.toml", "/page/%2e%2e/Cargo.toml", "/../../etc/passwd", "//etc/passwd", "/page/"]
    {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    for (path, body, status) in [
        ("/v2/repository/models/..%2fscores/load", "", 404),
        ("/v2/repository/models/%2fetc%2fpasswd/load", "", 404),
        ("/v2/repository/models/scores/load", "{\"parameters\": {\"config\": \"{}\"}}", 400),
        ("/v2/repository/models/scores/load", "{\"parameters\": {\"file:1/model.onnx\": \"AAAA\"}}", 400),
        ("/v2/repository/models/scores/load", "{\"parameters\": [", 400),
    ] {
        let answer = server.post(path, JSON, body);
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
    }
    let after = server.get_with("/metrics", "accept: text/plain");
    let after = after.text();
    assert!(!after.contains("passwd") && !after.contains("..%2f"), "{after}");
    assert!(after.lines().count() <= before + 20, "statuses are new, names are not");
    server.assert_alive();
}

#[test]
fn rejects_unknown_and_long_queries() {
    let server = Server::start(&[SCORES]);
    let many: Vec<_> = (0..5000).map(|number| format!("p{number}=1")).collect();
    for query in [
        many.join("&"),
        "timeout=1&timeout=2".repeat(100),
        "timeout=1e999".into(),
        "timeout=NaN".into(),
        "timeout=-1".into(),
        "timeout=0".into(),
        "priority=9".into(),
        "%ff=%00".into(),
        "&".repeat(10_000),
    ] {
        let answer = server.post(&format!("/predict?{query}"), "", ONE);
        assert!([200, 400].contains(&answer.status), "{query:.40}: {answer:?}");
    }
    assert_eq!(server.post("/predict?timeout=1e300", "", ONE).status, 400);
    let answer = server.post(&format!("/predict?{}", "a".repeat(70_000)), "", ONE);
    assert!([400, 414, 431].contains(&answer.status), "{answer:?}");
}
