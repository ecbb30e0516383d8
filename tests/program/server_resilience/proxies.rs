//! What proxies say of a request. `tests/serve/proxies.py` asks a real one.

use serde_json::json;

use super::{SCORES, Server, command};
use crate::child::StartWithLimit as _;

const HEADERS: [&str; 3] =
    ["x-forwarded-for: 192.0.2.1, 203.0.113.7", "x-forwarded-prefix: /models", "x-forwarded-proto: https"];

#[test]
fn believes_trusted_proxies_alone() {
    for (proxy, is_trusted) in [("127.0.0.0/8", true), ("10.0.0.0/8", false)] {
        let server = Server::start(&[SCORES, "--trusted-proxy", proxy, "--access-log", "--root-path", "/own"]);
        let document = server.ask("GET", "/openapi.json", &HEADERS, b"").with_status(200);
        let (root, client) = if is_trusted { ("/models", "203.0.113.7\"") } else { ("/own", "127.0.0.1:") };
        assert_eq!(document["servers"], json!([{ "url": root }]));
        let line = server.line("answered");
        assert!(line.contains(&format!("client=\"{client}")), "{line}");
        assert_eq!(line.contains("proxy=\"127.0.0.1:"), is_trusted, "{line}");

        // A page that a name of its own leads to this machine can write the header, too.
        let head = ["x-forwarded-for: 203.0.113.7", "host: evil.example"];
        let text = format!("GET /health HTTP/1.1\r\n{}\r\n\r\n", head.join("\r\n"));
        let mut connection = server.connect();
        connection.write(text.as_bytes()).unwrap();
        assert_eq!(connection.answer().unwrap().status, 421);
    }
}

#[test]
fn rejects_proxies_that_are_no_networks() {
    let output = command(&[SCORES, "--trusted-proxy", "proxy.example.com"]).run();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("write an address (`10.0.0.7`), a network"), "{text}");
    assert_eq!(output.status.code(), Some(2));
}
