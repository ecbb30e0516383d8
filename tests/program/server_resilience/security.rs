//! TLS, keys, hosts, origins.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};

use super::http2::{END_HEADERS, END_STREAM, HEADERS, connect, frame, head_to};
use super::{Connection, ONE, SCORES, Server, replace, scaling, until};
use crate::child::{StartWithLimit as _, program};
use crate::digits::root;
use crate::test_server::command;

fn tls(server: &Server) -> Connection<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(root().join("tests/tls/ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let stream = TcpStream::connect(server.address).unwrap();
    Connection(std::io::BufReader::new(StreamOwned::new(client, stream)))
}

/// The certificate that the server shows.
fn shown(connection: &Connection<StreamOwned<ClientConnection, TcpStream>>) -> Vec<u8> {
    connection.0.get_ref().conn.peer_certificates().unwrap()[0].to_vec()
}

fn use_certificate(folder: &Path, name: &str) -> Vec<u8> {
    let source = |ending: &str| root().join("tests/tls").join(format!("{name}.{ending}"));
    replace(&folder.join("tls.key"), &std::fs::read(source("key")).unwrap());
    replace(&folder.join("tls.pem"), &std::fs::read(source("pem")).unwrap());
    CertificateDer::from_pem_file(source("pem")).unwrap().to_vec()
}

#[test]
fn reloads_the_certificate_on_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let first = use_certificate(folder.path(), "first");
    let server = Server::start(&[SCORES, "--tls-cert", &path("tls.pem"), "--tls-key", &path("tls.key")]);
    let mut connection = tls(&server);
    assert_eq!(connection.send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200);
    assert_eq!(shown(&connection), first);

    let second = use_certificate(folder.path(), "second");
    server.signal(Signal::HUP);
    server.line("scores was loaded again");
    let mut other = tls(&server);
    assert_eq!(other.send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200);
    assert_eq!(shown(&other), second);
    assert_eq!(connection.send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200, "who was there stays");

    std::fs::write(folder.path().join("tls.pem"), "garbage").unwrap();
    server.signal(Signal::HUP);
    assert!(server.line("the certificate is that of before").contains("tls.pem"));
    assert_eq!(tls(&server).send("GET", "/health", &[], b"").unwrap().status, 200);
    // A client without TLS learns why, and does not affect others.
    let plain = server.connect().send("GET", "/health", &[], b"").unwrap();
    assert_eq!(plain.status, 400);
    assert!(String::from_utf8_lossy(&plain.body).contains("https://"), "{plain:?}");
    assert_eq!(tls(&server).send("GET", "/health", &[], b"").unwrap().status, 200);
}

#[test]
fn rejects_unusable_certificates_at_start() {
    let server = &mut Server::begin(&[SCORES, "--tls-cert", "none.pem", "--tls-key", "tests/tls/first.key"]);
    assert!(server.line("error").contains("none.pem"));
    assert_eq!(server.ended().code(), Some(2));
    let mixed = ["--tls-cert", "tests/tls/first.pem", "--tls-key", "tests/tls/second.key"];
    let server = &mut Server::begin(&[&[SCORES][..], &mixed].concat());
    assert!(server.line("error").contains("do not go together"));
    assert_eq!(server.ended().code(), Some(2));
}

const ALICE: &str = "authorization: Bearer alice-has-this-key-0";
const BOB: &str = "x-api-key: bob-has-another-key-1";
const ROOT: &str = "authorization: Bearer the-operators-own-key";

