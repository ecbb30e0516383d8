//! A GPU's execution provider, for real: WebGPU over a Vulkan driver that computes on the processor.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value as Json, json};

use crate::child::{StartWithLimit as _, program};
use crate::digits::{root, stdout};
use crate::test_server::Server;

/// What `gpux engine install webgpu --whole` puts into a cache in `target/`, and the folder of the driver.
/// Without them a test says that it is skipped; with `GPUX_REQUIRE_ORT=1` (as in CI) it fails.
fn library() -> Option<(PathBuf, PathBuf)> {
    let engines = std::fs::read_dir(root().join("target/webgpu/engines"));
    let mut found = engines.into_iter().flatten().map(|entry| entry.unwrap().path());
    let folder = found.find(|path| path.to_string_lossy().ends_with("-webgpu"));
    let vulkan = root().join("target/vulkan");
    if let Some(folder) = folder.filter(|_| vulkan.join("libvulkan.so.1").is_file()) {
        return Some((folder, vulkan));
    }
    let told = "run `GPUX_CACHE_DIR=target/webgpu gpux engine install webgpu --whole` and `tests/software-vulkan.sh`";
    let required = std::env::var_os("GPUX_REQUIRE_ORT").is_some_and(|value| value == "1");
    assert!(!required || !cfg!(all(target_arch = "x86_64", target_os = "linux")), "{told}");
    eprintln!("skipped: {told}");
    None
}

/// `gpux` with a GPU, in this folder, which is its cache too.
fn command(folder: &Path, (library, vulkan): &(PathBuf, PathBuf), arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(arguments).arg("--engine-library").arg(library).current_dir(folder);
    command.env("GPUX_CACHE_DIR", folder.join("cache")).env("NO_COLOR", "1");
    let driver = vulkan.join("vk_swiftshader_icd.json");
    command.env("LD_LIBRARY_PATH", vulkan).env("VK_DRIVER_FILES", &driver).env("VK_ICD_FILENAMES", driver);
    command
}

/// Models that pass numbers on: the second output is of whole numbers, which WebGPU leaves to the CPU.
const CHAIN: &str = "
models:
  flip: { source: flip-float32.onnx }
  center: { source: center.onnx }
  two: { source: two.onnx }
pipeline:
  - model: { name: flip, out: [flipped] }
  - model: { name: center, in: [flipped], out: [centered] }
  - model: { name: two, in: [centered, flipped] }
outputs:
  sum: { type: float32 }
  best: { type: int64 }
";

/// Whole numbers that stay on the device too.
const WHOLE: &str = "
models:
  flip: { source: flip-int64.onnx }
pipeline:
  - model: { name: flip, out: [flipped] }
  - model: { name: flip, in: [flipped] }
";

fn pipeline(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["flip-float32", "flip-int64", "center", "two"] {
        let name = format!("{name}.onnx");
        std::fs::copy(root().join("tests/models").join(&name), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("gpux.yml"), format!("name: chain\nversion: 1.0.0\n{text}")).unwrap();
    folder
}

/// Four rows of three.
fn rows(start: u16) -> Json {
    let number = |row: u16, column: u16| f64::from((start + row * 7 + column * 5) % 23) / 4.0 - 2.0;
    json!((0..4).map(|row| (0..3).map(|column| number(row, column)).collect()).collect::<Vec<Vec<f64>>>())
}

fn run(folder: &Path, library: &(PathBuf, PathBuf), provider: &str, input: &Json, more: &[&str]) -> Output {
    let input = json!({ "x": input }).to_string();
    let asked = ["run", ".", "--strict", "--provider", provider, "--json", "--input", &input];
    command(folder, library, &[&asked[..], more].concat()).run()
}

fn given(output: &Output) -> Json {
    let shown = stdout(output);
    serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn keeps_tensors_on_the_device_and_matches_the_cpu() {
    let Some(library) = library() else { return };
    let floats = rows(0);
    let whole = json!([[1, 2, 3], [-4, 5, 6], [7, 8, 9_007_199_254_740_993_i64]]);
    for (text, input) in [(CHAIN, &floats), (WHOLE, &whole)] {
        let folder = pipeline(text);
        let on_cpu = given(&run(folder.path(), &library, "cpu", input, &[]));
        assert_eq!(given(&run(folder.path(), &library, "webgpu", input, &[])), on_cpu);
        // An observer reads the value between the models.
        let watched = given(&run(folder.path(), &library, "webgpu", input, &["--trace"]));
        assert_eq!(watched["outputs"], on_cpu);
        assert!(watched["trace"]["engine"].as_str().unwrap().ends_with("on WebGpuExecutionProvider"), "{watched}");

        let asked = ["inspect", ".", "--strict", "--provider", "webgpu", "--json"];
        let inspected = given(&command(folder.path(), &library, &asked).run());
        let steps = inspected["steps"].as_array().unwrap();
        let (last, before) = steps.split_last().unwrap();
        assert!(before.iter().all(|step| step["gives"][0]["stays_on"] == "WebGPU_Buffer 0"), "{inspected}");
        assert_eq!(last["gives"][0]["stays_on"], Json::Null);
    }
    let folder = pipeline(CHAIN);
    let shown = command(folder.path(), &library, &["inspect", ".", "--provider", "webgpu"]).run();
    assert!(stdout(&shown).contains("(stays on WebGPU_Buffer 0)"), "{shown:?}");
}

#[test]
fn rejects_mismatched_tensors_on_the_device() {
    let Some(library) = library() else { return };
    let folder = pipeline(CHAIN);
    let refused = run(folder.path(), &library, "webgpu", &json!([[1, 2, 3], [4, 5, 6]]), &[]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), run(folder.path(), &library, "cpu", &json!([[1, 2, 3]]), &[]).status.code());
    assert!(told.contains("step 2 (model center)") && told.contains("input `x`: axis 1 is 2, not 4"), "{told}");
}

/// ONNX Runtime's WebGPU crashes where two threads are at it, whether at one session or at two.
#[test]
fn concurrent_requests_share_the_gpu_while_models_reload() {
    let Some(library) = library() else { return };
    let folder = pipeline(CHAIN);
    let expected: Vec<_> = (0..8).map(|at| given(&run(folder.path(), &library, "cpu", &rows(at), &[]))).collect();
    let asked = ["serve", ".", "--reload", "--host", "127.0.0.1", "--port", "0", "--strict", "--provider", "webgpu"];
    let mut serve = command(folder.path(), &library, &[&asked[..], &["--workers", "4"]].concat());
    serve.stdin(Stdio::null()).stdout(Stdio::null());
    let server = Server::of(serve);
    std::thread::scope(|scope| {
        for (at, expected) in expected.iter().enumerate() {
            let (server, request) = (&server, json!({ "x": rows(at as u16) }));
            scope.spawn(move || {
                for _ in 0..25 {
                    let answer = server.json("/predict", &request);
                    assert_eq!(
                        (answer.status, serde_json::from_str(answer.text()).unwrap()),
                        (200, expected.clone()),
                        "{answer:?}"
                    );
                }
            });
        }
        // Each new plan has sessions of its own, and the old ones go.
        for version in 1..4 {
            let text = format!("name: chain\nversion: 1.0.{version}\n{CHAIN}");
            let draft = folder.path().join("draft");
            std::fs::write(&draft, text).unwrap();
            std::fs::rename(&draft, folder.path().join("gpux.yml")).unwrap();
            server.line("chain was loaded again");
        }
    });
    assert_eq!(server.get("/health").status, 200);
}
