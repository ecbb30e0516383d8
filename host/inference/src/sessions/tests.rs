#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::AtomicUsize;
use std::sync::{Barrier, Condvar, Mutex};
use std::time::Duration;

use super::*;
use crate::providers::ExecutionProvider;
use crate::testing::{model, tensor};
use gpux_core::DeviceTensor;

/// An engine whose sessions behave as the first number of their input commands.
#[derive(Default)]
struct ScriptedEngine {
    loaded: AtomicUsize,
    callers: Arc<AtomicUsize>,
    barrier: Option<Arc<Barrier>>,
    exclusive: bool,
}

struct ScriptedSession {
    callers: Arc<AtomicUsize>,
    barrier: Option<Arc<Barrier>>,
}

impl Engine for ScriptedEngine {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn identity(&self) -> &'static str {
        "scripted"
    }
    fn providers(&self) -> &[ExecutionProvider] {
        &[ExecutionProvider::Cpu]
    }
    fn is_exclusive(&self, _: &SessionOptions) -> bool {
        self.exclusive
    }
    fn load(&self, _: &ModelFile, _: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        self.loaded.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(ScriptedSession { callers: self.callers.clone(), barrier: self.barrier.clone() }))
    }
}

impl Session for ScriptedSession {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        match inputs[0].1.as_slice::<i64>().unwrap()[0] {
            0 => Ok(vec![inputs[0].1.clone()]),
            1 => panic!("asked to"),
            2 => Err(RunFailure::Failed("bad value".into())),
            _ => {
                self.callers.fetch_add(1, Ordering::SeqCst);
                self.barrier.as_ref().unwrap().wait();
                Ok(Vec::new())
            }
        }
    }

    fn run_placed(
        &mut self,
        inputs: &[(usize, &HostOrDevice<Tensor>)],
        stay: &[bool],
        deadline: Option<Instant>,
    ) -> Result<Vec<HostOrDevice<Tensor>>, RunFailure> {
        let HostOrDevice::Host(tensor) = inputs[0].1 else { panic!("it was given on the host") };
        let outputs = self.run(&[(0, tensor)], deadline)?;
        let left = |tensor: &Tensor| DeviceTensor::new(tensor.element(), tensor.shape().to_vec(), Arc::new(()));
        let placed = |(tensor, stays): (Tensor, &bool)| {
            if *stays { HostOrDevice::Device(left(&tensor)) } else { HostOrDevice::Host(tensor) }
        };
        Ok(outputs.into_iter().zip(stay).map(placed).collect())
    }
}

fn set(engine: &Arc<ScriptedEngine>, instances: usize) -> SessionSet {
    let options = SessionOptions::cpu();
    let first = engine.load(&model("gather"), &options).unwrap();
    SessionSet::new(engine.clone(), model("gather"), options, first, Some(instances)).unwrap()
}

fn order(what: i64) -> ModelInputs {
    ModelInputs::from_iter([(0, tensor(&[1], vec![what]))])
}

#[test]
fn replaces_sessions_that_panicked() {
    let engine = Arc::new(ScriptedEngine::default());
    let set = set(&engine, 1);
    let run = |what| set.run(order(what), None).map_err(|error| error.to_string());
    assert!(run(0).is_ok());
    assert_eq!(run(2).unwrap_err(), "bad value");
    assert_eq!(engine.loaded.load(Ordering::SeqCst), 1);
    assert!(run(1).unwrap_err().contains("asked to"));
    assert!(set.reserve().is_none(), "to load one takes its time");
    assert!(run(0).is_ok());
    assert_eq!(engine.loaded.load(Ordering::SeqCst), 2);
}

#[test]
fn waits_for_a_session_until_the_deadline() {
    let barrier = Arc::new(Barrier::new(2));
    let engine = Arc::new(ScriptedEngine { barrier: Some(barrier.clone()), ..ScriptedEngine::default() });
    let set = set(&engine, 1);
    drop(set.reserve().unwrap());
    let reserved = set.reserve().unwrap();
    assert!(set.reserve().is_none(), "there is only one session");
    set.run(order(0), None).unwrap();
    drop(reserved);
    assert!(set.reserve().is_some(), "the run has given it back");
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| set.run(order(3), None).map(|_| ()));
        while engine.callers.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert!(set.reserve().is_none());
        let late = set.run(order(0), Some(Instant::now() + Duration::from_millis(5)));
        assert!(matches!(late, Err(SessionRunError::Timeout)));
        let waiting = scope.spawn(|| set.run(order(0), Some(Instant::now() + Duration::from_mins(1))));
        while set.shared.pool.waiting() == 0 {
            std::thread::yield_now();
        }
        barrier.wait();
        assert!(waiting.join().unwrap().is_ok());
        assert!(busy.join().unwrap().is_ok());
    });
    assert_eq!(engine.loaded.load(Ordering::SeqCst), 1);
}

