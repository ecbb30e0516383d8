//! HTTP/2, spoken by hand: floods of frames that cost their sender little.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{PATIENCE, SCORES, Server, until};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const ACKNOWLEDGE: u8 = 1;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a request with names and values of the static table of HPACK, host and path written out.
pub(super) fn head_to(host: &str, method: u8, path: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[method, 0x86, 0x01, length(host)], host.as_bytes(), &[0x04, length(path)], path.as_bytes()].concat()
}

/// `POST` (or `GET`) of the path.
pub(super) fn head(post: bool, path: &str) -> Vec<u8> {
    let method = if post { 0x83 } else { 0x82 };
    head_to("localhost", method, path)
}

pub(super) fn connect(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    stream
}

/// Kinds of the frames that come until the server closes the connection, or says no more.
fn kinds(stream: &mut TcpStream) -> Vec<u8> {
    let mut kinds = Vec::new();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        kinds.push(head[3]);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        if stream.read_exact(&mut vec![0; length as usize]).is_err() || head[3] == GOAWAY {
            break;
        }
    }
    kinds
}

/// Sends a frame again and again, until it is not taken any more, or for some time.
fn flood(stream: &mut TcpStream, most: u32, mut next: impl FnMut(u32) -> Vec<u8>) {
    let end = Instant::now() + Duration::from_secs(20);
    let _ = (0..most).all(|number| Instant::now() < end && stream.write_all(&next(number)).is_ok());
}

/// That the server has closed the connection, whatever it sent before.
fn assert_closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = std::io::copy(&mut stream, &mut std::io::sink());
    assert!(!end.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{end:?}");
}

fn assert_unharmed(server: &Server, before: f64) {
    server.assert_alive();
    until("the connection is gone", || server.metric("gpux_connections ") <= 1.0);
    let now = server.metric("process_resident_memory_bytes ");
    assert!(now < before + 64e6, "{before} bytes, then {now}");
}

#[test]
fn sends_goaway_near_the_connection_limit() {
    let server = Server::start(&[SCORES, "--max-connections", "1"]);
    let mut stream = connect(&server);
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &head(true, "/predict"))).unwrap();
    stream.write_all(&frame(DATA, END_STREAM, 1, super::ONE.as_bytes())).unwrap();
    // The last frame of all is the end of the answer, or GOAWAY.
    let (mut seen, mut kind) = (Vec::new(), [0; 9]);
    while stream.read_exact(&mut kind).is_ok() {
        seen.push(kind[3]);
        let length = u32::from_be_bytes([0, kind[0], kind[1], kind[2]]);
        stream.read_exact(&mut vec![0; length as usize]).unwrap();
    }
    assert!([HEADERS, DATA, GOAWAY].iter().all(|kind| seen.contains(kind)), "{seen:?}");
    until("its place is free", || server.metric("gpux_connections ") <= 1.0);
    assert!(server.metric("gpux_connections_evicted_total{reason=\"crowded\"} ") >= 1.0);
}

/// A head above the limit is refused in the form of its protocol.
#[test]
fn rejects_large_http2_heads_in_the_form_of_their_protocol() {
    let server = Server::start(&[SCORES]);
    let call = |path: &str, content_type: &str| {
        let mut stream = connect(&server);
        let long = literal_of_length("x-long", 20 << 10);
        // A frame holds 16 KiB.
        let all = [head(true, path), literal("content-type", content_type), long].concat();
        let mut parts = all.chunks(16 << 10).peekable();
        let first = parts.next().unwrap();
        let flags = if parts.peek().is_none() { END_HEADERS } else { 0 };
        stream.write_all(&frame(HEADERS, flags | END_STREAM, 1, first)).unwrap();
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_none() { END_HEADERS } else { 0 };
            stream.write_all(&frame(CONTINUATION, flags, 1, part)).unwrap();
        }
        stream.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let metric = |code: &str| {
        let (metrics, status) = (server.get_with("/metrics", "accept: text/plain"), format!("status=\"{code}\"}} "));
        let lines = metrics.text().lines().filter(|line| line.starts_with("gpux_requests_total{"));
        lines.filter_map(|line| line.split_once(&status)?.1.parse::<f64>().ok()).sum::<f64>()
    };
    for (path, content_type, code) in [
        ("/inference.GRPCInferenceService/ServerLive", "application/grpc", "RESOURCE_EXHAUSTED"),
        ("/predict", "application/json", "431"),
    ] {
        let before = metric(code);
        assert!(!call(path, content_type).is_empty());
        until("it is answered", || metric(code) > before);
    }
}

