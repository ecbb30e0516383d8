//! Components with granted WASI interfaces, and the limits of these.

use std::path::Path;
use std::time::{Duration, Instant};

use wasmtime_wasi::p2::StreamError;
use wasmtime_wasi::p2::bindings::cli::stdout;
use wasmtime_wasi::p2::bindings::sync::io::streams;

use super::super::state::{Capabilities, Phase, State};
use super::super::time_budget::TimeBudget;
use super::super::{Capability, EnvGrant, FolderGrant, RefusalReason, Start};
use super::*;

static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| guest("hostile-wasi/all.wasm"));

fn everything() -> Grants {
    Grants { clock: true, random: true, stdio: true, ..Grants::default() }
}

fn folder(path: &Path, name: &str, writable: bool) -> FolderGrant {
    FolderGrant { name: name.to_owned(), folder: path.to_owned(), writable, opened: None }
}

fn step(grants: Grants, limits: Limits) -> ComponentStep {
    SANDBOX.load(&ALL, ComponentConfig { limits, grants, ..ComponentConfig::default() }, &Arc::default()).unwrap()
}

/// A sandbox as the host's functions see it, without a guest.
fn state(grants: Grants, time: Duration) -> State {
    let capabilities =
        Capabilities::new(&ComponentConfig { grants, ..ComponentConfig::default() }, Arc::default()).unwrap();
    State::new(Arc::new(capabilities), Phase::Request, TimeBudget::start("time", time, None))
}

fn small() -> Limits {
    Limits { time: Duration::from_secs(20), memory: 8 << 20, result: 1 << 20, log: 1 << 10, ..Limits::default() }
}

fn hurried() -> Limits {
    Limits { time: Duration::from_millis(100), ..small() }
}

/// What `attack` comes to, as text; limits and failures in their own words.
fn strike_with(step: &ComponentStep, attack: &str) -> String {
    match run(step, attack) {
        Ok(Value::Text(outcome)) => outcome.as_ref().to_owned(),
        Ok(other) => panic!("{attack}: {other:?}"),
        Err(StepFailure::Limit(limit)) => format!("limit {}", limit.limit),
        Err(StepFailure::Failed(why) | StepFailure::InvalidInput(why)) => why,
        Err(other) => format!("{other:?}"),
    }
}

fn strike(attack: &str) -> String {
    strike_with(&step(everything(), small()), attack)
}

/// A folder with a secret beside it.
fn project() -> (tempfile::TempDir, PathBuf) {
    let outside = tempfile::tempdir().unwrap();
    let granted = outside.path().join("granted");
    std::fs::create_dir_all(granted.join("inner")).unwrap();
    std::fs::write(granted.join("file"), "contents").unwrap();
    std::fs::write(outside.path().join("secret"), "the secret").unwrap();
    (outside, granted)
}

fn in_folder(granted: &Path, writable: bool) -> ComponentStep {
    step(Grants { dirs: vec![folder(granted, "./assets", writable)], ..everything() }, small())
}

#[test]
fn clocks_and_waits() {
    assert_eq!(strike("sleep 5"), "slept true");
    assert_eq!(strike("poll-first"), "[1] false");
    assert!(strike("year").parse::<u32>().unwrap() >= 2025);
}

#[test]
fn a_wait_ends_at_the_deadline() {
    let step = step(everything(), hurried());
    for attack in ["sleep 60000", "sleep-for-ever", "poll-never", "poll-spin"] {
        let begin = Instant::now();
        assert_eq!(strike_with(&step, attack), "limit time", "{attack}");
        assert!(begin.elapsed() >= Duration::from_millis(100), "{attack}");
    }
    // The request's own deadline counts as well.
    let mut context = Context { deadline: Some(Instant::now() + Duration::from_millis(10)), ..Context::default() };
    assert_eq!(run_in(&step, "sleep-for-ever", &mut context), Err(StepFailure::Timeout));
    assert_eq!(strike("poll-nothing"), "it waits for nothing: `poll` of an empty list");
}

#[test]
fn limits_held_resources() {
    let step = step(everything(), small());
    for attack in ["hoard-pollables", "hoard-streams"] {
        assert_eq!(strike_with(&step, attack), "limit handles", "{attack}");
    }
}

#[test]
fn random_numbers_fit_in_memory_and_time() {
    assert_eq!(strike("random 1000"), "1000 true");
    assert_eq!(strike(&format!("random {}", 4_u64 << 30)), "limit memory");
    assert_eq!(strike(&format!("random {}", u64::MAX)), "limit memory");
    let large = Limits { memory: 64 << 20, time: Duration::from_millis(20), ..small() };
    assert_eq!(strike_with(&step(everything(), large), &format!("random {}", 48 << 20)), "limit time");
}

