//! Steps built from their sources: `gpux build`, `gpux test --watch`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::author::{gpux_in, json, read, run, stderr};
use crate::child::{self, StartWithLimit as _};
use crate::digits::{root, stdout};

/// A step's own commands make the module; gpux wraps, strips, checks and writes it.
#[cfg(unix)]
#[test]
fn builds_a_step_with_custom_commands() {
    let folder = tempfile::tempdir().unwrap();
    let module = root().join("guest-examples/hostile/hostile.wasm");
    std::fs::copy(&module, folder.path().join("module.wasm")).unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("step.yml"), text).unwrap();
    write("name: attacks\nlanguage: rust\noutput: out/attacks.wasm\nbuild: ['cp module.wasm \"$GPUX_OUTPUT\"']\n");
    let built = json(&run(folder.path(), &["build", "--json"]));
    assert_eq!((&built["name"], &built["written"]), (&"attacks".into(), &"out/attacks.wasm".into()));
    assert!(built["bytes"].as_u64() < built["bytes_before"].as_u64(), "{built}");
    let component = std::fs::read(folder.path().join("out/attacks.wasm")).unwrap();
    assert_eq!(component.len() as u64, built["bytes"].as_u64().unwrap());
    let kept = json(&run(folder.path(), &["build", "--json", "--no-strip"]));
    assert_eq!(kept["bytes"], built["bytes_before"]);

    // A failed build keeps the existing component, and shows the compiler's output.
    write("name: attacks\nlanguage: rust\noutput: out/attacks.wasm\nbuild: ['echo no luck >&2; exit 7']\n");
    let failed = run(folder.path(), &["build"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("exit status: 7") && stderr(&failed).contains("no luck"), "{}", stderr(&failed));
    assert!(folder.path().join("out/attacks.wasm").is_file());
    write("name: attacks\nlanguage: rust\nbuild: ['echo nothing > \"$GPUX_OUTPUT\"']\n");
    let failed = run(folder.path(), &["build"]);
    assert!(stderr(&failed).contains("what was built is no step"), "{}", stderr(&failed));

    write("name: attacks\nlanguage: rust\n");
    let without = gpux_in(folder.path(), &["build"]).env("PATH", folder.path()).run();
    assert_eq!(without.status.code(), Some(3));
    assert!(stderr(&without).contains("install Rust as https://rustup.rs says"), "{}", stderr(&without));
}

/// A step in C, with a `zig` that counts its calls and gives a module.
#[cfg(unix)]
#[test]
fn builds_a_step_again_only_if_something_changed() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    stdout(&run(folder.path(), &["new", "step", "--lang", "c", "attacks"]));
    let (step, tools) = (folder.path().join("attacks"), folder.path().join("tools"));
    std::fs::create_dir(&tools).unwrap();
    let zig = |version: &str| {
        let module = root().join("guest-examples/hostile/hostile.wasm");
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = version ]; then echo {version}; exit; fi\necho once >> {}/count\n\
             for last; do :; done\ncp {} \"$last\"\n",
            folder.path().display(),
            module.display()
        );
        std::fs::write(tools.join("zig"), text).unwrap();
        std::fs::set_permissions(tools.join("zig"), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    zig("1");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let build = |more: &[&str]| {
        let output = gpux_in(&step, &[&["build", "--json"], more].concat()).env("PATH", &path).run();
        let fresh = json(&output)["fresh"].as_bool().unwrap();
        let count = read(folder.path().join("count")).lines().count();
        assert!(step.join("attacks.wasm").is_file());
        (fresh, count)
    };
    assert_eq!(build(&[]), (false, 1));
    assert_eq!(build(&[]), (true, 1));
    let source = step.join("src/step.c");
    std::fs::write(&source, read(&source) + "\n").unwrap();
    // Another source, the same module: that is known from then on.
    assert_eq!(build(&[]), (true, 2));
    assert_eq!(build(&[]), (true, 2));
    assert_eq!(build(&["--force"]), (false, 3));
    assert_eq!(build(&[]), (true, 3));
    assert_eq!(build(&["--no-strip"]), (false, 4));
    assert_eq!(build(&[]), (false, 5));
    // A case is no source; a component that somebody else wrote is not the one that was built.
    std::fs::write(step.join("tests/half/case.yml"), "inputs: {}\n").unwrap();
    assert_eq!(build(&[]), (true, 5));
    std::fs::write(step.join("attacks.wasm"), "mine").unwrap();
    assert_eq!(build(&[]), (false, 6));
    std::fs::remove_file(step.join("attacks.wasm")).unwrap();
    assert_eq!(build(&[]), (false, 7));
    zig("2");
    assert_eq!(build(&[]), (true, 8));
    let text = stdout(&gpux_in(&step, &["build"]).env("PATH", &path).run());
    assert!(text.contains("nothing has changed"), "{text}");
}

