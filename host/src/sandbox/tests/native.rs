//! Native steps, called from inside.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_builtin_runs_on_lent_tensors() {
    let step = load("builtin", Limits::default()).unwrap();
    for _ in 0..2 {
        let output = run(&step, "x").unwrap();
        assert_eq!(output.as_tensor().unwrap().as_slice::<u8>().unwrap(), [1, 2, 3, 1, 2, 3]);
    }
}

#[test]
fn a_builtins_options_are_checked() {
    let step = load("builtin-wrong-options", Limits::default()).unwrap();
    let Err(StepFailure::InvalidInput(why)) = run(&step, "x") else { panic!() };
    assert!(why.starts_with("the options of `copy` do not fit"), "{why}");
}

#[test]
fn a_builtin_whose_result_cannot_fit_is_not_run() {
    let step = load("builtin-too-large", Limits::default()).unwrap();
    let Err(StepFailure::Limit(limit)) = run(&step, "x") else { panic!() };
    assert_eq!((limit.limit.as_ref(), limit.value.as_str()), ("memory", "64 MiB"));
}

#[test]
fn native_calls_count_against_the_deadline() {
    let limits = Limits { time: Duration::from_millis(30), ..Limits::default() };
    let step = load("slow-builtin", limits).unwrap();
    let Err(StepFailure::Limit(limit)) = run(&step, "x") else { panic!() };
    assert_eq!((limit.limit.as_ref(), limit.value.as_str()), ("time", "30ms"));
}

/// A real native step in the place of a model: gives its text back once `time` is over.
struct Slow {
    time: Duration,
    signature: Signature,
}

impl Step for Slow {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, mut inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let end = Instant::now() + self.time;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        Ok(inputs.pop().flatten().into_iter().collect())
    }
}

fn driver(attack: &str, grants: Grants) -> Result<ComponentStep, SandboxError> {
    let signature = Signature::unary(Port::new("text", Kind::Text), Port::new("text", Kind::Text));
    let mut registry = Registry::new([COPY]);
    registry.add_model("rec", Arc::new(Slow { time: Duration::from_millis(60), signature }));
    let limits = Limits { time: Duration::from_millis(30), ..Limits::default() };
    let request =
        LoadRequest { options: json!({"attack": attack}), limits, grants, registry: Arc::new(registry), reuse: false };
    SANDBOX.load(&guest("hostile/drive-model.wasm"), &request)
}

#[test]
fn models_take_time_that_is_not_the_steps() {
    let step = driver("model", granted(&["rec"])).unwrap();
    assert_eq!(run(&step, "x"), Ok("seen".into()));
    let mut context = Context { deadline: Some(Instant::now() + Duration::from_millis(40)), ..Context::default() };
    assert_eq!(run_in(&step, "x", &mut context), Err(StepFailure::Timeout));
}

#[test]
fn models_are_there_only_when_granted() {
    let error = driver("model", Grants::default()).err().unwrap().to_string();
    assert_eq!(
        error,
        "this component imports `gpux:pipeline/models@0.1.0` to run models, which is not granted: its step needs \
         `grant: { models: [NAME] }`"
    );
    let step = driver("model-not-granted", granted(&["rec"])).unwrap();
    let Err(StepFailure::InvalidInput(why)) = run(&step, "x") else { panic!() };
    assert_eq!(why, "the model `other` is not granted; granted are: rec");
    let info = SANDBOX.inspect(&guest("hostile/drive-model.wasm"), None).unwrap();
    assert!(info.capabilities().contains("If granted, it can: run models"), "{}", info.capabilities());
    assert_eq!(info.problem, None);
}
