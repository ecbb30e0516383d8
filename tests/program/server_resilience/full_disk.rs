//! A disk without room: for the log, for the cache, while pipelines are loaded again.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{ONE, SCORES, Server, command, until};
use crate::child::{self, StartWithLimit as _};
use crate::digits::root;
use crate::test_server::Answer;

/// A server whose log is a file.
fn logged(command: Command, log: &Path) -> Server {
    let mut server = Server::spawn(command);
    let ready = || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("ready on http://"));
        line.and_then(|address| address.parse().ok())
    };
    until("it is ready", || {
        assert!(server.child.try_wait().unwrap().is_none(), "it has ended: {:?}", std::fs::read_to_string(log));
        ready().is_some()
    });
    server.address = ready().unwrap();
    server
}

/// What a shell does before it becomes the server, whose log goes to `log`.
fn in_shell(before: &str, arguments: &[&str], log: &Path) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("{before}\nexec \"$0\" \"$@\" 2>>{}", log.display());
    shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_gpux"));
    shell.args(command(arguments).get_args());
    shell.current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null());
    shell
}

fn has_line(log: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(log).unwrap().lines().any(|line| line.contains(wanted))
}

#[test]
fn drops_log_lines_if_the_log_is_unwritable() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    // Files of a few KiB at most stand in for a full disk: shells count in blocks of 512 or 1024 bytes.
    let limited = in_shell("trap '' XFSZ; ulimit -f 8", &[SCORES, "--access-log", "--log-format", "text"], &log);
    let mut server = logged(limited, &log);
    let mut connection = server.connect();
    for _ in 0..300 {
        assert_eq!(connection.send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200);
    }
    until("the log is full", || log.metadata().unwrap().len() >= 4096);
    // Log rotation frees space; the truncated line is not joined with the next.
    std::fs::write(&log, "").unwrap();
    until("it goes on", || {
        assert_eq!(connection.send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200);
        has_line(&log, "lines of this log were lost")
    });
    let text = std::fs::read_to_string(&log).unwrap();
    let whole = |line: &&str| line.is_empty() || line.matches("request_id=").count() <= 1;
    assert!(text.lines().all(|line| whole(&line)), "{text}");
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn unread_log_blocks_neither_requests_nor_exit() {
    use std::io::{BufRead as _, BufReader};
    let mut child = command(&[SCORES, "--access-log"]).stderr(Stdio::piped()).start();
    let mut unread = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("ready on http://") {
        line.clear();
        assert!(unread.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    let address = line.trim().strip_prefix("ready on http://").unwrap().parse().unwrap();
    let mut server = Server::around(child, address);
    let mut connection = server.connect();
    // Far more than a pipe takes.
    for _ in 0..2000 {
        assert_eq!(connection.send("POST", "/predict", &[], ONE.as_bytes()).unwrap().status, 200);
    }
    server.signal(Signal::HUP);
    until("it is loaded again", || {
        server.metric("gpux_reloads_total{pipeline=\"scores\",result=\"succeeded\"}") == 1.0
    });
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    drop(unread);
}

#[test]
fn reports_a_full_disk_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let cache = folder.path().join("cache");
    let before = format!("trap '' XFSZ; ulimit -f 16; export GPUX_CACHE_DIR={}", cache.display());
    let mut server = Server::spawn(in_shell(&before, &["."], &log));
    assert_eq!(server.ended().code(), Some(3));
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("error: cannot use the cache for compiled components"), "{said}");
    assert!(said.contains("$GPUX_CACHE_DIR"), "{said}");
    // What needs no component needs no cache either.
    let log = folder.path().join("other.log");
    let server = logged(in_shell(&before, &["tests/models/square.onnx"], &log), &log);
    assert_eq!(server.post("/predict", "", "{\"x\": [[1, 2], [3, 4]]}").status, 200);
    assert!(has_line(&log, "the cache") && has_line(&log, "cannot be used"));
}