/// Reads the lines of a running program's pipe until one has this text.
#[cfg(unix)]
fn read_until(lines: &mut impl Iterator<Item = std::io::Result<String>>, text: &str) {
    let mut seen = Vec::new();
    for line in lines {
        seen.push(line.unwrap());
        if seen.last().unwrap().contains(text) {
            return;
        }
    }
    panic!("no `{text}` in {seen:#?}");
}

#[cfg(unix)]
#[test]
fn watches_sources_and_cases() {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    stdout(&run(folder.path(), &["new", "pipeline", "photos"]));
    let at = |path: &str| folder.path().join("photos").join(path);
    let mut gpux = gpux_in(folder.path(), &["test", "photos", "--watch"]);
    let mut gpux = gpux.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).start();
    let mut lines = std::io::BufReader::new(gpux.stdout.take().unwrap()).lines();
    let mut notes = std::io::BufReader::new(gpux.stderr.take().unwrap()).lines();
    read_until(&mut lines, "2 passed");
    read_until(&mut notes, "waiting for a change");
    let source = read(at("gpux.yml"));
    std::fs::write(at("gpux.yml"), source.replace("[32, 32]", "[16, 16]")).unwrap();
    read_until(&mut notes, "gpux.yml has changed");
    read_until(&mut lines, "1 passed, 1 failed");
    // A mistake is shown, and waited on.
    std::fs::write(at("gpux.yml"), "name: [").unwrap();
    read_until(&mut notes, "gpux.yml:1");
    std::fs::write(at("gpux.yml"), source).unwrap();
    read_until(&mut lines, "2 passed");
    std::fs::remove_dir_all(at("tests/not-an-image")).unwrap();
    read_until(&mut lines, "1 passed");
    let interrupted = Command::new("kill").args(["-INT", &gpux.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert!(!gpux.wait().unwrap().success());
}

/// A build that writes into its folder, and is held up until there is a file `go`.
#[cfg(unix)]
#[test]
fn watch_tells_edits_from_build_outputs() {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let write = |path: &str, text: &str| std::fs::write(at(path), text).unwrap();
    std::fs::create_dir_all(at("step/tests/case")).unwrap();
    std::fs::copy(root().join("guest-examples/hostile/hostile.wasm"), at("step/module.wasm")).unwrap();
    let commands = "echo once >> ../count; echo once >> a.o; while [ ! -e ../go ]; do sleep 0.1; done";
    write("step/step.yml", &format!("name: x\nbuild: ['{commands}; cp module.wasm \"$GPUX_OUTPUT\"']\n"));
    write("step/tests/case/case.yml", "inputs: { in: x }\n");
    write("go", "");
    let mut gpux = gpux_in(folder.path(), &["test", "step", "--watch"]);
    let mut gpux = gpux.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).start();
    let lines = std::io::BufReader::new(gpux.stderr.take().unwrap()).lines();
    let told = ["waiting for", "has changed"];
    let mut notes = lines.map(Result::unwrap).filter(|line| told.iter().any(|part| line.contains(part)));
    let waiting = "waiting for a change; ctrl-C ends this";
    assert_eq!(notes.next().unwrap(), waiting);
    // Noticed while it waits, and while a build runs.
    std::fs::remove_file(at("go")).unwrap();
    write("step/source", "1");
    assert_eq!(notes.next().unwrap(), "step/source has changed");
    while read(at("count")).lines().count() < 2 {
        assert_eq!(gpux.try_wait().unwrap(), None, "it ended early");
        std::thread::yield_now();
    }
    write("step/source", "12");
    write("go", "");
    assert_eq!(notes.next().unwrap(), "step/source has changed");
    assert_eq!(notes.next().unwrap(), waiting);
    assert_eq!(read(at("count")).lines().count(), 3);
    gpux.kill().unwrap();
    gpux.wait().unwrap();
}

