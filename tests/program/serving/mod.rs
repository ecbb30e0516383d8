//! `gpux serve`, driven from outside: a real server, real sockets, real signals.

#![allow(clippy::float_cmp, reason = "metrics and answers that are whole numbers")]

mod faults;
mod full_disk;
mod hostile;
mod hostile_bodies;
mod http2;
mod metrics;
mod operations;
mod security;
mod traces;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::digits::root;

/// Longer than anything here takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_mins(1);

/// A pipeline without a model, of the golden cases.
const SCORES: &str = "tests/cases/pipelines/scores.yml";
const ONE: &str = "{\"x\": [1, 2, 3, 4]}";

/// A server that runs until it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    lines: Mutex<Receiver<String>>,
}

impl Server {
    /// Starts one on a free port and waits until it is ready.
    fn start(arguments: &[&str]) -> Self {
        Self::of(command(arguments))
    }

    /// The same of this command.
    fn of(command: Command) -> Self {
        let mut server = Self::spawn(command);
        let line = server.line("ready on ");
        let address = line.split("://").nth(1).unwrap();
        server.address = address.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        server
    }

    /// Starts one, and waits for nothing.
    fn begin(arguments: &[&str]) -> Self {
        Self::spawn(command(arguments))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, address: ([127, 0, 0, 1], 0).into(), lines: Mutex::new(lines) }
    }

    /// The next line of its log with this in it.
    fn line(&self, wanted: &str) -> String {
        let mut before = Vec::new();
        let end = Instant::now() + PATIENCE;
        let lines = self.lines.lock().unwrap();
        while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if line.contains(wanted) {
                return line;
            }
            before.push(line);
        }
        panic!("no line with `{wanted}`: {before:#?}");
    }

    fn connect(&self) -> Connection<TcpStream> {
        Connection::to(self.address).unwrap()
    }

    fn get(&self, path: &str, headers: &str) -> Answer {
        self.connect().send("GET", path, headers, b"").unwrap()
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        self.connect().send("POST", path, headers, body.as_bytes()).unwrap()
    }

    /// That it still answers as it should.
    fn assert_alive(&self) {
        let answer = self.post("/predict", "", ONE);
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended.
    fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A number of its metrics, by the start of its line.
    fn metric(&self, start: &str) -> f64 {
        let text = self.get("/metrics", "accept: text/plain\r\n").text();
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("no `{start}` in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpux"));
    command.args(["serve", "--host", "127.0.0.1"]);
    if !arguments.contains(&"--port") {
        command.args(["--port", "0"]);
    }
    command.args(["--engine", "embedded"]).args(arguments).current_dir(root());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// One connection of HTTP/1.1, spoken by hand: so that it can be spoken badly.
struct Connection<S>(BufReader<S>);

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Connection<TcpStream> {
    fn to(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }
}

impl<S: Read + Write> Connection<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes)?;
        self.0.get_mut().flush()
    }

    fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> std::io::Result<Answer> {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n{headers}\r\n");
        self.write(&[head.as_bytes(), body].concat())?;
        self.answer()
    }

    fn answer(&mut self) -> std::io::Result<Answer> {
        let closed = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let mut line = || {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(closed());
            }
            Ok(line.trim_end().to_owned())
        };
        let first = line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(closed)?;
        let mut headers = BTreeMap::new();
        loop {
            let header = line()?;
            let Some((name, value)) = header.split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, headers, body })
    }
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A pipeline in a folder of its own, that gives its input times `factor`.
fn scaling(folder: &Path, name: &str, factor: f64) {
    let text = format!(
        "name: {name}\nversion: 1.0.0\ninputs:\n  x: {{ type: float32, shape: [2] }}\npipeline:\n  - scale: {{ factor: {factor} }}\n"
    );
    std::fs::create_dir_all(folder).unwrap();
    replace(&folder.join("gpux.yml"), text.as_bytes());
}

/// As careful people replace files: whole, at once.
fn replace(path: &Path, bytes: &[u8]) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, bytes).unwrap();
    std::fs::rename(draft, path).unwrap();
}

/// Waits until something holds, which no signal tells.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
