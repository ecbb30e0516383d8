//! A live `gpux serve`, and requests as they go over the wire.

#![cfg_attr(not(unix), allow(dead_code, reason = "what signals are for is tried where there are signals"))]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::child::{StartWithLimit as _, program};
use crate::digits::root;

/// Far longer than anything here takes on a machine that is busy with other things. Only failures wait for so long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// Waits until something holds, which no signal tells.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the log says of a server that crashed.
pub(crate) const RESTARTED: &str = "it is started again";

/// A server that runs until it is dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    lines: Mutex<Receiver<String>>,
    /// ends with the log
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts one on a free port and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(command(arguments))
    }

    /// The same of this command.
    pub(crate) fn of(command: Command) -> Self {
        let mut server = Self::spawn(command);
        server.wait_until_ready();
        server
    }

    /// Waits until it says where it listens.
    pub(crate) fn wait_until_ready(&mut self) {
        let line = self.line("ready on ");
        let address = line.split("://").nth(1).unwrap().replace("localhost", "127.0.0.1");
        self.address = address.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    }

    /// Starts one, and waits for nothing.
    pub(crate) fn begin(arguments: &[&str]) -> Self {
        Self::spawn(command(arguments))
    }

    /// The same of this command.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).start();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            let _ = stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        });
        Self { child, address: ([127, 0, 0, 1], 0).into(), lines: Mutex::new(lines), reader: Some(reader) }
    }

    /// Wraps a server that was started otherwise, whose log is read elsewhere.
    pub(crate) fn around(child: Child, address: SocketAddr) -> Self {
        Self { child, address, lines: Mutex::new(channel().1), reader: None }
    }

    /// The process that serves: the child of the supervisor.
    #[cfg(target_os = "linux")]
    pub(crate) fn process(&self) -> u32 {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().next().unwrap_or_else(|| panic!("{id} has no child")).parse().unwrap()
    }

    /// The next line of its log with this in it. Before it, nothing may say that the server had to be started again.
    pub(crate) fn line(&self, wanted: &str) -> String {
        self.find_line(wanted, |line| assert!(!line.contains(RESTARTED), "{line}"))
    }

    /// The same of a server that may have to be started again several times.
    pub(crate) fn line_after_restarts(&self, wanted: &str) -> String {
        self.find_line(wanted, |_| {})
    }

    /// The lines of its log before the next with this in it.
    pub(crate) fn lines_before(&self, wanted: &str) -> Vec<String> {
        let lines = std::cell::RefCell::default();
        self.find_line(wanted, |line| Vec::push(&mut lines.borrow_mut(), line.to_owned()));
        lines.into_inner()
    }

    fn find_line(&self, wanted: &str, check: impl Fn(&str)) -> String {
        let mut before = Vec::new();
        let end = Instant::now() + PATIENCE;
        let lines = self.lines.lock().unwrap();
        while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if line.contains(wanted) {
                return line;
            }
            check(&line);
            before.push(line);
        }
        panic!("no line with `{wanted}`: {before:#?}");
    }

    pub(crate) fn connect(&self) -> Connection<TcpStream> {
        Connection::to(self.address).unwrap()
    }

    /// The answer to a request with these lines of a head and this body.
    pub(crate) fn ask(&self, method: &str, path: &str, head: &[&str], body: &[u8]) -> Answer {
        self.connect().send(method, path, head, body).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    /// The same with this line in its head; none if it is empty.
    pub(crate) fn get_with(&self, path: &str, line: &str) -> Answer {
        self.ask("GET", path, &[line], b"")
    }

    pub(crate) fn post(&self, path: &str, line: &str, body: &str) -> Answer {
        self.ask("POST", path, &[line], body.as_bytes())
    }

    pub(crate) fn json(&self, path: &str, body: &Json) -> Answer {
        self.ask("POST", path, &["content-type: application/json"], body.to_string().as_bytes())
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
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
    pub(crate) fn metric(&self, start: &str) -> f64 {
        let answer = self.get_with("/metrics", "accept: text/plain");
        let text = answer.text();
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("no `{start}` in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    /// Ends it. A crash of which a test knows nothing fails the test.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            if let Some(reader) = self.reader.take() {
                reader.join().unwrap();
            }
            let unread = self.lines.get_mut().unwrap().try_iter().find(|line| line.contains(RESTARTED));
            assert_eq!(unread, None);
        }
    }
}

/// `gpux serve` on a free port, if these arguments name none.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(["serve", "--host", "127.0.0.1"]);
    // Everything else holds for pipelines in processes of their own, too.
    if !arguments.contains(&"--isolation")
        && let Ok(isolation) = std::env::var("GPUX_TEST_ISOLATION")
    {
        command.arg(format!("--isolation={isolation}"));
    }
    if !arguments.contains(&"--port") {
        command.args(["--port", "0"]);
    }
    command.args(["--engine", "embedded"]).args(arguments).current_dir(root());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// One connection of HTTP/1.1, spoken by hand: so that it can be spoken badly.
pub(crate) struct Connection<S>(pub(crate) BufReader<S>);

impl Connection<TcpStream> {
    pub(crate) fn to(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes)?;
        self.0.get_mut().flush()
    }

    /// The answer to a request with these lines of a head and this body.
    pub(crate) fn send(&mut self, method: &str, path: &str, head: &[&str], body: &[u8]) -> std::io::Result<Answer> {
        let length = format!("content-length: {}", body.len());
        let first = format!("{method} {path} HTTP/1.1");
        let head = head.iter().copied().filter(|line| !line.is_empty());
        let lines: Vec<_> =
            [first.as_str(), "host: localhost", &length].into_iter().chain(head).chain(["", ""]).collect();
        self.write(&[lines.join("\r\n").as_bytes(), body].concat())?;
        let mut answer = self.head()?;
        if method != "HEAD" {
            self.body(&mut answer)?;
        }
        Ok(answer)
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> std::io::Result<Answer> {
        let mut answer = self.head()?;
        self.body(&mut answer)?;
        Ok(answer)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(closed());
        }
        Ok(line.trim_end().to_owned())
    }

    fn head(&mut self) -> std::io::Result<Answer> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(closed)?;
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = self.line()?.split_once(": ") {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Ok(Answer { status, headers, body: Vec::new() })
    }

    fn body(&mut self, answer: &mut Answer) -> std::io::Result<()> {
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let length = usize::from_str_radix(&self.line()?, 16).map_err(std::io::Error::other)?;
                let start = answer.body.len();
                answer.body.resize(start + length, 0);
                self.0.read_exact(&mut answer.body[start..])?;
                self.line()?;
                if length == 0 {
                    return Ok(());
                }
            }
        }
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        answer.body.resize(length, 0);
        self.0.read_exact(&mut answer.body)
    }
}

fn closed() -> std::io::Error {
    std::io::ErrorKind::UnexpectedEof.into()
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a header, whose name is in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
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