/// A literal of HPACK whose value is this long.
fn literal_of_length(name: &str, length: usize) -> Vec<u8> {
    let mut bytes = [&[0, u8::try_from(name.len()).unwrap()], name.as_bytes(), &[127]].concat();
    let mut rest = length - 127;
    while rest >= 128 {
        bytes.push(0x80 | (rest % 128) as u8);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes.extend(std::iter::repeat_n(b'v', length));
    bytes
}

/// Some clients lose an answer that comes with the word to stop sending.
#[test]
fn rejection_waits_for_the_request_body() {
    let server = Server::start(&[SCORES]);
    let mut stream = connect(&server);
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &head(true, "/nosuch"))).unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(&frame(DATA, 0, 1, &[0; 16 << 10])).unwrap();
    }
    stream.write_all(&frame(DATA, END_STREAM, 1, &[])).unwrap();
    stream.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).unwrap();
    let kinds = kinds(&mut stream);
    assert!(kinds.contains(&HEADERS) && !kinds.contains(&RST_STREAM), "{kinds:?}");
}

/// A literal of HPACK that is not remembered.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

#[test]
fn rejects_pseudo_headers_in_trailers() {
    let server = Server::start(&[SCORES]);
    let counted = |status: u16| {
        let (metrics, start) = (server.get_with("/metrics", "accept: text/plain"), format!("status=\"{status}\"}} "));
        let lines = metrics.text().lines().filter(|line| line.starts_with("gpux_requests_total{"));
        let lines = lines.filter(|line| status == 400 || line.contains("pipeline=\"scores\""));
        let of = lines.filter_map(|line| line.split_once(&start)?.1.parse::<f64>().ok());
        of.sum::<f64>()
    };
    for (trailers, status) in [
        (vec![0x83], 400),
        (literal(":path", "/other"), 400),
        ([literal(":authority", "a"), literal(":scheme", "http")].concat(), 400),
        (literal("x-sum", "7"), 200),
        ([literal("x-sum", "7"), literal(":path", "/other")].concat(), 0),
    ] {
        let before = counted(status);
        let mut stream = connect(&server);
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, &head(true, "/predict"))).unwrap();
        stream.write_all(&frame(DATA, 0, 1, super::ONE.as_bytes())).unwrap();
        stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers)).unwrap();
        if status > 0 {
            until("it is answered", || counted(status) == before + 1.0);
            continue;
        }
        // h2 itself tells this one.
        stream.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).unwrap();
        assert!(kinds(&mut stream).contains(&RST_STREAM));
    }
}

#[test]
fn closes_connections_on_rapid_reset() {
    let server = Server::start(&[SCORES]);
    server.assert_alive();
    let before = server.metric("process_resident_memory_bytes ");
    let mut stream = connect(&server);
    let (head, cancelled) = (head(true, "/predict"), 8_u32.to_be_bytes());
    flood(&mut stream, 200_000, |number| {
        let id = 2 * number + 1;
        [frame(HEADERS, END_HEADERS, id, &head), frame(RST_STREAM, 0, id, &cancelled)].concat()
    });
    assert_closed(stream);
    assert_unharmed(&server, before);
}

#[test]
fn closes_connections_on_endless_continuation() {
    let server = Server::start(&[SCORES]);
    server.assert_alive();
    let before = server.metric("process_resident_memory_bytes ");
    for size in [0, 16 << 10] {
        let mut stream = connect(&server);
        stream.write_all(&frame(HEADERS, END_STREAM, 1, &head(false, "/health"))).unwrap();
        // Literals without an index: an ever longer list of headers that no frame ends.
        let part = [0, 1, b'x', 1, b'y'].repeat(size / 5);
        flood(&mut stream, 200_000, |_| frame(CONTINUATION, 0, 1, &part));
        assert_closed(stream);
    }
    assert_unharmed(&server, before);
}

#[test]
fn bounds_pings_and_settings_of_unread_connections() {
    let server = Server::start(&[SCORES]);
    server.assert_alive();
    let before = server.metric("process_resident_memory_bytes ");
    for (kind, payload) in [(PING, &[7; 8][..]), (SETTINGS, &[0, 4, 0, 0, 0xff, 0xff])] {
        let mut stream = connect(&server);
        flood(&mut stream, 1_000_000, |_| frame(kind, 0, 0, payload).repeat(100));
        server.assert_alive();
        drop(stream);
    }
    // Unread responses: the client grants no flow-control window.
    let mut stream = connect(&server);
    stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    let head = head(false, "/openapi.json");
    flood(&mut stream, 5000, |number| frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &head));
    server.assert_alive();
    drop(stream);
    assert_unharmed(&server, before);
}