/// A gpux.yml may read neither a variable that the keys file reads nor one that is named like a secret.
#[test]
fn keys_in_variables_are_kept_from_pipelines() {
    let folder = tempfile::tempdir().unwrap();
    let (yml, keys) = (folder.path().join("gpux.yml"), folder.path().join("keys.yml"));
    replace(&keys, b"keys:\n  - { name: root, key: '${GPUX_ADMIN}', admin: true }\n");
    for variable in ["GPUX_ADMIN", "GPUX_OTHER_KEY"] {
        for isolation in ["none", "pipeline"] {
            let text = std::fs::read_to_string(root().join(SCORES)).unwrap();
            replace(&yml, format!("{text}\ndescription: 'x ${{{variable}}} y'\n").as_bytes());
            let (pipeline, keys) = (folder.path().to_str().unwrap(), keys.to_str().unwrap());
            let mut started = command(&[pipeline, "--keys", keys, "--isolation", isolation]);
            started.env("GPUX_ADMIN", "the-operators-own-key").env("GPUX_OTHER_KEY", "another-long-secret");
            let output = started.run();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&format!("the variable `{variable}` may not be read")), "{said}");
            assert!(said.contains(&format!("--env {variable}")) && !said.contains("-key\n"), "{said}");
        }
    }
}

/// A server of two pipelines, `one` and `two`, and its file of keys.
fn guarded(folder: &Path, keys: &str) -> Server {
    scaling(&folder.join("one"), "one", 1.0);
    scaling(&folder.join("two"), "two", 2.0);
    let file = folder.join("keys.yml");
    replace(&file, keys.as_bytes());
    Server::start(&[folder.to_str().unwrap(), "--keys", file.to_str().unwrap(), "--access-log"])
}

const KEYS: &str = "
keys:
  - name: alice
    # of alice-has-this-key-0
    sha256: c70a696ad3f7d45452fe570b9cc767cca0c82f17e26f023d9d8d378d5bb06c84
    pipelines: [one]
    rate: 1
    burst: 3
  - { name: bob, key: bob-has-another-key-1, concurrency: 100 }
  - { name: root, key: the-operators-own-key, admin: true }
";

#[test]
fn keys_are_limited_to_their_scope() {
    let folder = tempfile::tempdir().unwrap();
    let server = guarded(folder.path(), KEYS);
    let body = "{\"x\": [1, 2]}";
    let status = |path: &str, headers: &str| server.post(path, headers, body).status;
    let (one, two) = ("/pipelines/one/predict", "/pipelines/two/predict");

    for wrong in ["", "authorization: Bearer wrong", "authorization: Basic YTpi"] {
        let answer = server.post(one, wrong, body);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{wrong}");
        assert_eq!(answer.read()["error"], "AuthenticationError");
        assert_eq!(server.get_with("/pipelines", wrong).status, 401);
        assert_eq!(server.get_with("/pipelines/one/info", wrong).status, 401);
    }
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/health/ready").status, 200);

    assert_eq!([status(one, BOB), status(two, BOB)], [200, 200]);
    assert_eq!([status(one, ALICE), status(two, ALICE)], [200, 403]);
    let named = server.get_with("/pipelines", ALICE).read();
    let names: Vec<_> = named["pipelines"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["one"], "it does not see the other");
    assert_eq!(server.get_with("/pipelines/two/info", BOB).status, 200);
    assert_eq!(status("/predict", BOB), 404, "several are served");

    let refused = server.line("status=403");
    assert!(refused.contains("key=\"alice\""), "{refused}");
    assert_eq!([server.get_with("/metrics", BOB).status, server.get_with("/metrics", ROOT).status], [403, 200]);
    // The log has the name of the client, never its key.
    let line = server.line("key=\"bob\"");
    assert!(!line.contains("another-key"), "{line}");
}

#[test]
fn rate_limit_counts_each_item_of_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let server = guarded(folder.path(), KEYS);
    let one = "/pipelines/one/predict";
    // Three are allowed, and one more after each second that the list takes.
    let item = "{\"x\": [1, 2]}";
    let start = Instant::now();
    let list = server.post(one, ALICE, &format!("[{}]", vec![item; 100].join(", ")));
    let more = start.elapsed().as_secs() as usize + 1;
    assert_eq!(list.status, 200);
    let refused = |item: &&serde_json::Value| item["error"] == "RateLimitError";
    let allowed = 100 - list.read().as_array().unwrap().iter().filter(refused).count();
    assert!((3..=3 + more).contains(&allowed), "{allowed}: {}", list.text());
    // One may have become free since.
    let answer = (0..100).map(|_| server.post(one, ALICE, item)).find(|answer| answer.status != 200).unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{answer:?}");
    assert_eq!(server.post(one, BOB, "{\"x\": [1, 2]}").status, 200, "others are not held up");
}

