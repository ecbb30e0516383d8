//! Clients that make the server hold as much as it will, and read nothing: in little memory, it goes on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::http2::{ACKNOWLEDGE, DATA, END_HEADERS, HEADERS, SETTINGS, WINDOW_UPDATE, connect, frame, head};
use super::{SCORES, Server, until};
use crate::test_server::command;

/// How often the attacks are tried in a control group; once in the gate, more often by `just full`.
fn runs() -> usize {
    std::env::var("GPUX_MEMORY_ATTACKS").map_or(1, |runs| runs.parse().unwrap())
}

/// How long a server that takes a connection may take to say so, however busy the machine is.
const SLOWEST: Duration = Duration::from_secs(5);

/// Bytes of a header that is not counted.
const LONG: usize = 3000;

/// The limits of an HTTP/2 server for one connection.
#[derive(Debug)]
struct Allowed {
    streams: u32,
    stream_window: usize,
    connection_window: usize,
    frame: usize,
}

/// Reads that from the server's first frames; `None` where it does not take the connection.
fn allowed(stream: &mut TcpStream) -> Option<Allowed> {
    let mut allowed = Allowed { streams: 1000, stream_window: 65_535, connection_window: 65_535, frame: 16 << 10 };
    let mut is_told = false;
    while !is_told || !is_silent(stream) {
        let mut head = [0; 9];
        stream.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).ok()?;
        match (head[3], head[4]) {
            (SETTINGS, 0) => {
                is_told = true;
                for setting in payload.chunks(6) {
                    let value = u32::from_be_bytes(setting[2..].try_into().unwrap());
                    match setting[1] {
                        3 => allowed.streams = value,
                        4 => allowed.stream_window = value as usize,
                        5 => allowed.frame = value as usize,
                        _ => {}
                    }
                }
                stream.write_all(&frame(SETTINGS, ACKNOWLEDGE, 0, &[])).ok()?;
            }
            (WINDOW_UPDATE, _) => {
                allowed.connection_window += u32::from_be_bytes(payload[..].try_into().unwrap()) as usize;
            }
            _ => {}
        }
    }
    Some(allowed)
}

/// Whether nothing comes for a moment.
fn is_silent(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let is_silent = stream.peek(&mut [0]).is_err();
    stream.set_read_timeout(Some(SLOWEST)).unwrap();
    is_silent
}

/// A connection that uses all its limits: as many requests as streams, with heads and no bodies,
/// and a stream of messages, whose responses fill the client's window, since it reads nothing.
fn attack(server: &Server) -> Option<TcpStream> {
    let mut stream = connect(server);
    stream.set_read_timeout(Some(SLOWEST)).unwrap();
    let allowed = allowed(&mut stream)?;
    // A literal header, whose length takes more than seven bits.
    let name = [0, 3, b'x', b'-', b'y', 127, 0x80 | ((LONG - 127) & 0x7f) as u8, ((LONG - 127) >> 7) as u8];
    let long = [&head(true, "/predict")[..], &name[..], &[b'v'; LONG][..]].concat();
    // A server that accepts no more holds all that it can.
    let mut send = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    let _ = (1..allowed.streams.min(1000)).all(|number| send(&frame(HEADERS, END_HEADERS, 2 * number - 1, &long)));
    let id = 2 * allowed.streams.min(1000) - 1;
    let grpc = [&head(true, "/inference.GRPCInferenceService/ModelStreamInfer")[..], &[0x0f, 0x10, 16]].concat();
    let grpc = [&grpc[..], b"application/grpc"].concat();
    let _ = send(&frame(HEADERS, END_HEADERS, id, &grpc));
    let window = allowed.stream_window.min(allowed.connection_window);
    // Messages that say that they are empty.
    let _ = vec![0; window].chunks(allowed.frame).all(|part| send(&frame(DATA, 0, id, part)));
    Some(stream)
}

/// Opens as many connections as the server accepts, at most this many.
fn attacks(server: &mut Server, most: usize) -> Vec<TcpStream> {
    let attacks: Vec<_> = (0..most).map_while(|_| attack(server)).collect();
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.child.try_wait().unwrap().is_none(), "it has ended after {} connections", attacks.len());
    attacks
}

