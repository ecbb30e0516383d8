//! Clients that speak badly, slowly or not at all; neighbours that misbehave. Whatever they do, the
//! server answers the others.

use std::io::{ErrorKind, Read as _};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use super::{Connection, ONE, SCORES, Server, scaling, until};
use crate::digits::root;

#[test]
fn returns_client_errors_for_wrong_bodies() {
    let server = Server::start(&[SCORES]);
    let multipart = "content-type: multipart/form-data; boundary=b";
    for (headers, body, status) in [
        ("", "{\"x\": [1, 2", 400),
        ("", "", 400),
        ("", "{\"x\": [1, 2, 3]}", 400),
        ("", "{\"x\": [1, 2, 3, \"four\"]}", 400),
        ("", "{\"y\": [1, 2, 3, 4]}", 400),
        ("", &"[".repeat(100_000), 400),
        ("content-type: text/xml", "<x/>", 415),
        (multipart, "--b\r\ncontent-disposition: form-data; name=\"x\"\r\n\r\n[1, 2", 400),
        (multipart, "no boundary at all", 400),
        ("content-type: multipart/form-data", "x", 415),
        ("accept: text/html", ONE, 406),
    ] {
        let answer = server.post("/predict", headers, body);
        assert_eq!(answer.status, status, "{headers} {body:.80}: {answer:?}");
        assert!(answer.read()["message"].is_string(), "{answer:?}");
    }
    server.assert_alive();
}