/// A file system of its own, which the test can fill: where the system lets a user have one.
#[cfg(target_os = "linux")]
#[test]
fn full_disk_loses_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(env!("CARGO_BIN_EXE_gpux"));
        command.current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let mount = format!("mount -t tmpfs -o size=64m tmpfs {}", disk.display());
    if !unshared(&mount).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    let pipeline = folder.path().join("digits");
    let digits = |margin: f64| {
        let text = std::fs::read_to_string(root().join("gpux.yml")).unwrap();
        let text = text.replace("margin: 0.15", &format!("margin: {margin}"));
        let text = text.replace("./models", &root().join("models").display().to_string());
        let text = text.replace("./guest-examples", &root().join("guest-examples").display().to_string());
        std::fs::create_dir_all(&pipeline).unwrap();
        super::replace(&pipeline.join("gpux.yml"), text.as_bytes());
    };
    digits(0.15);
    let script =
        format!("{mount} && GPUX_CACHE_DIR={disk}/cache exec \"$0\" \"$@\" 2>>{disk}/log", disk = disk.display());
    let mut started = unshared(&script);
    started.args(command(&[pipeline.to_str().unwrap(), "--allow-outside", "--access-log"]).get_args());
    let mut server = Server::spawn(started);
    // The disk, seen from outside.
    let process = server.child.id();
    let disk = Path::new("/proc").join(process.to_string()).join("root").join(disk.strip_prefix("/").unwrap());
    let log = disk.join("log");
    let ready = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("ready on http://").and_then(|address| address.parse().ok()))
    };
    until("it is ready", || {
        assert!(server.child.try_wait().unwrap().is_none(), "it has ended");
        ready().is_some()
    });
    server.address = ready().unwrap();

    let seven = std::fs::read(root().join("models/samples/seven.png")).unwrap();
    let ask = |server: &Server| -> Answer {
        server.connect().send("POST", "/predict", &["content-type: image/png"], &seven).unwrap()
    };
    assert_eq!(ask(&server).status, 200);
    let filled = fill(&disk.join("filling"));
    assert!(filled > 0, "the disk was full before");
    for _ in 0..20 {
        assert_eq!(ask(&server).status, 200);
    }
    // The component is set up anew for another margin, which takes room that is not there.
    digits(0.1);
    server.signal(Signal::HUP);
    let reloads = |server: &Server, result: &str| {
        server.metric(&format!("gpux_reloads_total{{pipeline=\"digits\",result=\"{result}\"}}"))
    };
    until("it is loaded again, or is not", || {
        assert_eq!(ask(&server).status, 200);
        reloads(&server, "succeeded") + reloads(&server, "failed") >= 1.0
    });
    assert_eq!(reloads(&server, "failed"), 0.0, "the system's folder for such things had room");
    assert_eq!(ask(&server).status, 200);

    std::fs::remove_file(disk.join("filling")).unwrap();
    until("the log goes on", || {
        assert_eq!(ask(&server).status, 200);
        has_line(&log, "lines of this log were lost")
    });
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

/// The disk of the cache and of temporary files, without room from the start.
#[cfg(target_os = "linux")]
#[test]
fn reports_a_full_disk_as_environment_error() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().display();
    let mount = format!("mount -t tmpfs -o size=1m tmpfs {disk} && mkdir -m 700 {disk}/cache {disk}/tmp");
    let fill = format!("{{ cat /dev/zero >{disk}/filling 2>/dev/null || true; }}");
    let full = |arguments: &[&str]| {
        let script = format!("{mount} && {fill} && GPUX_CACHE_DIR={disk}/cache TMPDIR={disk}/tmp exec \"$0\" \"$@\"");
        let mut command = child::command("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(env!("CARGO_BIN_EXE_gpux"));
        command.args(arguments).args(["--engine", "embedded"]).current_dir(root()).stdin(Stdio::null());
        command.run()
    };
    let mut unshared = Command::new("unshare");
    unshared.args(["--map-root-user", "--mount", "sh", "-c", &mount]).stderr(Stdio::null());
    if !unshared.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    // To try a model takes no disk.
    let model = full(&["run", "tests/models/square.onnx", "--input", "{\"x\": [[1, 2], [3, 4]]}"]);
    let said = String::from_utf8_lossy(&model.stderr).into_owned();
    assert_eq!(model.status.code(), Some(0), "{said}");
    // A component does, and both places are named.
    let component = full(&["run", ".", "--file", "models/samples/seven.png"]);
    let said = String::from_utf8_lossy(&component.stderr).into_owned();
    assert_eq!(component.status.code(), Some(3), "{said}");
    assert!(said.contains("No space left on device") && said.contains("$GPUX_CACHE_DIR"), "{said}");
    assert!(!said.contains("hostile"), "{said}");
}

/// Writes until there is no room.
#[cfg(target_os = "linux")]
fn fill(path: &Path) -> usize {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    let mut filled = 0;
    for block in [1 << 16, 1 << 10, 1] {
        while let Ok(written) = file.write(&vec![7; block]) {
            filled += written;
        }
    }
    filled
}