#[test]
fn standard_streams_go_to_the_log() {
    let step = step(everything(), small());
    let mut context = Context::default();
    assert_eq!(run_in(&step, "print one\ntwo", &mut context), Ok("printed".into()));
    assert_eq!(context.log, ["stdout: one", "stderr: and this", "stdout: two"]);
    assert_eq!(strike_with(&step, "input"), "Err(\"StreamError::Closed\")");
    assert_eq!(
        strike_with(&step, "exit well"),
        "it called `exit` with code 0; a step returns a result or an error instead"
    );
    assert!(strike_with(&step, "exit badly").contains("code 1"));
}

#[test]
fn a_flood_of_output_stays_within_the_log() {
    for attack in ["print-for-ever", "zeros-for-ever"] {
        let step = step(everything(), hurried());
        let mut context = Context::default();
        let outcome = run_in(&step, attack, &mut context);
        assert!(matches!(outcome, Err(StepFailure::Limit(limit)) if limit.limit == "time"), "{attack}");
        assert!(context.log.iter().map(String::len).sum::<usize>() <= 2 << 10, "{attack}: {}", context.log.len());
    }
}

#[test]
fn one_call_of_many_lines_ends_at_the_deadline() {
    let lines = vec![b'\n'; 32 << 20];
    let mut state = state(everything(), Duration::from_millis(100));
    let stdout = stdout::Host::get_stdout(&mut state).unwrap();
    let written = streams::HostOutputStream::write(&mut state, stdout, lines);
    assert!(matches!(written, Err(StreamError::Trap(_))), "{written:?}");
}

#[test]
fn only_granted_variables_are_seen() {
    assert_eq!(strike("environment"), "[]");
    assert_eq!(strike("arguments"), "[] None");
    let env = |name: &str, value: Option<&str>| EnvGrant { name: name.to_owned(), value: value.map(str::to_owned) };
    let grants = Grants { env: vec![env("LANG", Some("de")), env("UNSET", None)], ..everything() };
    let step = step(grants, small());
    assert_eq!(strike_with(&step, "environment"), r#"[("LANG", "de")]"#);
    assert_eq!(step.details()["grants"]["env"], json!(["LANG", "UNSET"]));
}

#[test]
fn only_granted_folders_are_seen() {
    assert_eq!(strike("folders"), "");
    assert_eq!(strike("read file"), "no attack `read file`");
    let (_outside, granted) = project();
    let step = in_folder(&granted, false);
    assert_eq!(strike_with(&step, "folders"), "./assets");
    assert_eq!(strike_with(&step, "read file"), "\"contents\"");
    assert_eq!(strike_with(&step, "count"), "2");
    assert_eq!(strike_with(&step, "read none"), "no-entry");
}

#[test]
fn rejects_paths_out_of_a_granted_folder() {
    let (outside, granted) = project();
    #[cfg(unix)]
    for (link, target) in [
        ("up", Path::new("../secret")),
        ("absolute", &outside.path().join("secret")),
        ("parent", Path::new("..")),
        ("root", Path::new("/")),
        ("twice", Path::new("parent")),
    ] {
        std::os::unix::fs::symlink(target, granted.join(link)).unwrap();
    }
    for writable in [false, true] {
        let step = in_folder(&granted, writable);
        let absolute = outside.path().join("secret").display().to_string();
        for path in [
            "../secret",
            "inner/../../secret",
            "../../../../../../../etc/passwd",
            "/etc/passwd",
            &absolute,
            "file/../../secret",
        ] {
            for word in ["read", "stat", "write"] {
                let outcome = strike_with(&step, &format!("{word} {path}"));
                assert!(["not-permitted", "not-directory"].contains(&outcome.as_str()), "{word} {path}: {outcome}");
            }
        }
        #[cfg(unix)]
        for path in ["up", "absolute", "parent/secret", "root/etc/passwd", "twice/secret"] {
            for word in ["read", "write"] {
                assert_eq!(strike_with(&step, &format!("{word} {path}")), "not-permitted", "{word} {path}");
            }
        }
        assert_eq!(strike_with(&step, "enter inner"), "not-permitted");
    }
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "the secret");
}