#[test]
fn rejects_oversized_bodies_before_reading() {
    let server = Server::start(&[SCORES, "--max-body", "1KiB"]);
    let mut declared = server.connect();
    // Not a byte of the body is sent, and the client would wait to be asked for it.
    declared
        .write(b"POST /predict HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 100000000000\r\n\r\n")
        .unwrap();
    let answer = declared.answer().unwrap();
    assert_eq!(answer.status, 413, "{answer:?}");

    let mut asked = server.connect();
    let length = ONE.len();
    let head = format!(
        "POST /predict HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    );
    asked.write(head.as_bytes()).unwrap();
    assert_eq!(asked.answer().unwrap().status, 100, "one that fits is asked for");
    asked.write(ONE.as_bytes()).unwrap();
    assert_eq!(asked.answer().unwrap().status, 200);

    let mut chunked = server.connect();
    chunked.write(b"POST /predict HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    // The server may have closed it by the time that the last of them is sent.
    for _ in 0..4 {
        let _ = chunked.write(format!("200\r\n{}\r\n", " ".repeat(512)).as_bytes());
    }
    assert_eq!(chunked.answer().unwrap().status, 413);
    server.assert_alive();
}

#[test]
fn unsent_bodies_hold_no_shared_budget() {
    let server = Server::start(&[SCORES, "--body-memory", "1MiB", "--max-body", "1MiB"]);
    let head = "POST /predict HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 1048576\r\n\r\n";
    let asked = || {
        let mut connection = server.connect();
        connection.write(head.as_bytes()).unwrap();
        (connection.answer().unwrap().status, connection)
    };
    let silent: Vec<_> = (0..16).map(|_| asked()).collect();
    assert!(silent.iter().all(|(status, _)| *status == 100), "each is asked for its body");
    let large = format!("{ONE}{}", " ".repeat(500 << 10));
    let answer = server.post("/predict", "", &large);
    assert_eq!(answer.status, 200, "{answer:?}");
    // What comes is held.
    let mut begun = server.connect();
    begun.write(&[head.as_bytes(), " ".repeat(800 << 10).as_bytes()].concat()).unwrap();
    until("there is no room for another", || asked().0 == 503);
    drop((silent, begun));
    until("there is room again", || asked().0 == 100);
}

/// How many clients hang up: hundreds in the gate, more when asked for.
fn many() -> usize {
    std::env::var("GPUX_HANG_UPS").ok().and_then(|many| many.parse().ok()).unwrap_or(300)
}

#[test]
fn releases_resources_of_disconnected_clients() {
    let server = Server::start(&[SCORES]);
    server.assert_alive();
    let files = || server.metric("process_open_fds ");
    let before = files();
    for client in 0..many() {
        let mut connection = server.connect();
        let bytes: &[u8] = match client % 4 {
            0 => b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{\"x\": [1,",
            1 => b"POST /predict HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"x",
            2 => b"POST /pre",
            _ => b"",
        };
        connection.write(bytes).unwrap();
    }
    until("their connections are gone", || server.metric("gpux_connections ") <= 1.0 && files() <= before + 2.0);
    let left = (0..many()).filter(|client| client % 4 < 2).count();
    let counted = server.metric("gpux_requests_total{pipeline=\"scores\",protocol=\"http\",status=\"499\"} ");
    assert_eq!(counted, left as f64, "they are clients that left");
    server.assert_alive();
}

#[test]
fn disconnects_slow_clients() {
    // Longer than a busy machine takes for the requests of clients that are not slow.
    let server = Server::start(&[SCORES, "--header-timeout", "3s", "--body-timeout", "3s", "--idle-timeout", "3s"]);
    let begin = |bytes: &[u8]| {
        let mut connection = server.connect();
        connection.write(bytes).unwrap();
        connection
    };
    let mut slow = begin(b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 19\r\n\r\n{");
    let silent = [&b""[..], b"P", b"PRI * HTT", b"POST /predict HTTP/1.1\r\nhost:"].map(begin);
    let mut idle = server.connect();
    assert_eq!(idle.send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200);
    server.assert_alive();

    let rest = |mut connection: Connection<std::net::TcpStream>| {
        let mut rest = Vec::new();
        // It is closed, one way or another, long before the patience of the test ends.
        let end = connection.0.read_to_end(&mut rest).map_or_else(|error| error.kind(), |_| ErrorKind::UnexpectedEof);
        assert_ne!(end, ErrorKind::WouldBlock, "it is still open");
        rest
    };
    assert_eq!(slow.answer().unwrap().status, 408);
    for silent in silent {
        let rest = rest(silent);
        assert!(!rest.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&rest));
    }
    assert_eq!(rest(idle), b"", "closed without a word");
    assert!(server.metric("gpux_connections_cut_total") >= 4.0);
}

#[test]
fn queues_connections_beyond_the_limit() {
    let server = Server::start(&[SCORES, "--max-connections", "2"]);
    let (first, _second) = (server.connect(), server.connect());
    // The third is taken by the system, and by the server when there is room.
    let mut third = server.connect();
    let length = ONE.len();
    third
        .write(format!("POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{ONE}").as_bytes())
        .unwrap();
    drop(first);
    assert_eq!(third.answer().unwrap().status, 200);
}

/// Each answer closes its connection, so that the next client gets one.
#[test]
fn answers_every_client_above_the_connection_limit() {
    let server = Server::start(&[SCORES, "--max-connections", "10"]);
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let mut kept = None;
                for _ in 0..10 {
                    let mut connection = kept.take().unwrap_or_else(|| server.connect());
                    let answer = connection.send("POST", "/predict", &[], ONE.as_bytes()).unwrap();
                    assert_eq!(answer.status, 200, "{answer:?}");
                    kept = (answer.header("connection") != Some("close")).then_some(connection);
                }
            });
        }
    });
    assert!(server.metric("gpux_connections_evicted_total{reason=\"crowded\"} ") >= 1.0);
    assert_eq!(server.metric("gpux_connections_evicted_total{reason=\"idle\"} "), 0.0);
    server.line("--max-connections");
}

