//! Clients that ask for much and read nothing of it, however it comes to them: each is cut, and holds up
//! no end.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, connect, frame, head};
use super::{Connection, SCORES, Server, until};

/// More than systems keep for a connection whose other end does not read, in bytes.
const MUCH: usize = 32 << 20;

/// A tensor in NumPy's format that does not become smaller when it is compressed.
fn noise() -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", MUCH / 4);
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Below 2, as twice the largest numbers would all be the same.
        (state >> 2 | 1).to_le_bytes()
    };
    (0..MUCH / 4).for_each(|_| file.extend(next()));
    file
}

/// A pipeline that gives back as much as it gets.
fn echo(folder: &Path) -> String {
    let text = "name: echo\nversion: 1.0.0\ninputs: { x: { type: float32 } }\npipeline: [{ scale: { factor: 2 } }]\n";
    let file = folder.join("echo.yml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A client that asks for as much as it sends, and has read no more of the answer than that there is one.
fn asked(server: &Server, noise: &[u8], line: &str) -> Connection<TcpStream> {
    let mut client = server.connect();
    let length = noise.len();
    let head = format!(
        "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-npy\r\n\
         accept: application/octet-stream\r\ncontent-length: {length}\r\n{line}\r\n"
    );
    client.write(&[head.as_bytes(), noise].concat()).unwrap();
    let mut first = [0; 12];
    client.0.get_mut().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    client
}

#[test]
fn disconnects_clients_that_do_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[&echo(folder.path()), "--idle-timeout", "500ms"]);
    let noise = noise();
    for (line, cut) in [("", 1.0), ("accept-encoding: gzip\r\n", 2.0)] {
        let client = asked(&server, &noise, line);
        until("it is cut", || server.metric("gpux_connections_cut_total") >= cut);
        drop(client);
    }
}

#[test]
fn unread_responses_do_not_block_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&[&echo(folder.path()), "--idle-timeout", "500ms", "--drain", "1h"]);
    let _client = asked(&server, &noise(), "accept-encoding: gzip\r\n");
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn silent_connections_do_not_block_shutdown() {
    let mut server = Server::start(&[SCORES, "--header-timeout", "1h", "--drain", "1h"]);
    // It answers no PING.
    let mut deaf = connect(&server);
    deaf.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head(false, "/health"))).unwrap();
    let _only_connected = connect(&server);
    let mut half = server.connect();
    half.write(b"GET /health HTTP/1.1\r\nhost:").unwrap();
    until("all of them are there", || server.metric("gpux_connections ") >= 4.0);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn disconnects_http2_clients_that_grant_no_window() {
    let server = Server::start(&[SCORES, "--idle-timeout", "500ms"]);
    // `accept-encoding: gzip, deflate` is one byte in HPACK.
    for (more, cut) in [(&[][..], 1.0), (&[0x90], 2.0)] {
        let mut client = connect(&server);
        // The windows of its streams are of no bytes.
        client.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
        let head = [&head(false, "/openapi.json"), more].concat();
        client.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)).unwrap();
        until("it is cut", || server.metric("gpux_connections_cut_total") >= cut);
    }
}

#[test]
fn disconnects_http2_clients_that_leave_responses_unread() {
    let server = Server::start(&[SCORES, "--idle-timeout", "1s", "--header-timeout", "1s"]);
    let mut client = connect(&server);
    client.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    let mut stream = 1;
    until("it is cut", || {
        // Once it is cut, nothing can be written any more.
        let _ = client.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(false, "/openapi.json")));
        stream += 2;
        std::thread::sleep(Duration::from_millis(50));
        server.metric("gpux_connections_cut_total") >= 1.0
    });
    assert!(stream < 201, "as many streams as a client may have were not enough to see it");
}

/// Opens a stream with a request; its client grants a window of this many bytes.
fn asked_over_http2(client: &mut TcpStream, stream: u32, path: &str, taken: u32) {
    let mut frames = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(false, path));
    if taken > 0 {
        frames.extend(frame(WINDOW_UPDATE, 0, stream, &taken.to_be_bytes()));
    }
    // Once the connection is cut, nothing can be written any more.
    let _ = client.write_all(&frames);
}

#[test]
fn disconnects_clients_that_leave_large_responses_unread() {
    for (taken, reset) in [(1 << 14, false), (0, true)] {
        let server = Server::start(&[SCORES, "--idle-timeout", "1s", "--header-timeout", "1s"]);
        let mut client = connect(&server);
        client.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
        asked_over_http2(&mut client, 1, "/openapi.json", 0);
        let mut stream = 3;
        until("it is cut", || {
            asked_over_http2(&mut client, stream, "/health", taken);
            std::thread::sleep(Duration::from_millis(100));
            if reset {
                let _ = client.write_all(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
            }
            // One byte of the large one is as good as none.
            let _ = client.write_all(&frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()));
            stream += 2;
            server.metric("gpux_connections_cut_total") >= 1.0
        });
    }
}

#[test]
fn bounds_unread_responses() {
    let server = Server::start(&[SCORES, "--body-memory", "1MiB", "--max-body", "1MiB"]);
    let large = server.get("/openapi.json");
    assert!(large.body.len() > 32 << 10, "{} bytes are not counted", large.body.len());
    let mut client = connect(&server);
    client.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    for stream in 0..20 {
        asked_over_http2(&mut client, 2 * stream + 1, "/openapi.json", 0);
    }
    until("there is no room", || server.get("/openapi.json").status == 503);
    server.assert_alive();
    drop(client);
    until("there is room", || server.get("/openapi.json").status == 200);
}

#[test]
fn keeps_http2_clients_that_read_slowly() {
    const AT_ONCE: u32 = 4 << 10;
    let server = Server::start(&[SCORES, "--idle-timeout", "3s", "--header-timeout", "3s"]);
    let mut client = connect(&server);
    client.write_all(&frame(SETTINGS, 0, 0, &[&[0, 4], &AT_ONCE.to_be_bytes()[..]].concat())).unwrap();
    client.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head(false, "/openapi.json"))).unwrap();
    let (mut taken, start) = (0, Instant::now());
    let mut head = [0; 9];
    loop {
        client.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        client.read_exact(&mut payload).unwrap();
        if head[3] != DATA {
            continue;
        }
        taken += payload.len();
        if head[4] & END_STREAM != 0 {
            break;
        }
        // Many short waits: together longer than a connection may lie idle, each much shorter on a busy machine, too.
        std::thread::sleep(Duration::from_millis(300));
        for stream in [0, 1] {
            let more = u32::try_from(payload.len()).unwrap().to_be_bytes();
            client.write_all(&frame(WINDOW_UPDATE, 0, stream, &more)).unwrap();
        }
    }
    assert!(taken > 3 * AT_ONCE as usize && start.elapsed() > Duration::from_secs(3), "{taken} bytes show nothing");
}