#[test]
fn watch_needs_an_existing_folder() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["test", "nosuch", "--watch"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("nosuch") && !stderr(&output).contains("waiting"), "{}", stderr(&output));
}

/// On a terminal a line says what goes on; in a pipe, and with `--json`, none.
#[cfg(target_os = "linux")]
#[test]
fn shows_progress_on_a_terminal_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("guest-examples/hostile/hostile.wasm"), folder.path().join("module.wasm")).unwrap();
    let build = "build: ['sleep 2; cp module.wasm \"$GPUX_OUTPUT\"']\n";
    std::fs::write(folder.path().join("step.yml"), format!("name: attacks\n{build}")).unwrap();
    let on_terminal = |arguments: &str, kind: &str| {
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_gpux"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(folder.path()).stdin(std::process::Stdio::null());
        script.env("GPUX_CACHE_DIR", folder.path().join("cache")).env("TERM", kind);
        let output = script.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).ok()
    };
    let Some(shown) = on_terminal("build .", "xterm") else {
        eprintln!("skipped: there is no `script`, which brings a terminal");
        return;
    };
    assert!(shown.contains("building attacks … 1 s "), "{shown:?}");
    let (_, result) = shown.rsplit_once("\x1b[2K").unwrap();
    assert!(result.starts_with("attacks: "), "{shown:?}");
    for (arguments, kind) in
        [("build . --json --force", "xterm"), ("build . --force", "dumb"), ("cache list --json", "xterm")]
    {
        let shown = on_terminal(arguments, kind).unwrap();
        assert!(!shown.contains(['\x1b', '…']), "{shown:?}");
    }
    let piped = run(folder.path(), &["build", "--force"]);
    assert_eq!((stderr(&piped).as_str(), piped.status.code()), ("", Some(0)));
}