#[test]
fn throttles_wrong_keys_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = guarded(folder.path(), KEYS);
    let wrong = |number: usize| format!("x-api-key: guess-{number}");
    let start = Instant::now();
    // A client that waits for each response: twenty attempts are free, each further one takes a tenth of a second.
    let mut connection = server.connect();
    for number in 0..35 {
        assert_eq!(connection.send("GET", "/pipelines", &[&wrong(number)], b"").unwrap().status, 401);
    }
    assert!(start.elapsed() >= Duration::from_millis(1500), "{:?}", start.elapsed());
    assert_eq!(server.get_with("/pipelines", BOB).status, 200, "it had no key before");

    // Many clients that do not wait: three hundred are free. The server sees them in any order, so each waits a little.
    let mut many = Vec::new();
    until("wrong keys are rejected at once", || {
        assert!(many.len() < 2000, "none of so many is rejected");
        for _ in 0..50 {
            let mut connection = server.connect();
            let head = format!("GET /pipelines HTTP/1.1\r\nhost: localhost\r\n{}\r\n\r\n", wrong(35 + many.len()));
            connection.write(head.as_bytes()).unwrap();
            many.push(connection);
        }
        let last = many.last_mut().unwrap();
        last.0.get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        last.answer().is_ok_and(|answer| answer.status == 429)
    });
    assert!(many.len() > 300, "after {}", many.len());
    for _ in 0..20 {
        assert_eq!(server.get_with("/pipelines", BOB).status, 200, "who had it before has it still");
    }
    assert_eq!(server.get("/health").status, 200);
    drop(many);
    until("a key that is new there is heard again", || server.get_with("/metrics", ROOT).status == 200);
    let text = server.ask("GET", "/metrics", &[ROOT, "accept: text/plain"], b"");
    assert!(text.text().contains("gpux_refusals_total{pipeline=\"\",reason=\"key_guesses\"} "), "{}", text.text());
}

#[test]
fn warns_of_world_readable_keys() {
    let folder = tempfile::tempdir().unwrap();
    use_certificate(folder.path(), "first");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mode =
        |mode| std::fs::set_permissions(path("tls.key"), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let server = Server::begin(&[SCORES, "--tls-cert", &path("tls.pem"), "--tls-key", &path("tls.key")]);
    assert!(server.line("warning").contains("tls.key"));
}

#[test]
fn reloads_keys_on_sighup_unless_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let server = guarded(folder.path(), KEYS);
    let status = |headers: &str| server.get_with("/pipelines", headers).status;
    assert_eq!([status(ALICE), status(BOB)], [200, 200]);
    replace(&folder.path().join("keys.yml"), KEYS.replace("bob-has-another-key-1", "a-new-key-for-bob-2").as_bytes());
    server.signal(Signal::HUP);
    server.line("two was loaded again");
    assert_eq!([status(BOB), status("x-api-key: a-new-key-for-bob-2")], [401, 200]);
    replace(&folder.path().join("keys.yml"), b"keys: [{name: eve}]");
    server.signal(Signal::HUP);
    server.line("the keys are those of before");
    assert_eq!(status("x-api-key: a-new-key-for-bob-2"), 200);
}

#[test]
fn endless_key_files_block_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = guarded(folder.path(), KEYS);
    let file = folder.path().join("keys.yml");
    std::fs::remove_file(&file).unwrap();
    // No process ever writes to it.
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    server.signal(Signal::HUP);
    assert_eq!(server.get_with("/pipelines", BOB).status, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn rejects_invalid_key_files_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.yml");
    std::fs::write(&file, "keys:\n  - { name: eve, sha256: short }\n").unwrap();
    let server = &mut Server::begin(&[SCORES, "--keys", file.to_str().unwrap()]);
    server.line("64 hexadecimal digits");
    assert_eq!(server.ended().code(), Some(2));
}