/// The most memory that the server had, in MiB.
#[cfg(target_os = "linux")]
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() >> 10
}

#[cfg(target_os = "linux")]
#[test]
fn bounds_memory_of_unread_connections() {
    let mut server = Server::start(&[SCORES, "--memory", "512MiB", "--body-memory", "16MiB"]);
    server.assert_alive();
    let before = peak(&server);
    let attacks = attacks(&mut server, 400);
    let taken = attacks.len();
    assert!(taken > 100, "{taken} connections were taken");
    // A sixth for connections, a sixteenth for large windows, and what bodies and answers have.
    let (after, most) = (peak(&server), 512 / 6 + 512 / 16 + 2 * 16 + 16);
    assert!(after < before + most, "{before} MiB, then {after} with {taken} connections");
    drop(attacks);
    until("it answers", || server.get("/health/live").status == 200);
    server.assert_alive();
}

/// Connections of one test take more files than some systems allow at first.
#[cfg(target_os = "linux")]
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Heads and bodies that do not end, and connections that are idle after an answer.
#[cfg(target_os = "linux")]
#[test]
fn bounds_memory_of_http1_connections() {
    const MANY: u64 = 600;
    allow_many_files();
    let waits = ["--header-timeout", "1h", "--body-timeout", "1h", "--idle-timeout", "1h"];
    let limits = ["--memory", "64MiB", "--body-memory", "4MiB"];
    let server = Server::start(&[&[SCORES][..], &limits, &waits].concat());
    server.assert_alive();
    let before = peak(&server);
    let long = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &b"v".repeat(60 << 10)].concat();
    let body =
        [b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n".as_slice(), &[b' '; 7000]].concat();
    let attack = |number: u64| {
        let mut connection = server.connect();
        match number % 6 {
            0 => connection.write(&body).unwrap(),
            1 => assert_eq!(connection.send("POST", "/predict", &[], super::ONE.as_bytes()).unwrap().status, 200),
            _ => connection.write(&long).unwrap(),
        }
        connection
    };
    let attacks: Vec<_> = (0..MANY).map(attack).collect();
    until("all are taken", || server.metric("gpux_connections_accepted_total ") >= MANY as f64);
    server.assert_alive();
    // What each may hold; a twenty-fourth for long heads; bodies; what the requests above take for a moment.
    let (after, most) = (peak(&server), MANY * 16 / 1024 + 64 / 24 + 1 + 16);
    assert!(after < before + most, "{before} MiB, then {after} with {MANY} connections");
    drop(attacks);
}

/// A control group with this much memory, if this process may create one.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn new(bytes: u64) -> Option<Self> {
        let hierarchies = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        hierarchies.into_iter().find_map(|(parent, limit)| {
            let folder = Path::new(parent).join(format!("gpux-test-{}-{bytes}", std::process::id()));
            std::fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            let file = std::fs::File::options().write(true).open(group.0.join(limit));
            file.ok()?.write_all(bytes.to_string().as_bytes()).ok()?;
            // Version 2 counts swap apart.
            let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
            Some(group)
        })
    }

    /// `gpux serve` in it.
    fn server(&self, arguments: &[&str]) -> Server {
        let mut shell = Command::new("sh");
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.0.display());
        let served = command(arguments);
        shell.arg("-c").arg(script).arg(served.get_program()).args(served.get_args());
        shell.current_dir(served.get_current_dir().unwrap());
        Server::of(shell)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // It is empty once the last process in it is gone.
        let gone = (0..3000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            // A server that was killed leaves the groups of its workers.
            for entry in self.0.read_dir().into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(entry.path());
            }
            std::fs::remove_dir(&self.0).is_ok()
        });
        assert!(gone || std::thread::panicking(), "{} is left", self.0.display());
    }
}

#[test]
fn many_connections_stay_within_container_memory() {
    let Some(group) = ControlGroup::new(1 << 30) else {
        eprintln!("skipped: no control group can be made here");
        return;
    };
    for _ in 0..runs() {
        let mut server = group.server(&[SCORES, "--body-memory", "64MiB"]);
        let attacks = attacks(&mut server, 800);
        assert!(attacks.len() > 200, "{} connections were taken", attacks.len());
        drop(attacks);
        until("it answers", || server.get("/health/live").status == 200);
        server.assert_alive();
    }
}