#[test]
fn abandons_overdue_runs() {
    // Two kernels that do not return, and the callers that abandon them.
    let barrier = Arc::new(Barrier::new(3));
    let engine = Arc::new(ScriptedEngine { barrier: Some(barrier.clone()), ..ScriptedEngine::default() });
    let set = set(&engine, 1);
    let soon = || Some(Instant::now() + Duration::from_millis(1));
    let far = || Some(Instant::now() + Duration::from_mins(1));
    assert!(matches!(set.run(order(3), soon()), Err(SessionRunError::Timeout)));
    assert_eq!((set.retired(), engine.loaded.load(Ordering::SeqCst)), (1, 1));
    // The next request makes a session of its own; a second runaway gets no replacement.
    assert!(set.run(order(0), far()).is_ok());
    assert_eq!(engine.loaded.load(Ordering::SeqCst), 2);
    // Larger than what has been short.
    let larger = ModelInputs::from_iter([(0, tensor(&[2], vec![3_i64; 2]))]);
    assert!(matches!(set.run(larger, soon()), Err(SessionRunError::Timeout)));
    assert_eq!(set.retired(), 1);
    assert!(matches!(set.run(order(0), soon()), Err(SessionRunError::Timeout)), "there is no session left");
    // Both kernels return: one session joins the set, the other goes.
    barrier.wait();
    assert!(set.run(order(0), far()).is_ok());
    while set.retired() > 0 {
        std::thread::yield_now();
    }
    assert_eq!((set.shared.pool.free(), engine.loaded.load(Ordering::SeqCst)), (1, 2));
}

#[test]
fn prefers_loaded_sessions_over_empty_slots() {
    let barrier = Arc::new(Barrier::new(2));
    let engine = Arc::new(ScriptedEngine { barrier: Some(barrier.clone()), ..ScriptedEngine::default() });
    let set = set(&engine, 2);
    let after = |time| Some(Instant::now() + Duration::from_millis(time));
    assert!(matches!(set.run(order(3), after(1)), Err(SessionRunError::Timeout)));
    for _ in 0..3 {
        assert!(set.run(order(0), after(60_000)).is_ok());
    }
    assert_eq!((set.retired(), engine.loaded.load(Ordering::SeqCst)), (1, 2));
    barrier.wait();
}