#[test]
fn hostile_pipeline_does_not_starve_others() {
    let folder = tempfile::tempdir().unwrap();
    scaling(folder.path(), "scaling", 2.0);
    let hostile = root().join("tests/cases/pipelines/never-ends.yml");
    let server = Server::start(&[
        folder.path().to_str().unwrap(),
        hostile.to_str().unwrap(),
        "--allow-outside",
        "--workers",
        "2",
    ]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut connection = server.connect();
                while !done.load(Ordering::Relaxed) {
                    let answer = connection
                        .send("POST", "/pipelines/never-ends/predict", &["content-type: text/plain"], b"x")
                        .unwrap();
                    assert!([500, 503, 504].contains(&answer.status), "{answer:?}");
                }
            });
        }
        let mut connection = server.connect();
        for _ in 0..50 {
            let answer = connection.send("POST", "/pipelines/scaling/predict", &[], b"{\"x\": [1, 2]}").unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// The time for a word grows with the cube of its characters: this one would take days.
#[test]
fn endless_tokenizer_blocks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = r#"{"version": "1.0", "added_tokens": [], "model": {"type": "WordPiece", "unk_token": "a",
        "vocab": {"a": 0, "-a": 1}, "continuing_subword_prefix": "-", "max_input_chars_per_word": 1000000}}"#;
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
    let pipeline = folder.path().join("gpux.yml");
    std::fs::write(
        &pipeline,
        "name: words\nversion: 1.0.0\npipeline:\n  - tokenize: { tokenizer: ./tokenizer.json }\n",
    )
    .unwrap();
    let mut server = Server::start(&[pipeline.to_str().unwrap(), "--workers", "1"]);
    let ask = |length: usize, timeout: &str| {
        let path = format!("/predict?timeout={timeout}");
        let mut answer = None;
        // 503: the thread of the request before is still busy with leaving it behind.
        until("the thread is free", || {
            let response = server.post(&path, "content-type: text/plain", &"a".repeat(length));
            answer.insert(response).status != 503
        });
        answer.unwrap()
    };
    // Eight of them are left behind, no more; short texts find room beside them.
    let mut timed_out = 0;
    let refused = loop {
        let answer = ask(100_000, "0.1");
        if answer.status != 504 {
            break answer;
        }
        // More than eight on a busy machine, where the time of some passes before they begin.
        timed_out += 1;
        assert!(timed_out < 1000, "none is refused");
    };
    assert_eq!(refused.status, 500, "{refused:?}");
    assert!(timed_out >= 8, "refused after {timed_out}");
    assert_eq!(ask(3, "60").status, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn recovers_from_file_descriptor_exhaustion() {
    use std::process::{Command, Stdio};
    // Few enough that connections use them up before the limit on connections does.
    let mut command = Command::new("prlimit");
    command.args(["--nofile=64:64", env!("CARGO_BIN_EXE_gpux"), "serve", SCORES, "--engine", "embedded"]);
    command.args(["--host", "127.0.0.1", "--port", "0", "--max-connections", "1000"]);
    command.current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null());
    if Command::new("prlimit").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no `prlimit` here");
        return;
    }
    let server = Server::of(command);
    let mut kept: Vec<_> = (0..100).map(|_| server.connect()).collect();
    // The first have their places; those behind them wait in the system's queue.
    assert_eq!(kept[0].send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200);
    let mut last = server.connect();
    let length = ONE.len();
    last.write(
        format!("POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{ONE}").as_bytes(),
    )
    .unwrap();
    drop(kept);
    assert_eq!(last.answer().unwrap().status, 200);
    assert!(server.metric("gpux_accept_errors_total") >= 1.0);
}

/// It sends all of its request before it looks at the answer.
#[test]
fn rejected_clients_get_retry_after() {
    let server = Server::start(&[SCORES, "--max-body", "1MB"]);
    let mut connection = server.connect();
    let body = vec![b' '; 3 << 20];
    for (path, status) in [("/nosuch", 404), ("/predict", 413)].repeat(5) {
        let answer = connection.send("POST", path, &["content-type: application/json"], &body).unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
    }
}