#[test]
fn large_responses_stay_within_container_memory() {
    let full = runs() > 1;
    // The largest body that there may be, in the container of deploy/kubernetes; less in the gate.
    let (memory, size) = if full { (2 << 30, 127 << 20) } else { (512 << 20, 40 << 20) };
    let Some(group) = ControlGroup::new(memory) else {
        eprintln!("skipped: no control group can be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("echo.yml");
    let text = "name: echo\nversion: 1.0.0\ninputs: { x: { type: float32 } }\npipeline: [{ scale: { factor: 2 } }]\n\
                serving: { timeout: 100 }\nruntime: { timeout: 100 }\n";
    std::fs::write(&file, text).unwrap();
    let count = size / 4;
    let data: Vec<u8> = (0..count as u32).flat_map(|number| (number as f32 * 1.234_567e-9).to_le_bytes()).collect();
    let json = format!(
        "{{\"inputs\":[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[{count}],\
         \"parameters\":{{\"binary_data_size\":{size}}}}}]}}"
    );
    let length = format!("inference-header-content-length: {}", json.len());
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}");
    let header = [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    let oip = ("/v2/models/echo/infer", vec![length.as_str()], [json.as_bytes(), &data].concat());
    let npy = [&header[..], &data].concat();
    let as_npy = ("/predict", vec!["content-type: application/x-npy", "accept: application/x-npy"], npy.clone());
    let as_json = ("/predict", vec!["content-type: application/x-npy"], npy);
    for _ in 0..runs() {
        let mut server = group.server(&[file.to_str().unwrap()]);
        for (path, head, body) in [&oip, &as_json, &as_npy] {
            let ask = || server.connect().send("POST", path, head, body).map_or(0, |answer| answer.status);
            let statuses =
                std::thread::scope(|scope| [(); 4].map(|()| scope.spawn(ask)).map(|one| one.join().unwrap()));
            assert!(server.child.try_wait().unwrap().is_none(), "it has ended: {path} {statuses:?}");
            // 0: it was refused by its head, and its client, who sends all of it first, sees no more than that.
            assert!(statuses.iter().all(|status| [0, 200, 400, 413, 503].contains(status)), "{path}: {statuses:?}");
        }
        assert_eq!(server.ask("POST", "/predict", &as_npy.1, &small(&[1.0])).status, 200);
    }
}

fn small(data: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", data.len());
    let bytes: Vec<u8> = data.iter().flat_map(|number| number.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &bytes].concat()
}

#[test]
fn rejects_bodies_that_never_fit_with_413() {
    let server = Server::start(&[SCORES, "--body-memory", "4MiB"]);
    let large = vec![b' '; 5 << 20];
    assert_eq!(server.ask("POST", "/predict", &["content-type: application/json"], &large).status, 413);
    // Of an array in NumPy's format there is a copy.
    let numbers = small(&vec![0.5; 3 << 18]);
    let refused = server.ask("POST", "/predict", &["content-type: application/x-npy"], &numbers);
    assert!(refused.error(413).contains("one request may hold 4194304"), "{refused:?}");
    server.assert_alive();
}

#[test]
fn evicts_idle_connections() {
    let server = Server::start(&[SCORES, "--max-connections", "16", "--idle-timeout", "1h", "--header-timeout", "1h"]);
    let mut used = server.connect();
    assert_eq!(used.send("GET", "/health/live", &[], b"").unwrap().status, 200);
    // A request under way is not idle.
    let mut busy = server.connect();
    busy.write(b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\r\n{\"x\":").unwrap();
    let idle: Vec<_> = (0..40).map(|_| server.connect()).collect();
    assert_eq!(server.get("/health").status, 200);
    assert!(server.metric("gpux_connections ") <= 16.0);
    assert!(server.metric("gpux_connections_cut_total ") >= 20.0);
    busy.write(b" [1,2,3,4]    }").unwrap();
    assert_eq!(busy.answer().unwrap().status, 200);
    drop(idle);
}