#[test]
fn abandons_overdue_device_runs() {
    let barrier = Arc::new(Barrier::new(2));
    let engine = Arc::new(ScriptedEngine { barrier: Some(barrier.clone()), ..ScriptedEngine::default() });
    let set = set(&engine, 1);
    let run = |what, stay, left| {
        let inputs = order(what).into_iter().map(|(index, tensor)| (index, HostOrDevice::Host(tensor))).collect();
        set.run_placed(inputs, &[stay], Some(Instant::now() + left))
    };
    let (soon, long) = (Duration::from_millis(1), Duration::from_mins(1));
    assert!(matches!(run(3, true, soon), Err(SessionRunError::Timeout)));
    assert_eq!(set.retired(), 1);
    assert!(matches!(run(0, true, long).unwrap()[0], HostOrDevice::Device(_)));
    assert!(matches!(run(0, false, long).unwrap()[0], HostOrDevice::Host(_)));
    assert!(run(2, false, long).unwrap_err().to_string().contains("bad value"));
    assert_eq!(engine.loaded.load(Ordering::SeqCst), 2);
    barrier.wait();
    while set.retired() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn keeps_the_session_when_the_device_lock_times_out() {
    let barrier = Arc::new(Barrier::new(2));
    let engine =
        Arc::new(ScriptedEngine { barrier: Some(barrier.clone()), exclusive: true, ..ScriptedEngine::default() });
    let (busy, other) = (set(&engine, 1), set(&engine, 1));
    let far = || Some(Instant::now() + Duration::from_mins(1));
    // A run of unknown duration runs on another thread, a known short one on the caller's thread.
    for is_short in [false, true] {
        assert_eq!(other.shared.durations.is_short(8), is_short);
        std::thread::scope(|scope| {
            let before = engine.callers.load(Ordering::SeqCst);
            let runs = scope.spawn(|| busy.run(order(3), None).map(|_| ()));
            while engine.callers.load(Ordering::SeqCst) == before {
                std::thread::yield_now();
            }
            let start = Instant::now();
            let late = other.run(order(0), Some(start + Duration::from_millis(20)));
            assert!(matches!(late, Err(SessionRunError::Timeout)));
            assert_eq!((other.retired(), engine.loaded.load(Ordering::SeqCst)), (0, 2));
            // The wait is no part of the run, however long it is.
            let waits = scope.spawn(|| other.run(order(0), far()).map(|_| ()));
            std::thread::sleep(Duration::from_millis(100));
            barrier.wait();
            assert!(runs.join().unwrap().is_ok() && waits.join().unwrap().is_ok());
            assert!(other.shared.durations.is_short(8));
        });
    }
    assert_eq!((other.shared.pool.free(), engine.loaded.load(Ordering::SeqCst)), (1, 2));
}

#[test]
fn restores_retired_sessions_to_empty_slots() {
    let barrier = Arc::new(Barrier::new(2));
    let engine = Arc::new(ScriptedEngine { barrier: Some(barrier.clone()), ..ScriptedEngine::default() });
    let set = set(&engine, 1);
    let late = set.run(order(3), Some(Instant::now() + Duration::from_millis(1)));
    assert!(matches!(late, Err(SessionRunError::Timeout)));
    barrier.wait();
    while set.retired() > 0 {
        std::thread::yield_now();
    }
    assert!(set.run(order(0), None).is_ok());
    assert_eq!(engine.loaded.load(Ordering::SeqCst), 1, "nothing was loaded again");
}

/// An engine with this many cores. Its runs record the thread count of their session, and wait at the
/// gate where the input says so.
#[derive(Clone)]
struct Cores {
    count: usize,
    single_threaded: Result<(), ()>,
    lock: Arc<(Mutex<Gate>, Condvar)>,
    /// narrow sessions that are made; each takes a while
    single_threaded_loads: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Gate {
    is_open: bool,
    callers: usize,
    runs: Vec<Option<usize>>,
}

struct OnCores {
    threads: Option<usize>,
    lock: Arc<(Mutex<Gate>, Condvar)>,
}

impl Engine for Cores {
    fn name(&self) -> &'static str {
        "cores"
    }
    fn identity(&self) -> &'static str {
        "cores"
    }
    fn providers(&self) -> &[ExecutionProvider] {
        &[ExecutionProvider::Cpu]
    }
    fn threads(&self, own: Option<usize>) -> usize {
        own.unwrap_or(self.count)
    }
    fn load(&self, file: &ModelFile, options: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        if options.threads.is_some() && self.single_threaded.is_err() {
            let (path, engine) = (file.path().to_owned(), "cores".to_owned());
            return Err(ModelLoadError::Engine { path, engine, reason: "asked to".to_owned() });
        }
        if options.threads.is_some() {
            std::thread::sleep(Duration::from_millis(20));
            self.single_threaded_loads.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Box::new(OnCores { threads: options.threads, lock: self.lock.clone() }))
    }
}

impl Session for OnCores {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let (lock, changed) = &*self.lock;
        let mut lock = lock.lock().unwrap();
        lock.runs.push(self.threads);
        lock.callers += 1;
        changed.notify_all();
        if inputs[0].1.as_slice::<i64>().unwrap()[0] == 1 {
            lock = changed.wait_while(lock, |lock| !lock.is_open).unwrap();
        }
        lock.callers -= 1;
        Ok(Vec::new())
    }
}

impl Cores {
    fn new(count: usize, single_threaded: Result<(), ()>) -> Self {
        Self { count, single_threaded, lock: Arc::default(), single_threaded_loads: Arc::default() }
    }

    fn set(&self, options: SessionOptions, instances: Option<usize>) -> SessionSet {
        let first = self.load(&model("gather"), &options).unwrap();
        SessionSet::new(Arc::new(self.clone()), model("gather"), options, first, instances).unwrap()
    }

    /// Waits until `callers` runs are at the gate.
    fn wait_for_callers(&self, callers: usize) {
        let (lock, changed) = &*self.lock;
        drop(changed.wait_while(lock.lock().unwrap(), |lock| lock.callers < callers).unwrap());
    }

    fn open_gate(&self, is_open: bool) {
        self.lock.0.lock().unwrap().is_open = is_open;
        self.lock.1.notify_all();
    }

