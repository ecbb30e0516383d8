//! Shared test helpers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use super::{Embedded, Engine, LibrarySearch, ModelFile, ModelLoadError, ModelOptions, ModelStep, OnnxRuntime};
use gpux_core::{Tensor, TensorElement};

/// A file of `tests/models`.
pub(super) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/models").join(name)
}

pub(super) fn model(name: &str) -> Arc<ModelFile> {
    Arc::new(ModelFile::open(path(&format!("{name}.onnx"))).unwrap())
}

pub(super) fn embedded() -> Arc<dyn Engine> {
    Arc::new(Embedded)
}

pub(super) fn step(engine: Arc<dyn Engine>, name: &str) -> Result<ModelStep, ModelLoadError> {
    ModelStep::load(engine, model(name), &ModelOptions::default())
}

/// The machine's ONNX Runtime. All tests of this process share it, as a process must. Without
/// one a test says that it is skipped; with `GPUX_REQUIRE_ORT=1` (as in CI) it fails instead.
pub(super) fn onnxruntime() -> Option<Arc<dyn Engine>> {
    let found = LibrarySearch::from_environment(None).choose().unwrap().found;
    if let Some(found) = found {
        return Some(Arc::new(OnnxRuntime::load(&found).unwrap()));
    }
    assert!(
        std::env::var_os("GPUX_REQUIRE_ORT").is_none_or(|value| value != "1"),
        "GPUX_REQUIRE_ORT is set, but there is no ONNX Runtime library; run `gpux engine install`"
    );
    eprintln!("skipped: no ONNX Runtime library; run `gpux engine install`");
    None
}

/// Every engine of this machine.
pub(super) fn engines() -> Vec<Arc<dyn Engine>> {
    [Some(embedded()), onnxruntime()].into_iter().flatten().collect()
}

pub(super) fn tensor<T: TensorElement>(shape: &[usize], data: Vec<T>) -> Tensor {
    Tensor::new(shape, data).unwrap()
}
