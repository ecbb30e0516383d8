//! A live `gpux serve`, and requests as they go over the wire.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

use crate::digits::root;

/// A server on a free port, ready; it ends with this value.
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_gpux"))
            .args(["serve", "--host", "127.0.0.1", "--port", "0", "--engine", "embedded"])
            .args(arguments)
            .current_dir(root())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let address = loop {
            let line = lines.next().unwrap_or_else(|| panic!("the server has ended: {said:?}")).unwrap();
            if let Some(address) = line.strip_prefix("ready on http://") {
                break address.parse().unwrap();
            }
            said.push(line);
        };
        // What it says later must go somewhere, or it would wait.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    /// The answer to a request with these lines of a head and this body.
    pub(crate) fn ask(&self, method: &str, path: &str, head: &[&str], body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for line in head {
            request.push_str(&format!("{line}\r\n"));
        }
        request.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        stream.write_all(request.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::of(&bytes)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn json(&self, path: &str, body: &Json) -> Answer {
        self.ask("POST", path, &["content-type: application/json"], body.to_string().as_bytes())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Answer {
    fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn read(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Its JSON, if the status is this one.
    pub(crate) fn with_status(&self, status: u16) -> Json {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.read()
    }

    /// The message of an error, which has every field that errors have.
    pub(crate) fn error(&self, status: u16) -> String {
        let json = self.with_status(status);
        assert!(json["error"].is_string() && json["details"].is_object(), "{json}");
        json["message"].as_str().unwrap().to_owned()
    }
}
