//! What requests are charged for, and what becomes of them when something fails on their way.

use super::super::queue::QueueRole;
use super::*;

const SLEEP: Duration = Duration::from_millis(15);

/// An engine that sleeps in each run and records for how long in each. It fails on -1 and panics on -2,
/// and again when its session is reloaded.
#[derive(Clone, Default)]
struct SleepingEngine {
    loads: Arc<AtomicUsize>,
    slept: Arc<Mutex<Vec<Duration>>>,
    /// whether runs wait
    is_held: Arc<AtomicBool>,
}

impl Engine for SleepingEngine {
    fn name(&self) -> &'static str {
        "sleeping"
    }
    fn identity(&self) -> &'static str {
        "sleeping"
    }
    fn providers(&self) -> &[ExecutionProvider] {
        &[ExecutionProvider::Cpu]
    }
    fn load(&self, _: &ModelFile, _: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        assert_ne!(self.loads.fetch_add(1, Ordering::SeqCst), 1, "it does not load twice");
        Ok(Box::new(self.clone()))
    }
}

impl Session for SleepingEngine {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        while self.is_held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        std::thread::sleep(SLEEP);
        self.slept.lock().unwrap().push(begun.elapsed());
        let values = inputs[0].1.as_slice::<i64>().unwrap();
        assert!(!values.contains(&-2), "asked to");
        if values.contains(&-1) {
            return Err(RunFailure::Failed("it has a -1".into()));
        }
        Ok(vec![inputs[0].1.clone()])
    }
}

impl SleepingEngine {
    fn batcher(&self) -> Batcher {
        let batcher = over_numbers(Arc::new(self.clone()), options(8));
        self.slept.lock().unwrap().clear();
        batcher
    }

    /// Runs all of these in one batch: they come while a first request has the session.
    fn together(&self, batcher: &Batcher, values: &[i64], waits: &Shares) -> Vec<Result<i64, String>> {
        let one = |number| value(batcher.run(row(number), None, 0, Some(waits)));
        self.is_held.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| value(batcher.run(row(0), None, 0, None)));
            while !batcher.sizes().by_rows().contains_key(&1) {
                std::thread::yield_now();
            }
            let threads: Vec<_> = values.iter().map(|number| scope.spawn(move || one(*number))).collect();
            while batcher.waiting() < values.len() {
                std::thread::yield_now();
            }
            self.is_held.store(false, Ordering::SeqCst);
            assert_eq!(first.join().unwrap(), Ok(0));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}

#[test]
fn charges_individual_runs_separately() {
    let (engine, shares) = (SleepingEngine::default(), Shares::default());
    let batcher = engine.batcher();
    let begun = Instant::now();
    let results = engine.together(&batcher, &[1, 2, -1, 4, 5, 6], &shares);
    let passed = begun.elapsed();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 5, "{results:?}");
    // All but the first run, of another request. The session runs one at a time; shares are rounded.
    let slept = engine.slept.lock().unwrap()[1..].iter().sum::<Duration>();
    let charged = shares.0.into_inner().unwrap().iter().sum::<Duration>() + Duration::from_micros(1);
    assert!(charged >= slept && charged <= passed, "{charged:?} for {slept:?} of {passed:?}");
}

#[test]
fn does_not_charge_for_waiting() {
    const HELD: Duration = Duration::from_millis(50);
    let (engine, shares) = (Doubling::default(), Shares::default());
    let batcher = engine.batcher(options(8));
    engine.hold(true);
    let passed = std::thread::scope(|scope| {
        // Without the batcher: it runs alone.
        scope.spawn(|| batcher.shared.sessions.run(row(0), None).map(drop));
        engine.wait_inside();
        let waiting = scope.spawn(|| value(batcher.run(row(1), None, 0, Some(&shares))));
        while !batcher.sizes().by_rows().contains_key(&1) {
            std::thread::yield_now();
        }
        std::thread::sleep(HELD);
        let released = Instant::now();
        engine.hold(false);
        assert_eq!(waiting.join().unwrap(), Ok(2));
        released.elapsed()
    });
    let charged = shares.0.into_inner().unwrap();
    assert!(charged.len() == 1 && charged[0] <= passed, "{charged:?} in {passed:?}");
}

#[test]
fn survives_panics_while_loading() {
    let (engine, shares) = (SleepingEngine::default(), Shares::default());
    let batcher = engine.batcher();
    // The session breaks over the batch, and then cannot be made again once.
    let results = engine.together(&batcher, &[-2, 1, 2], &shares);
    let loads = results.iter().filter(|result| matches!(result, Err(why) if why.contains("it does not load twice")));
    assert_eq!(loads.count(), 1, "{results:?}");
    assert_eq!(value(batcher.run(row(7), None, 0, None)), Ok(7));
}

#[test]
fn survives_panics_in_a_batch() {
    let engine = Doubling::default();
    let batcher = engine.batcher(options(8));
    let shared = &batcher.shared;
    let profile = || shared.rules.profile(&row(1)).unwrap();
    let one = |inputs| Arc::new(Request::new(inputs, profile(), None, 0));
    // The second has no axes, though the model declares the same axes for both.
    let scalar = ModelInputs::from_iter([(0, tensor(&[], vec![2_i64]))]);
    let [first, second] = [one(row(1)), one(scalar)];
    assert_eq!((shared.queue.enter(&first, 1), shared.queue.enter(&second, 1)), (QueueRole::Lead, QueueRole::Wait));
    shared.run_as_leader(&first);
    assert_eq!(value(shared.wait(&first)), Ok(2));
    assert!(shared.wait(&second).is_ok_and(|outputs| outputs[0].len() == 1));
    assert_eq!(value(batcher.run(row(3), None, 0, None)), Ok(6));
}