/// A `python3` that makes environments, and a tool in them: installed once, in the cache, however many builds there are.
#[cfg(unix)]
#[test]
fn installs_missing_tools_in_its_own_environment() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir(at("bin")).unwrap();
    let module = root().join("guest-examples/hostile/hostile.wasm");
    // `-m venv FOLDER` makes a Python whose `-m pip install ziglang` makes a `python-zig`.
    let zig = format!("[ $1 = version ] && echo 0 && exit\nfor last; do :; done\ncp {} $last", module.display());
    let pip = format!(
        "echo \"$@\" >> {count}\nsleep 1\nprintf '#!/bin/sh\\n%s\\n' '{zig}' > ${{0%/*}}/python-zig\nchmod +x ${{0%/*}}/python-zig",
        count = at("count").display()
    );
    std::fs::write(at("pip"), format!("#!/bin/sh\n[ $1 = -m ] || exit 1\n{pip}\n")).unwrap();
    let python = format!(
        "#!/bin/sh\n[ $2 = venv ] && mkdir -p $3/bin && cp {} $3/bin/python && chmod +x $3/bin/python && exit\n\
         case \"$2\" in *version_info*) exit 0;; esac\nexit 1\n",
        at("pip").display()
    );
    std::fs::write(at("bin/python3"), python).unwrap();
    std::fs::set_permissions(at("bin/python3"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", at("bin").display());
    let build = |step: &str| {
        let mut command = gpux_in(folder.path(), &["build", step, "--json"]);
        command.env("PATH", &path).env("GPUX_CACHE_DIR", at("cache")).env("VIRTUAL_ENV", "/mine");
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).start()
    };
    for step in ["one", "two"] {
        stdout(&run(folder.path(), &["new", "step", "--lang", "c", step]));
    }
    let builds = [build("one"), build("two")];
    for build in builds {
        let output = build.wait_with_output().unwrap();
        assert_eq!(json(&output)["fresh"], false, "{}", stderr(&output));
    }
    assert_eq!(read(at("count")), "-m pip install --quiet --disable-pip-version-check --no-input ziglang==0.17.0\n");
    assert_eq!(json(&build("one").wait_with_output().unwrap())["fresh"], true);
    // An environment that does not work any more is made again, once.
    let tool = at("cache/tools/ziglang-0.17.0/bin/python-zig");
    std::fs::write(&tool, "#!/no/such/python\n").unwrap();
    let builds = [build("one"), build("two")];
    for build in builds {
        let output = build.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert!(read(&tool).starts_with("#!/bin/sh"));
    assert_eq!(read(at("count")).lines().count(), 2);
    // A broken installation is not taken for one, and the user is told what to do.
    std::fs::remove_dir_all(at("cache/tools")).unwrap();
    std::fs::write(at("pip"), "#!/bin/sh\necho no network >&2; exit 1\n").unwrap();
    let mut failing = gpux_in(folder.path(), &["build", "one", "--force"]);
    let failed = failing.env("PATH", &path).env("GPUX_CACHE_DIR", at("cache")).run();
    let told = stderr(&failed);
    assert_eq!(failed.status.code(), Some(3), "{told}");
    assert!(told.contains("installing ziglang==0.17.0 with python3 for gpux alone"), "{told}");
    assert!(told.contains("no network\nis there a network?"), "{told}");
    assert!(told.contains("https://ziglang.org"), "{told}");
    assert!(!at("cache/tools/ziglang-0.17.0/gpux-complete").exists());
}

/// The whole way of a Rust author. Slow the first time: the SDK is compiled.
#[test]
fn new_rust_step_builds_and_passes_its_tests() {
    let target =
        Command::new("rustc").args(["--target", "wasm32-unknown-unknown", "--print", "target-libdir"]).output();
    let there = target.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "run `rustup target add wasm32-unknown-unknown`");
        eprintln!("skipped: run `rustup target add wasm32-unknown-unknown`");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    stdout(&run(folder.path(), &["new", "step", "--lang", "rust", "my-step"]));
    let step = folder.path().join("my-step");
    let shared = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rust-step");
    let cargo = |arguments: &[&str]| gpux_in(&step, arguments).env("CARGO_TARGET_DIR", &shared).run();
    let tested = stdout(&cargo(&["test"]));
    assert!(tested.ends_with("3 passed\n"), "{tested}");
    let told = stdout(&run(&step, &["inspect", "my-step.wasm"]));
    assert!(told.contains("what every number is multiplied by"), "{told}");
    assert!(told.contains("It cannot: read files"), "{told}");

    // Its unit tests need no WebAssembly.
    let mut native = child::command("cargo");
    native.args(["test", "--quiet"]).current_dir(&step).env("CARGO_TARGET_DIR", &shared);
    let native = native.run();
    assert!(native.status.success(), "{}", stderr(&native));
    assert!(String::from_utf8_lossy(&native.stdout).contains("2 passed"), "{native:?}");

    // A mistake in the source is shown as the compiler says it.
    let source = read(step.join("src/lib.rs"));
    std::fs::write(step.join("src/lib.rs"), source.replace("number * self", "numbr * self")).unwrap();
    let failed = cargo(&["build"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("cannot find value `numbr`"), "{}", stderr(&failed));

    // A step that does something else fails its cases.
    std::fs::write(step.join("src/lib.rs"), source.replace("factor: 2.0", "factor: 3.0")).unwrap();
    let failed = cargo(&["test"]);
    assert_eq!(failed.status.code(), Some(1));
    let told = String::from_utf8(failed.stdout).unwrap();
    assert!(told.contains("4 of 4 elements differ; the first at [0, 0]: expected 2.0, but it is 3.0"), "{told}");
}
