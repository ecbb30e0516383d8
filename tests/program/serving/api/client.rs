//! Requests as people write them, and answers with what is expected of them.

use serde_json::Value as Json;

use crate::serving::{Answer, Server};

impl Server {
    /// The answer to a request with these lines of a head and this body.
    pub(super) fn ask(&self, method: &str, path: &str, head: &[&str], body: &[u8]) -> Answer {
        let head: String = head.iter().map(|line| format!("{line}\r\n")).collect();
        self.connect().send(method, path, &head, body).unwrap()
    }

    /// What is at this path.
    pub(super) fn at(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    /// The answer to this JSON.
    pub(super) fn post_json(&self, path: &str, body: &Json) -> Answer {
        self.ask("POST", path, &["content-type: application/json"], body.to_string().as_bytes())
    }
}

impl Answer {
    /// Its JSON, if the status is this one.
    pub(super) fn with_status(&self, status: u16) -> Json {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The message of an error, which has every field that errors have.
    pub(super) fn error(&self, status: u16) -> String {
        let json = self.with_status(status);
        assert!(json["error"].is_string() && json["details"].is_object(), "{json}");
        json["message"].as_str().unwrap().to_owned()
    }
}
