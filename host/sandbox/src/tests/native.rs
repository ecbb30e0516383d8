//! Native steps, called from inside.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;
use gpux_core::WaitObserver;

#[test]
fn a_builtin_runs_on_lent_tensors() {
    let step = load("builtin", Limits::default()).unwrap();
    for _ in 0..2 {
        let output = run(&step, "x").unwrap();
        assert_eq!(output.as_tensor().unwrap().as_slice::<u8>().unwrap(), [1, 2, 3, 1, 2, 3]);
    }
}

#[test]
fn validates_options_of_builtins() {
    let step = load("builtin-wrong-options", Limits::default()).unwrap();
    let Err(StepFailure::InvalidInput(why)) = run(&step, "x") else { panic!() };
    assert!(why.starts_with("the options of `copy` do not fit"), "{why}");
}

#[test]
fn rejects_builtins_with_oversized_results() {
    let step = load("builtin-too-large", Limits::default()).unwrap();
    let Err(StepFailure::Limit(limit)) = run(&step, "x") else { panic!() };
    assert_eq!((limit.limit.as_ref(), limit.value.as_str()), ("memory", "256 MiB"));
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
        std::thread::sleep(self.time);
        Ok(inputs.pop().flatten().into_iter().collect())
    }
}

/// The signature of the model in these tests.
fn texts() -> Signature {
    Signature::unary(Port::new("text", Kind::Text), Port::new("text", Kind::Text))
}

/// A step that runs this model.
fn driving(
    model: impl Step + 'static,
    attack: &str,
    grants: Grants,
    limits: Limits,
) -> (ComponentConfig, Arc<Registry>) {
    let mut registry = Registry::new([COPY]);
    registry.add_model("rec", Arc::new(model));
    let config = ComponentConfig { options: json!({"attack": attack}), limits, grants, reuse: false };
    (config, Arc::new(registry))
}

/// Longer than the component takes for its own part, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(1);

/// A model alone takes longer than the component may.
const MODEL: Duration = Duration::from_millis(1200);

fn driver(attack: &str, grants: Grants) -> Result<ComponentStep, SandboxError> {
    let limits = Limits { time: LIMIT, ..Limits::default() };
    let model = Slow { time: MODEL, signature: texts() };
    let (config, registry) = driving(model, attack, grants, limits);
    SANDBOX.load(&guest("hostile/drive-model.wasm"), config, &registry)
}

/// In the place of a model that others wait for: records the priority of its requests.
struct PriorityRecorder {
    signature: Signature,
    priorities: Arc<Mutex<Vec<i32>>>,
}

impl Step for PriorityRecorder {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, mut inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        self.priorities.lock().unwrap().push(context.priority);
        if let Some(waits) = &context.waits {
            waits.begin();
            waits.end(Duration::ZERO);
        }
        Ok(inputs.pop().flatten().into_iter().collect())
    }
}

/// Counts waiting runs and finished waits.
#[derive(Default)]
struct WaitCounter {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl WaitObserver for WaitCounter {
    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, _: Duration) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn models_receive_priority_and_wait_callbacks() {
    let priorities = Arc::<Mutex<Vec<_>>>::default();
    let model = PriorityRecorder { signature: texts(), priorities: priorities.clone() };
    let (config, registry) = driving(model, "model", granted(&["rec"]), Limits::default());
    let config = ComponentConfig { reuse: true, ..config };
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    // Without a free slot, no other guest could run meanwhile.
    for (slots, waits) in [(cores + 2, 1), (cores, 0)] {
        let sandbox = Sandbox::new(SandboxOptions { slots, ..SandboxOptions::default() }).unwrap();
        let step = sandbox.load(&guest("hostile/drive-model.wasm"), config.clone(), &registry).unwrap();
        let counter = Arc::<WaitCounter>::default();
        let mut urgent = Context { priority: 7, waits: Some(counter.clone()), ..Context::default() };
        assert_eq!(run_in(&step, "x", &mut urgent), Ok("seen".into()));
        assert_eq!(std::mem::take(&mut *priorities.lock().unwrap()), [7]);
        let counts = [&counter.begun, &counter.ended].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [waits, waits], "{slots} slots");
        drop(urgent);
        assert_eq!(Arc::strong_count(&counter), 1, "an instance that waits for its next request holds nobody");
    }
}