/// The author of a pipeline swaps a granted folder for a link after it was checked.
#[cfg(unix)]
#[test]
fn rejects_folders_replaced_after_the_check() {
    let (outside, granted) = project();
    let opened = Some(std::fs::File::open(&granted).unwrap().into());
    let grant = FolderGrant { opened, ..folder(&granted, "./assets", true) };
    let known = grant.opened.as_ref().unwrap().identity();
    let elsewhere = outside.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(&granted, outside.path().join("moved")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &granted).unwrap();
    let step = step(Grants { dirs: vec![grant.clone()], ..everything() }, small());
    assert_eq!(strike_with(&step, "write made"), "24");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(outside.path().join("moved/made").exists());
    // The process that prepares the step opens the folder again, and checks its identity.
    let mut anew = FolderGrant { opened: None, ..grant };
    assert!(anew.open(known).unwrap_err().to_string().contains("another folder lies there"));
    std::fs::remove_file(&granted).unwrap();
    std::fs::rename(outside.path().join("moved"), &granted).unwrap();
    assert!(anew.open(known).is_ok());
}

#[test]
fn rejects_writes_to_read_only_folders() {
    let (_outside, granted) = project();
    let outcome = strike_with(&in_folder(&granted, false), "change file");
    assert!(outcome.split(' ').all(|code| ["not-permitted", "read-only"].contains(&code)), "{outcome}");
    assert_eq!(std::fs::read_to_string(granted.join("file")).unwrap(), "contents");
    assert_eq!(std::fs::read_dir(&granted).unwrap().count(), 2);
}

#[test]
fn creates_files_but_no_links() {
    let (outside, granted) = project();
    let writing = in_folder(&granted, true);
    assert_eq!(strike_with(&writing, "write inner/made"), "24");
    assert_eq!(std::fs::read_to_string(granted.join("inner/made")).unwrap(), "twelve bytestwelve bytes");
    assert_eq!(strike_with(&writing, "copy inner/made"), "24");
    let outcome = strike_with(&writing, "change file");
    assert!(outcome.ends_with("not-permitted not-permitted"), "links are refused: {outcome}");
    // A folder for reading is no place to move files out of or into.
    let other = outside.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let dirs = vec![folder(&granted, "./a", true), folder(&other, "./b", false)];
    let both = step(Grants { dirs, ..everything() }, small());
    assert_eq!(strike_with(&both, "across copy"), "not-permitted");
}

#[test]
fn limits_written_bytes() {
    let (_outside, granted) = project();
    let step = in_folder(&granted, true);
    assert_eq!(strike_with(&step, "fill"), "limit result");
    assert!(std::fs::metadata(granted.join("full")).unwrap().len() <= 1 << 20);
    assert_eq!(strike_with(&step, "grow"), "limit result");
    assert_eq!(strike_with(&step, "litter"), "limit result");
    assert!(std::fs::read_dir(&granted).unwrap().count() < 300);
}

#[test]
fn open_files_are_bounded_and_closed() {
    let (_outside, granted) = project();
    let step = in_folder(&granted, false);
    for attack in ["hoard-files file", "hoard-file-streams file", "hoard-listings", "hoard-folders"] {
        let why = strike_with(&step, attack);
        assert_eq!(why, "it holds 33 files and streams of files open, the most a sandbox may", "{attack}");
    }
    assert_eq!(strike_with(&step, "open-and-close file"), "done");
    assert_eq!(strike_with(&step, &format!("read {}", "a/".repeat(4096))), "name-too-long");
}

#[cfg(target_os = "linux")]
#[test]
fn a_sandbox_leaves_no_file_open() {
    let (_outside, granted) = project();
    let step = in_folder(&granted, false);
    // Other tests open files meanwhile, but not in this folder.
    let open = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        files.filter(|file| std::fs::read_link(file.path()).is_ok_and(|path| path.starts_with(&granted))).count()
    };
    let before = open();
    for _ in 0..20 {
        strike_with(&step, "hoard-files file");
    }
    assert_eq!(open(), before);
}

#[test]
fn lists_huge_folders_lazily() {
    let (_outside, granted) = project();
    for name in 0..20_000 {
        std::fs::write(granted.join(format!("inner/{name}")), "").unwrap();
    }
    let grants = Grants { dirs: vec![folder(&granted.join("inner"), ".", false)], ..everything() };
    // A minute: 20,000 files are many for a busy disk.
    let patient = Limits { time: Duration::from_mins(1), ..small() };
    assert_eq!(strike_with(&step(grants.clone(), patient), "count"), "20000");
    let hurried = Limits { time: Duration::from_millis(2), ..small() };
    assert_eq!(strike_with(&step(grants, hurried), "count"), "limit time");
}

