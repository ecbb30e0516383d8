#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::testing::{embedded, model, path};
use gpux_core::{CacheDir, Precision};

fn request(name: &str) -> String {
    let model = path(&format!("{name}.onnx"));
    // No bound of memory: it would hold for the whole process of the tests.
    let request = ValidationRequest {
        plugins: Vec::new(),
        model,
        library: None,
        providers: ProviderChoice::Auto,
        options: ProviderOptions::default(),
        precision: Precision::Exact,
        memory: None,
        measure: false,
        shapes: Vec::new(),
        batch: BatchOptions::default(),
        instances: None,
        threads: None,
        timeout: TIMEOUT,
    };
    serde_json::to_string(&request).unwrap()
}

#[test]
fn converts_verdicts() {
    // Not by way of `validation_child`, which bounds this process for good.
    let verdict = |request: &str| verdict(&serde_json::from_str(request).unwrap());
    assert!(matches!(verdict(&request("conv")), Verdict::Sound { .. }));
    // Zeros are a fine index; a failing run would be no fault of the model.
    assert!(matches!(verdict(&request("gather")), Verdict::Sound { .. }));
    assert!(matches!(verdict(&request("det")), Verdict::NeedsOnnxRuntime { feature } if feature == "operator `Det`"));
    assert!(matches!(verdict(&request("unpadded")), Verdict::Sound { .. }));
    assert!(matches!(verdict(&request("channels")), Verdict::Sound { .. }));
    // Its branches agree for no shape, but that is not known without trying each.
    assert!(matches!(verdict(&request("ranks")), Verdict::Sound { .. }));
    let counted = verdict(&request("counted"));
    let Verdict::BeyondEmbedded { reason } = &counted else { panic!("{counted:?}") };
    assert!(reason.contains("operator `Conv` of node `sum`: only a run tells the size of its input"), "{reason}");
    assert!(matches!(verdict(&request("external-outside")), Verdict::Refused { .. }));
    assert!(matches!(verdict(&request("fill")), Verdict::NeedsOnnxRuntime { feature } if feature.contains("`filled`")));
    assert!(matches!(verdict(&request("dangling")), Verdict::Invalid { reason } if reason.contains("`missing`")));
    assert!(validation_child("{").contains("EOF while parsing"));
}

#[test]
fn detects_out_of_memory() {
    assert!(!ran_out_of_memory("indices element out of data bounds", u64::MAX));
    assert!(ran_out_of_memory("Failed to allocate memory for requested buffer of size 7", u64::MAX));
    #[cfg(target_os = "linux")]
    {
        let peak = peak_memory().unwrap();
        assert!(peak > 1 << 20);
        assert!(ran_out_of_memory("indices element out of data bounds", peak));
    }
}

#[cfg(unix)]
#[test]
fn reports_crashes_and_caches_success() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path().join("cache"));
    let program = |name: &str, script: &str| {
        let program = folder.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        program
    };
    let file = model("conv");
    let ensure = |program: &Path| {
        let engine = embedded();
        let (program, cache) = (Some(program), Some(&cache));
        let trial = Trial { program, cache, file: &file, engine: &*engine, library: None, plugins: &[] };
        let report = ensure_validated(&trial, &ModelOptions::default());
        report.map(|report| report.misdeclared).map_err(|error| error.to_string())
    };
    let crash = ensure(&program("crash", "echo stack overflow >&2; kill -ABRT $$")).unwrap_err();
    assert!(crash.contains("ended by signal 6 (aborted): stack overflow; the model may be damaged"), "{crash}");
    let refused = ensure(&program("refuse", r#"echo '{"Refused":{"reason":"bad node"}}'"#)).unwrap_err();
    assert!(refused.contains("embedded engine (tract 0.23) cannot load") && refused.ends_with("bad node"), "{refused}");
    assert!(
        ensure(Path::new("/no/such/gpux")).unwrap_err().contains("cannot be tried before it is loaded: no process")
    );
    let fine = program("fine", r#"test "$1" = __vet-model && echo '{"Sound":{"misdeclared":["one"],"batch":null}}'"#);
    assert_eq!(ensure(&fine).unwrap(), ["one"]);
    // Remembered: the crashing child is not asked again.
    assert_eq!(ensure(&folder.path().join("crash")).unwrap(), ["one"]);
}
