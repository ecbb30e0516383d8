//! Warm-up: `serving.warmup`, whose requests must succeed before a pipeline is ready; golden cases and made-up requests.

use std::path::Path;

use super::{Server, seven};
use crate::digits::{gpux, root};

/// A folder with a gpux.yml and files.
fn folder(warmup: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "name: gray\nversion: 1.0.0\ninputs:\n  photo: image\n  size: {{ type: json, default: 1 }}\n\
         pipeline:\n  - decode-image: {{ in: photo, channels: gray }}\nserving:\n  warmup:\n{warmup}\n"
    );
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    std::fs::write(folder.path().join("seven.png"), seven()).unwrap();
    std::fs::copy(root().join("gpux.yml"), folder.path().join("no-picture.png")).unwrap();
    folder
}

/// The error of a `gpux serve` that ends during its start.
fn refused(folder: &Path) -> String {
    let output = gpux(&["serve", "--host", "127.0.0.1", "--port", "0", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn runs_warm_up_requests_first() {
    let folder = folder("    - photo: { file: seven.png }\n    - { photo: { file: ./seven.png }, size: { a: 1 } }");
    let server = Server::start(&[folder.path().to_str().unwrap()]);
    assert_eq!(server.get("/health/ready").status, 200);
}

#[test]
fn rejects_pipelines_whose_warm_up_fails() {
    let folder = folder("    - photo: { file: seven.png }\n    - photo: { file: no-picture.png }");
    let said = refused(folder.path());
    assert!(said.contains("request 2 of `serving.warmup`: step 1 (decode-image): not an image"), "{said}");
}

#[test]
fn rejects_mistyped_warm_up_requests_on_load() {
    for (warmup, message) in [
        ("    - photo: { file: none.png }", "input `photo`: no file at `none.png`"),
        ("    - photo: { file: ../x.png }", "leads out of the pipeline's folder"),
        ("    - photo: 7", "input `photo`: takes bytes"),
        ("    - size: 7", "the input `photo` is missing"),
        ("    - { photo: { file: seven.png }, foto: 1 }", "the pipeline has no input `foto`"),
    ] {
        let folder = folder(warmup);
        let said = refused(folder.path());
        assert!(said.contains(message) && said.contains("gpux.yml:10:"), "{warmup}: {said}");
    }
    let said = refused(folder("    - 7").path());
    assert!(said.contains("warmup"), "{said}");
}

#[test]
fn warns_of_pipelines_that_cannot_be_warmed_up() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, inputs: &str, step: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let text = format!("name: {name}\nversion: 1.0.0\ninputs: {{ {inputs} }}\npipeline: [{{ {step} }}]\n");
        std::fs::write(path.join("gpux.yml"), text).unwrap();
        path
    };
    let sound = write("sound", "x: audio", "decode-audio: { in: x }");
    let cold = write("cold", "photo: image, size: json", "decode-image: { in: photo }");
    let with_case = write("with-case", "photo: image, size: json", "decode-image: { in: photo }");
    let case = with_case.join("tests/seven");
    std::fs::create_dir_all(&case).unwrap();
    std::fs::write(case.join("seven.png"), seven()).unwrap();
    std::fs::write(case.join("case.yml"), "inputs: { photo: { file: seven.png }, size: 1 }\n").unwrap();
    let pipelines = [&sound, &cold, &with_case].map(|path| path.to_str().unwrap());
    for isolation in if cfg!(target_os = "linux") { &["none", "pipeline"][..] } else { &["none"] } {
        let server = Server::begin(&[&pipelines[..], &["--require-all", "--isolation", isolation]].concat());
        let lines = server.lines_before("ready on ");
        let warnings: Vec<_> = lines.iter().filter(|line| line.contains("warm")).collect();
        let [warning] = warnings.as_slice() else { panic!("{isolation}: {lines:?}") };
        assert!(warning.contains("cold is not warm") && warning.contains("`size` (JSON)"), "{warning}");
        assert!(warning.starts_with("warning: ") && warning.contains("`serving.warmup`"), "{warning}");
    }
}
