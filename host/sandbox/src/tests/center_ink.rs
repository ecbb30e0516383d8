//! The component of the first example: loaded, inspected, run.

use super::*;
use gpux_core::{Color, ElementType, Layout, Metadata};

fn bytes() -> Vec<u8> {
    guest("rust/center-ink.wasm")
}

fn step(options: serde_json::Value) -> Result<ComponentStep, SandboxError> {
    SANDBOX.load(&bytes(), ComponentConfig { options, ..ComponentConfig::default() }, &Arc::default())
}

/// Paper with a dark bar near a corner.
fn photo(width: usize, height: usize, channels: usize) -> Tensor {
    let mut pixels = vec![200_u8; width * height * channels];
    for y in height / 8..height / 2 {
        for x in width / 8..width / 8 + width / 10 {
            for c in 0..channels {
                pixels[(y * width + x) * channels + c] = 30;
            }
        }
    }
    let metadata = Metadata { layout: Some(Layout::Hwc), color: Some(Color::Gray), ..Metadata::default() };
    Tensor::new([height, width, channels], pixels).unwrap().with_metadata(metadata)
}

#[test]
fn it_centres_the_ink() {
    let step = step(json!({"margin": 0.15})).unwrap();
    let mut context = Context::default();
    let output = run_in(&step, photo(160, 160, 1), &mut context).unwrap();
    let output = output.as_tensor().unwrap();
    let [side, width, 1] = *output.shape() else { panic!("{:?}", output.shape()) };
    assert_eq!((side, output.element()), (width, ElementType::Uint8));
    assert_eq!((output.metadata.layout, output.metadata.color), (Some(Layout::Hwc), Some(Color::Gray)));
    let pixels = output.as_slice::<u8>().unwrap();
    let at = |x: usize, y: usize| pixels[y * side + x];
    assert!(at(side / 2, side / 2) > 200, "ink is bright and in the middle");
    assert!(at(0, 0) < 50, "paper is dark");
    assert!(context.memory_peak.unwrap() >= 64 << 10);
    assert!(context.log.is_empty());
}

#[test]
fn options_are_checked_against_its_own_schema() {
    assert!(step(serde_json::Value::Null).is_ok());
    let error = step(json!({"margin": 2, "colour": "red"})).err().unwrap();
    let SandboxError::Options { faults, .. } = &error else { panic!("{error}") };
    assert_eq!(faults.len(), 2);
    let text = error.to_string();
    assert!(text.contains("(at `margin`)") && text.contains("colour"), "{text}");
}

#[test]
fn reports_invalid_input_to_the_request() {
    let step = step(json!({})).unwrap();
    let error = run(&step, photo(32, 32, 3)).unwrap_err();
    assert!(
        matches!(&error, StepFailure::InvalidInput(why) if why.contains("`decode-image: { channels: gray }`")),
        "{error}"
    );
    let blank = Tensor::new([16, 16, 1], vec![7_u8; 256]).unwrap();
    assert!(matches!(run(&step, blank), Err(StepFailure::InvalidInput(why)) if why.contains("no ink")));
    assert!(matches!(run(&step, "text"), Err(StepFailure::InvalidInput(_))));
}

#[test]
fn inspect_reports_kind_and_missing_capabilities() {
    let info = SANDBOX.inspect(&bytes(), Some(&json!({}))).unwrap();
    assert_eq!(info.problem, None);
    assert_eq!(info.digest.len(), 64);
    let port = &info.signature.unwrap().inputs[0];
    assert_eq!((port.name.as_str(), port.kind.as_str()), ("image", "tensor uint8[?, ?, 1] HWC"));
    let info = SANDBOX.inspect(&bytes(), None).unwrap();
    assert_eq!(info.options_schema.as_ref().unwrap()["properties"]["margin"]["default"], json!(0.15));
    assert_eq!(
        info.capabilities(),
        "It can: compute, write log lines. It cannot: read files, use the network, read the clock, draw random numbers, \
         see the environment, run models."
    );
    // `log`, for the message of a panic; `builtins` and `models` only where a step uses them.
    assert!(serde_json::to_value(&info).unwrap()["imports"].as_array().unwrap().len() == 2, "{:?}", info.imports);
}

#[test]
fn a_cached_component_compiles_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(CacheDir::at(folder.path().join("cache")));
    let steps = folder.path().join("cache/steps");
    let code = || {
        let entries = std::fs::read_dir(&steps).unwrap().map(|entry| entry.unwrap().path());
        let codes: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ending| ending == "code")).collect();
        assert_eq!(codes.len(), 1);
        (std::fs::read(&codes[0]).unwrap(), codes[0].clone())
    };
    let mut made = None;
    // In the last round, other code lies there: it is not run, but compiled again.
    for round in 0..3 {
        if round == 2 {
            let (mut bytes, path) = code();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
        let sandbox =
            Sandbox::new(SandboxOptions { cache: cache.clone(), slots: 4, ..SandboxOptions::default() }).unwrap();
        let step = sandbox.load(&bytes(), ComponentConfig::default(), &Arc::default()).unwrap();
        assert!(run(&step, photo(32, 32, 1)).is_ok());
        let there = code().0;
        assert!(*made.get_or_insert_with(|| there.clone()) == there);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(steps.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}