#[cfg(unix)]
#[test]
fn rejects_special_files() {
    let (_outside, granted) = project();
    let pipe = granted.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success());
    assert!(made, "mkfifo makes a pipe");
    assert_eq!(strike_with(&in_folder(&granted, false), "read pipe"), "not-permitted");
    let devices = Grants { dirs: vec![folder(Path::new("/dev"), "/dev", false)], ..everything() };
    assert_eq!(strike_with(&step(devices, small()), "read zero"), "not-permitted");
}

#[test]
fn reports_missing_folders() {
    let grants = Grants { dirs: vec![folder(Path::new("/no/such/folder"), "./x", false)], ..everything() };
    let error = SANDBOX
        .load(&ALL, ComponentConfig { grants, ..ComponentConfig::default() }, &Arc::default())
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("the granted folder `/no/such/folder` cannot be opened: "), "{error}");
}

fn refused(bytes: &[u8], grants: &Grants) -> Vec<Capability> {
    let capability = |reason| match reason {
        RefusalReason::NotGranted(capability) => Some(capability),
        RefusalReason::Never(_) => None,
    };
    SANDBOX.refusals(bytes, grants).unwrap().into_iter().filter_map(|refusal| capability(refusal.reason)).collect()
}

#[test]
fn links_only_granted_interfaces() {
    assert_eq!(refused(&ALL, &Grants::default()), [Capability::Clock, Capability::Random]);
    assert_eq!(refused(&ALL, &Grants { clock: true, ..Grants::default() }), [Capability::Random]);
    assert!(refused(&ALL, &everything()).is_empty());
    let error = SANDBOX.load(&ALL, ComponentConfig::default(), &Arc::default()).err().unwrap().to_string();
    assert_eq!(
        error,
        "this component imports `wasi:clocks/monotonic-clock@0.2.0`, `wasi:clocks/wall-clock@0.2.0` to read the clock, \
         which is not granted: its step needs `grant: { wasi: [clock] }`; this component imports \
         `wasi:random/random@0.2.0`, `wasi:random/insecure-seed@0.2.0` to draw random numbers, which is not granted: \
         its step needs `grant: { wasi: [random] }`"
    );
    let print = guest("hostile-wasi/print-only.wasm");
    assert_eq!(refused(&print, &Grants::default()), [Capability::Stdio]);
    for grants in [Grants { stdio: true, ..Grants::default() }, Grants { random: true, ..Grants::default() }] {
        let step =
            SANDBOX.load(&print, ComponentConfig { grants, ..ComponentConfig::default() }, &Arc::default()).unwrap();
        assert_eq!(run(&step, "print hello"), Ok("[]".into()));
    }
    let network = guest("hostile-wasi/network.wasm");
    let error =
        SANDBOX.load(&network, ComponentConfig { grants: everything(), ..ComponentConfig::default() }, &Arc::default());
    assert!(error.err().unwrap().to_string().contains("a step never gets: no grant opens the network"));
}

#[test]
fn describes_components_without_grants() {
    let info = SANDBOX.inspect(&ALL, Some(&json!({}))).unwrap();
    assert_eq!((info.problem.as_deref(), info.summary.as_deref()), (None, Some("attacks what it is granted of WASI")));
    assert_eq!(
        info.capabilities(),
        "It can: compute. If granted, it can: read the clock (`grant: { wasi: [clock] }`), draw random numbers \
         (`grant: { wasi: [random] }`), see the environment (`grant: { env: [NAME] }`), read files (`grant: { dirs: \
         [./FOLDER] }`), use standard streams (`grant: { wasi: [stdio] \
         }`). It cannot: use the network, run models. It is not loaded \
         unless it may read the clock and draw random numbers; the operator agrees with `--allow clock,random`."
    );
    let network = SANDBOX.inspect(&guest("hostile-wasi/network.wasm"), None).unwrap();
    assert!(network.problem.unwrap().contains("no grant opens the network"));
    assert!(network.cannot.contains(&"use the network"));
}

#[test]
fn snapshots_contain_no_wasi_state() {
    let clock = || Grants { clock: true, random: true, ..Grants::default() };
    let with_wasi = step(clock(), small());
    let Start::Configure { why } = &with_wasi.start else { panic!("{:?}", with_wasi.start) };
    assert!(why.contains("a snapshot would freeze"), "{why}");
    // A grant that is not used freezes nothing.
    let config = ComponentConfig { grants: clock(), ..ComponentConfig::default() };
    let without = SANDBOX.load(&HOSTILE, config, &Arc::default()).unwrap();
    assert_eq!(without.start, Start::Snapshot);
}

#[test]
fn allocates_wasi_state_only_when_granted() {
    assert_eq!(strike("rest"), "rested");
    assert!(state(Grants::default(), Duration::from_secs(1)).wasi.is_none());
}