#[test]
fn cors_allows_listed_origins() {
    let server = Server::start(&[SCORES, "--cors", "https://app.example.com"]);
    let asks = [
        "origin: https://app.example.com",
        "access-control-request-method: POST",
        "access-control-request-headers: authorization,content-type",
    ];
    let preflight = server.ask("OPTIONS", "/predict", &asks, b"");
    assert_eq!(preflight.header("access-control-allow-origin"), Some("https://app.example.com"), "{preflight:?}");
    // `*` would leave out keys.
    assert_eq!(preflight.header("access-control-allow-headers"), Some("authorization,content-type"));
    assert!(preflight.header("x-request-id").is_some(), "it is an answer like others");
    assert_eq!(server.ask("OPTIONS", "/predict", &[], b"").status, 405, "this is no browser's question");
    let answer = server.post("/predict", "origin: https://app.example.com", ONE);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert_eq!(
        (answer.header("x-content-type-options"), answer.header("x-frame-options")),
        (Some("nosniff"), Some("DENY"))
    );
    let other = server.post("/predict", "origin: https://evil.example", ONE);
    assert_eq!(other.header("access-control-allow-origin"), None);
    let closed = Server::start(&[SCORES]);
    let answer = closed.post("/predict", "origin: https://app.example.com", ONE);
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

/// The status of a request that names this host.
fn status_for(server: &Server, host: &str, method: &str, path: &str) -> u16 {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n\r\n{ONE}", ONE.len());
    let mut connection = server.connect();
    connection.write(head.as_bytes()).unwrap();
    connection.answer().unwrap().status
}

#[test]
fn rejects_foreign_hosts_on_loopback() {
    let server = Server::start(&[SCORES, "--cors", "*", "--allow-host", "api.example.com"]);
    let paths = [("POST", "/predict"), ("GET", "/pipelines"), ("GET", "/metrics"), ("GET", "/health"), ("GET", "/v2")];
    for (method, path) in paths {
        for (host, rebound) in [("evil.example:8080", true), ("localhost", false), ("API.example.com", false)] {
            assert_eq!(status_for(&server, host, method, path), if rebound { 421 } else { 200 }, "{host} {path}");
        }
    }
    // A browser may have asked before, and reads what it gets.
    let asks = "origin: http://evil.example\r\naccess-control-request-method: POST";
    assert_eq!(status_for(&server, &format!("evil.example\r\n{asks}"), "OPTIONS", "/predict"), 421);
    assert_eq!(status_for(&server, &format!("localhost\r\n{asks}"), "OPTIONS", "/predict"), 200);
    let counted = |protocol: &str| {
        let name = format!("gpux_requests_total{{pipeline=\"\",protocol=\"{protocol}\",status=\"421\"}} ");
        server.get_with("/metrics", "accept: text/plain").text().contains(&name)
    };
    assert!(counted("http") && counted("oip-http"));
    // The same over HTTP/2, by its authority.
    let before = server.metric("gpux_requests_total{pipeline=\"\",protocol=\"http\",status=\"421\"} ");
    let mut stream = connect(&server);
    for (id, host) in [(1, "evil.example"), (3, "localhost"), (5, "127.0.0.1:8080")] {
        stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, id, &head_to(host, 0x82, "/health"))).unwrap();
    }
    until("it is counted", || {
        server.metric("gpux_requests_total{pipeline=\"\",protocol=\"http\",status=\"421\"} ") == before + 1.0
    });
    // Where keys are asked for, a page has none.
    let folder = tempfile::tempdir().unwrap();
    let guarded = guarded(folder.path(), KEYS);
    assert_eq!(status_for(&guarded, "evil.example", "GET", "/pipelines"), 401);
    assert_eq!(status_for(&guarded, &format!("gpux.example.com\r\n{BOB}"), "GET", "/pipelines"), 200);
}

