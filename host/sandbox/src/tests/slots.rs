//! More requests than there are sandboxes.

use std::sync::{Barrier, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::super::engine::SandboxEngine;
use super::*;
use gpux_core::WaitObserver;

/// A stand-in for a model that runs a test's closure.
struct Model<F> {
    signature: Signature,
    meanwhile: F,
}

impl<F: Fn(&Context) + Send + Sync> Step for Model<F> {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, mut inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        (self.meanwhile)(context);
        Ok(inputs.pop().flatten().into_iter().collect())
    }
}

/// A step that runs a model, in a sandbox of its own.
fn step(sandbox: &Sandbox, meanwhile: impl Fn(&Context) + Send + Sync + 'static) -> ComponentStep {
    let mut registry = Registry::new([COPY]);
    let text = |name| Port::new(name, Kind::Text);
    registry.add_model("rec", Arc::new(Model { signature: Signature::unary(text("text"), text("text")), meanwhile }));
    let limits = Limits { time: Duration::from_mins(1), ..Limits::default() };
    let options = json!({"attack": "model"});
    let config = ComponentConfig { options, limits, grants: granted(&["rec"]), reuse: false };
    sandbox.load(&guest("hostile/drive-model.wasm"), config, &Arc::new(registry)).unwrap()
}

fn sandbox(slots: u32) -> Sandbox {
    let ceiling = Limits { time: Duration::from_mins(1), ..Limits::default() };
    Sandbox::new(SandboxOptions { ceiling, slots, ..SandboxOptions::default() }).unwrap()
}

#[test]
fn requests_queue_for_slots() {
    const THREADS: usize = 12;
    let step = step(&sandbox(2), |_| std::thread::sleep(Duration::from_millis(5)));
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let one = || {
            barrier.wait();
            (0..3).map(|_| run(&step, "x")).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), vec![Ok("seen".into()); 3]);
        }
    });
}

#[test]
fn waiting_for_a_slot_times_out() {
    let (inside, held) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let meanwhile = {
        let (inside, held) = (inside.clone(), held.clone());
        move |context: &Context| {
            if context.priority == 1 {
                inside.wait();
                held.wait();
            }
        }
    };
    let step = step(&sandbox(1), meanwhile);
    std::thread::scope(|scope| {
        let mut first = Context { priority: 1, ..Context::default() };
        let first = scope.spawn({
            let step = &step;
            move || run_in(step, "x", &mut first)
        });
        inside.wait();
        let begun = Instant::now();
        let mut late = Context { deadline: Some(begun + Duration::from_millis(20)), ..Context::default() };
        let (outcome, waited) = (run_in(&step, "x", &mut late), begun.elapsed());
        held.wait();
        assert_eq!(outcome, Err(StepFailure::Timeout));
        assert!(waited >= Duration::from_millis(20));
        assert_eq!(first.join().unwrap(), Ok("seen".into()));
    });
    assert_eq!(run(&step, "x"), Ok("seen".into()));
}

struct IgnoredWaits;

impl WaitObserver for IgnoredWaits {
    fn begin(&self) {}
    fn end(&self, _: Duration) {}
}

#[test]
fn guests_waiting_for_models_leave_a_slot_per_core() {
    let engine: Arc<OnceLock<Weak<SandboxEngine>>> = Arc::default();
    let seen = engine.clone();
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let sandbox = sandbox(cores + 1);
    let step = step(&sandbox, move |context| {
        let (waits, engine) = (context.waits.as_ref().unwrap(), seen.get().unwrap().upgrade().unwrap());
        // A second wait needs no second place.
        for _ in 0..2 {
            waits.begin();
            waits.end(Duration::ZERO);
            assert!(engine.idle_permit().is_none(), "its instance is still there");
        }
    });
    engine.set(Arc::downgrade(sandbox.engine())).unwrap();
    let mut context = Context { waits: Some(Arc::new(IgnoredWaits)), ..Context::default() };
    assert_eq!(run_in(&step, "x", &mut context), Ok("seen".into()));
    assert!(sandbox.engine().idle_permit().is_some());
}