    /// The threads of each run since the last time.
    fn runs(&self) -> Vec<Option<usize>> {
        std::mem::take(&mut self.lock.0.lock().unwrap().runs)
    }
}

#[test]
fn loads_single_threaded_sessions_under_load() {
    let engine = Cores::new(2, Ok(()));
    let set = engine.set(SessionOptions::cpu(), None);
    assert_eq!((set.instances(), set.max_concurrency(), set.count(), set.target_concurrency()), (1, 2, 1, 1));
    for _ in 0..3 {
        set.run(order(0), None).unwrap();
    }
    assert_eq!(engine.runs(), [None; 3], "a single caller has all threads");

    std::thread::scope(|scope| {
        let first = scope.spawn(|| set.run(order(1), None).map(drop));
        engine.wait_for_callers(1);
        // The second finds no session, has one made, and waits for whichever is free first.
        let second = scope.spawn(|| set.run(order(1), None).map(drop));
        engine.wait_for_callers(2);
        assert_eq!((set.count(), set.target_concurrency()), (2, 2));
        assert_eq!(engine.runs(), [None, Some(1)]);
        let third = scope.spawn(|| set.run(order(1), None).map(drop));
        engine.wait_for_callers(3);
        assert_eq!(set.count(), 3);
        // Now there is one session a core, and no run uses the multi-threaded session beside them.
        let fourth = scope.spawn(|| set.run(order(0), None).map(drop));
        while set.shared.pool.waiting() == 0 {
            std::thread::yield_now();
        }
        engine.open_gate(true);
        for caller in [first, second, third, fourth] {
            caller.join().unwrap().unwrap();
        }
    });
    engine.runs();
    for _ in 0..20 {
        set.run(order(0), None).unwrap();
    }
    let runs = engine.runs();
    assert_eq!((runs[0], runs[19], set.target_concurrency()), (Some(1), None, 1), "the crowd lingers, and is gone");
    assert_eq!((set.count(), set.shared.pool.free()), (3, 3));
}

#[test]
fn respects_instances_and_threads() {
    let cpu = SessionOptions::cpu;
    let on_gpu = SessionOptions { provider: ExecutionProvider::Cuda, ..cpu() };
    for (cores, options, instances, max_concurrency) in [
        (1, cpu(), None, 1),
        (8, cpu(), Some(1), 1),
        (8, cpu(), Some(3), 3),
        (8, SessionOptions { threads: Some(4), ..cpu() }, None, 1),
        (8, on_gpu, None, 1),
        (8, cpu(), None, 8),
    ] {
        assert_eq!(
            Cores::new(cores, Ok(())).set(options, instances).max_concurrency(),
            max_concurrency,
            "{cores} {instances:?}"
        );
    }
}

#[test]
fn few_callers_use_multi_threaded_sessions() {
    let engine = Cores::new(8, Ok(()));
    let set = engine.set(SessionOptions::cpu(), None);
    let callers: Vec<_> = (0..4).map(|_| set.count_caller()).collect();
    assert_eq!(set.target_concurrency(), 1);
    let fifth = set.count_caller();
    assert_eq!(set.target_concurrency(), 8);
    drop((callers, fifth));
    assert_eq!(set.target_concurrency(), 8, "it lingers");
    for _ in 0..20 {
        drop(set.count_caller());
    }
    assert_eq!(set.target_concurrency(), 1);
}

#[test]
fn survives_failed_loads_under_load() {
    let engine = Cores::new(2, Err(()));
    let set = engine.set(SessionOptions::cpu(), None);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| set.run(order(1), None).map(drop))).collect();
        engine.wait_for_callers(1);
        while set.max_concurrency() > 1 {
            std::thread::yield_now();
        }
        engine.open_gate(true);
        for caller in callers {
            caller.join().unwrap().unwrap();
        }
    });
    assert_eq!(engine.runs(), [None; 4]);
    assert_eq!((set.max_concurrency(), set.count(), set.target_concurrency()), (1, 1, 1));
}

#[test]
fn dropping_a_model_waits_for_loading_sessions() {
    let engine = Cores::new(2, Ok(()));
    let set = engine.set(SessionOptions::cpu(), None);
    let others = [set.count_caller(), set.count_caller()];
    set.run(order(0), None).unwrap();
    drop(others);
    drop(set);
    assert_eq!(engine.single_threaded_loads.load(Ordering::SeqCst), 1);
}