#[test]
fn rejects_cross_site_writes() {
    let server = Server::start(&[SCORES, "--model-control", "--cors", "*", "--cors", "https://ops.example.com"]);
    let unload = |head: &[&str]| server.ask("POST", "/v2/repository/models/scores/unload", head, b"").status;
    let form = "content-type: application/x-www-form-urlencoded";
    assert_eq!(unload(&[form, "sec-fetch-site: cross-site", "origin: https://evil.example"]), 403);
    assert_eq!(unload(&[form, "origin: null"]), 403);
    assert_eq!(unload(&[form, "sec-fetch-site: same-site"]), 403);
    server.assert_alive();
    assert_eq!(unload(&["sec-fetch-site: cross-site", "origin: https://ops.example.com"]), 200);
    let load = |head: &[&str]| server.ask("POST", "/v2/repository/models/scores/load", head, b"").status;
    assert_eq!(load(&["sec-fetch-site: same-origin"]), 200);
    assert_eq!([unload(&[]), load(&["origin: http://localhost"])], [200, 200]);
    server.assert_alive();
}

/// `gpux serve` with the default address.
fn on_every_address(arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(["serve", "--port", "0", "--engine", "embedded"]).args(arguments).current_dir(root());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[test]
fn prints_its_address_and_exposure() {
    let mut server = Server::spawn(on_every_address(&[SCORES]));
    assert!(server.line("warning").contains("everybody who reaches 0.0.0.0:"));
    let line = server.line("ready on http://localhost:");
    let port = line.rsplit(':').next().unwrap().parse().unwrap();
    server.address = ([127, 0, 0, 1], port).into();
    server.assert_alive();

    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.yml");
    std::fs::write(&keys, KEYS).unwrap();
    let open = &mut Server::spawn(on_every_address(&[SCORES, "--model-control"]));
    assert!(open.line("--model-control").contains("--keys"));
    assert_eq!(open.ended().code(), Some(2));
    let guarded = Server::of(on_every_address(&[SCORES, "--model-control", "--keys", keys.to_str().unwrap()]));
    assert_eq!(guarded.post("/v2/repository/models/scores/unload", ROOT, "").status, 200);
}

#[test]
fn serves_no_symlinked_files() {
    let folder = tempfile::tempdir().unwrap();
    let (project, secret) = (folder.path().join("scaling"), folder.path().join("secret.yml"));
    scaling(&project, "scaling", 2.0);
    std::fs::write(&secret, "name: scaling\nroot-password: hunter2\n").unwrap();
    let server = Server::start(&[project.to_str().unwrap(), "--model-control"]);
    let paths = ["/health", "/pipelines", "/info", "/metrics", "/v2", "/v2/models/scaling/config"];
    let told = || {
        let load = server.post("/v2/repository/models/scaling/load", "", "");
        let index = server.post("/v2/repository/index", "", "");
        assert_eq!(load.status, 500, "{load:?}");
        let pages = paths.map(|path| server.get(path).text().to_owned());
        [load.text().to_owned(), index.text().to_owned(), pages.concat()].concat()
    };
    let says_nothing = |told: &str| {
        for word in ["hunter2", "root-password", folder.path().to_str().unwrap(), "secret.yml"] {
            assert!(!told.contains(word), "{word} in {told}");
        }
        assert!(told.contains("ConfigurationError"), "{told}");
    };
    let link = project.join("link");
    std::os::unix::fs::symlink("../secret.yml", &link).unwrap();
    std::fs::rename(&link, project.join("gpux.yml")).unwrap();
    says_nothing(&told());
    assert!(server.line("could not be loaded").contains("leads out of its folder"));
    // A file of its own with a mistake: its lines are for the log.
    replace(&project.join("gpux.yml"), &std::fs::read(&secret).unwrap());
    says_nothing(&told());
    server.line("hunter2");
    // Nor is where its other files would lie.
    replace(&project.join("gpux.yml"), b"name: scaling\nversion: 1.0.0\nmodel: { source: ./none.onnx }\n");
    says_nothing(&told());
    assert_eq!(server.post("/predict", "", "{\"x\": [1, 2]}").status, 200, "what answered answers");
}
