//! The sandbox with real components: a working one and a hostile one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod center_ink;
mod contract;
mod fuzz;
mod hostile;
mod instances;
mod native;
mod prepared;
mod slots;
mod wasi;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::component::CompiledComponent;
use super::core_module::{componentize, exports_step};
use super::linked_component::LinkedComponent;
use super::state::Capabilities;
use super::{ComponentConfig, ComponentStep, Grants, Limits, Sandbox, SandboxError, SandboxOptions};
use gpux_core::CacheDir;
use gpux_core::{
    BuildError, Builtin, Context, Group, Kind, Mismatch, OptionOrigin, Port, Registry, Signature, Step, StepFailure,
    Tensor, Value,
};

/// One engine for all tests, as in a process.
static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    let built = std::env::current_exe().unwrap();
    let cache = Some(CacheDir::at(built.with_file_name("gpux-test-cache")));
    // A loaded machine is no reason to fail.
    let ceiling = Limits { time: std::time::Duration::from_mins(1), calls: usize::MAX, ..Limits::default() };
    Sandbox::new(SandboxOptions { cache, ceiling, ..SandboxOptions::default() }).unwrap()
});

pub(crate) fn guest(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../guest-examples").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

static HOSTILE: LazyLock<Vec<u8>> = LazyLock::new(|| guest("hostile/hostile.wasm"));

fn load(attack: &str, limits: Limits) -> Result<ComponentStep, SandboxError> {
    let registry = Arc::new(Registry::new([COPY]));
    SANDBOX.load(
        &HOSTILE,
        ComponentConfig { options: json!({"attack": attack}), limits, ..ComponentConfig::default() },
        &registry,
    )
}

/// Runs one request with one value.
fn run(step: &ComponentStep, input: impl Into<Value>) -> Result<Value, StepFailure> {
    run_in(step, input, &mut Context::default())
}

fn run_in(step: &ComponentStep, input: impl Into<Value>, context: &mut Context) -> Result<Value, StepFailure> {
    step.run(vec![Some(input.into())], context).map(|mut outputs| outputs.remove(0))
}

/// A real native step, as a component would find it: repeats a tensor's bytes.
const COPY: Builtin = Builtin {
    name: "copy",
    summary: "repeats a tensor's bytes",
    group: Group::Tensor,
    follows: "",
    example: "copy: { times: 2 }",
    schema: || schemars::json_schema!({"type": "object", "properties": {"times": {"type": "integer", "minimum": 1}}}),
    build: |options, site| {
        if !matches!(site, OptionOrigin::Component) {
            return Err(BuildError::option("times", "only for components"));
        }
        let times = options.get("times").and_then(serde_json::Value::as_u64).unwrap_or(1) as usize;
        let signature = Signature::unary(Port::new("value", Kind::Any), Port::new("value", Kind::Any));
        Ok(Box::new(Copy { times, signature }))
    },
};

struct Copy {
    times: usize,
    signature: Signature,
}

impl Step for Copy {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let Some(Some(Kind::Tensor(tensor))) = inputs.first() else { return Ok(vec![Kind::Any]) };
        let mut tensor = tensor.clone();
        if let Some([gpux_core::Dim::Fixed(size)]) = tensor.shape.as_deref_mut() {
            *size *= self.times;
        }
        Ok(vec![Kind::Tensor(tensor)])
    }

    fn run(&self, mut inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let Some(Some(Value::Tensor(tensor))) = inputs.pop() else {
            return Err(StepFailure::InvalidInput("it takes a tensor".to_owned()));
        };
        let bytes = tensor.as_slice::<u8>().unwrap().repeat(self.times);
        Ok(vec![Tensor::new([bytes.len()], bytes)?.into()])
    }
}

fn granted(models: &[&str]) -> Grants {
    Grants { models: models.iter().map(|name| (*name).to_owned()).collect(), ..Grants::default() }
}