#[test]
fn model_time_is_excluded_from_the_step_limit() {
    let step = driver("model", granted(&["rec"])).unwrap();
    assert_eq!(run(&step, "x"), Ok("seen".into()));
    let mut context = Context { deadline: Some(Instant::now() + Duration::from_millis(40)), ..Context::default() };
    assert_eq!(run_in(&step, "x", &mut context), Err(StepFailure::Timeout));
}

#[test]
fn models_require_a_grant() {
    let error = driver("model", Grants::default()).err().unwrap().to_string();
    assert_eq!(
        error,
        "this component imports `gpux:pipeline/models@0.1.1` to run models, which is not granted: its step needs \
         `grant: { models: [NAME] }`"
    );
    let step = driver("model-not-granted", granted(&["rec"])).unwrap();
    let Err(StepFailure::InvalidInput(why)) = run(&step, "x") else { panic!() };
    assert_eq!(why, "the model `other` is not granted; granted are: rec");
    let info = SANDBOX.inspect(&guest("hostile/drive-model.wasm"), None).unwrap();
    assert!(info.capabilities().contains("If granted, it can: run models"), "{}", info.capabilities());
    assert_eq!(info.problem, None);
}

#[test]
fn reports_calls_of_builtins_and_models() {
    let step = driver("model", granted(&["rec"])).unwrap();
    let mut context = Context::default();
    for _ in 0..2 {
        assert_eq!(run_in(&step, "x", &mut context), Ok("seen".into()));
    }
    let calls: Vec<_> = context.calls.iter().collect();
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].name.as_str(), calls[0].count, calls[0].failed), ("model rec", 2, 0));
    assert!(calls[0].time >= 2 * MODEL, "{:?}", calls[0].time);

    let mut context = Context::default();
    let step = load("builtin", Limits::default()).unwrap();
    run_in(&step, "x", &mut context).unwrap();
    let limits = Limits { calls: 5, time: Duration::from_mins(1), ..Limits::default() };
    let step = load("slow-builtin", limits).unwrap();
    run_in(&step, "x", &mut context).unwrap_err();
    let calls: Vec<_> = context.calls.iter().map(|calls| (calls.name.as_str(), calls.count, calls.failed)).collect();
    assert_eq!(calls, [("copy", 6, 0)]);
}

/// In the place of a model: cancels the request that runs it.
struct Canceller {
    flag: Arc<AtomicBool>,
    signature: Signature,
}

impl Step for Canceller {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, mut inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        context.in_time()?;
        self.flag.store(true, Ordering::Relaxed);
        assert_eq!(context.in_time(), Err(StepFailure::Cancelled), "models learn of it too");
        Ok(inputs.pop().flatten().into_iter().collect())
    }
}

#[test]
fn cancellation_stops_a_component() {
    let flag = Arc::new(AtomicBool::new(false));
    let model = Canceller { flag: flag.clone(), signature: texts() };
    let (config, registry) = driving(model, "model", granted(&["rec"]), Limits::default());
    let step = SANDBOX.load(&guest("hostile/drive-model.wasm"), config, &registry).unwrap();
    let mut context = Context { cancelled: Some(flag), ..Context::default() };
    assert_eq!(run_in(&step, "x", &mut context), Err(StepFailure::Cancelled));
    let calls: Vec<_> = context.calls.iter().map(|calls| (calls.name.as_str(), calls.count)).collect();
    assert_eq!(calls, [("model rec", 1)]);

    // Without a call, the next tick stops it.
    let step = load("spin", Limits { time: Duration::from_mins(1), ..Limits::default() }).unwrap();
    assert_eq!(run_in(&step, "x", &mut context), Err(StepFailure::Cancelled));
}
