#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod faults;
mod same_bits;

use std::sync::atomic::AtomicUsize;
use std::sync::{Barrier, Condvar, Mutex};
use std::thread::ScopedJoinHandle;

use super::super::engine::{Engine, Session, SessionOptions};
use super::super::error::ModelLoadError;
use super::super::model_file::ModelFile;
use super::super::providers::ExecutionProvider;
use super::super::testing::{engines, model, tensor};
use super::*;
use gpux_core::{Dim, ElementType, Kind, Port, TensorKind};

/// An engine that doubles `[N, 1]`, notes the values of each run, and can be held up.
#[derive(Default)]
struct Doubling {
    runs: Arc<Mutex<Vec<Vec<i64>>>>,
    held: Arc<(Mutex<bool>, Condvar)>,
    inside: Arc<AtomicUsize>,
}

struct Double {
    runs: Arc<Mutex<Vec<Vec<i64>>>>,
    held: Arc<(Mutex<bool>, Condvar)>,
    inside: Arc<AtomicUsize>,
}

impl Engine for Doubling {
    fn name(&self) -> &'static str {
        "doubling"
    }
    fn identity(&self) -> &'static str {
        "doubling"
    }
    fn providers(&self) -> &[ExecutionProvider] {
        &[ExecutionProvider::Cpu]
    }
    fn load(&self, _: &ModelFile, _: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        let (runs, held, inside) = (self.runs.clone(), self.held.clone(), self.inside.clone());
        Ok(Box::new(Double { runs, held, inside }))
    }
}

impl Session for Double {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let values = inputs[0].1.as_slice::<i64>().unwrap().to_vec();
        self.runs.lock().unwrap().push(values.clone());
        self.inside.fetch_add(1, Ordering::SeqCst);
        let (held, freed) = &*self.held;
        let mut held = held.lock().unwrap();
        while *held {
            held = freed.wait(held).unwrap();
        }
        if values.contains(&-1) {
            return Err(RunFailure::Failed("it has a -1".into()));
        }
        Ok(vec![tensor(&[values.len(), 1], values.iter().map(|value| value * 2).collect())])
    }
}

impl Doubling {
    fn batcher(&self, options: BatchOptions) -> Batcher {
        let engine = Self { runs: self.runs.clone(), held: self.held.clone(), inside: self.inside.clone() };
        let batcher = over_numbers(Arc::new(engine), options);
        self.runs.lock().unwrap().clear();
        self.inside.store(0, Ordering::SeqCst);
        batcher
    }

    fn hold(&self, held: bool) {
        *self.held.0.lock().unwrap() = held;
        self.held.1.notify_all();
    }

    /// The values of each run since the last time.
    fn runs(&self) -> Vec<Vec<i64>> {
        std::mem::take(&mut *self.runs.lock().unwrap())
    }

    fn wait_inside(&self) {
        while self.inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A batcher over one session of a model of `[N, 1]`.
fn over_numbers(engine: Arc<dyn Engine>, options: BatchOptions) -> Batcher {
    try_over_numbers(engine, options).unwrap()
}

fn try_over_numbers(engine: Arc<dyn Engine>, options: BatchOptions) -> Result<Batcher, String> {
    let session = SessionOptions::cpu();
    let first = engine.load(&model("gather"), &session).unwrap();
    let sessions = SessionSet::new(engine, model("gather"), session, first, Some(1)).unwrap();
    let port = |name| {
        let shape = [Dim::Named("N".into()), Dim::Fixed(1)];
        Port::new(name, Kind::Tensor(TensorKind::shaped(ElementType::Int64, shape)))
    };
    let signature = Signature::unary(port("x"), port("y"));
    let verdict = examine(&sessions, &signature, &options)?;
    Batcher::new(Arc::new(sessions), &signature, options, &verdict)
}

fn options(max_size: usize) -> BatchOptions {
    BatchOptions { max_size, ..BatchOptions::default() }
}

fn row(value: i64) -> ModelInputs {
    ModelInputs::from_iter([(0, tensor(&[1, 1], vec![value]))])
}

fn value(result: Result<Vec<Tensor>, SessionRunError>) -> Result<i64, String> {
    result.map(|outputs| outputs[0].as_slice::<i64>().unwrap()[0]).map_err(|error| error.to_string())
}

/// Runs `values` while a first request holds the session, and waits until all are in the queue.
fn behind_a_long_run<T: Send>(
    engine: &Doubling,
    batcher: &Batcher,
    values: &[(i64, i32)],
    deadline: Option<Instant>,
    then: impl FnOnce(Vec<Result<i64, String>>) -> T,
) -> T {
    engine.hold(true);
    engine.inside.store(0, Ordering::SeqCst);
    let results = std::thread::scope(|scope| {
        let first = scope.spawn(|| value(batcher.run(row(0), None, 0, None)));
        engine.wait_inside();
        let run = |(number, priority): (i64, i32)| value(batcher.run(row(number), deadline, priority, None));
        let mut threads = Vec::new();
        for (index, request) in values.iter().enumerate() {
            threads.push(scope.spawn(move || run(*request)));
            let late = || deadline.is_some_and(|deadline| Instant::now() > deadline);
            while batcher.waiting() < index + 1 && !late() {
                std::thread::yield_now();
            }
        }
        let results = |threads: Vec<ScopedJoinHandle<'_, Result<i64, String>>>| -> Vec<_> {
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        };
        // Those with a deadline leave while the session is still held, however late they came.
        let left = deadline.map(|_| results(std::mem::take(&mut threads)));
        engine.hold(false);
        assert_eq!(first.join().unwrap(), Ok(0));
        left.unwrap_or_else(|| results(threads))
    });
    then(results)
}

#[test]
fn batches_waiting_requests() {
    let engine = Doubling::default();
    let batcher = engine.batcher(options(3));
    let requests: Vec<_> = (1..=7).map(|number| (number, 0)).collect();
    behind_a_long_run(&engine, &batcher, &requests, None, |results| {
        assert!(results.iter().cloned().eq((1..=7).map(|number| Ok(number * 2))), "{results:?}");
    });
    let runs = engine.runs();
    assert_eq!(runs[0], [0]);
    assert!(runs.iter().all(|run| run.len() <= 3), "{runs:?}");
    assert_eq!(runs[1], [1, 2, 3], "who came first runs first");
    assert_eq!(batcher.sizes().by_rows()[&3], 2);
    // Alone again, at once.
    assert_eq!(value(batcher.run(row(9), None, 0, None)), Ok(18));
    assert_eq!(engine.runs(), [[9]]);
}

/// Records which requests were executed for which client.
#[derive(Default)]
struct Shares(Mutex<Vec<Duration>>);

impl WaitObserver for Shares {
    fn begin(&self) {}

    fn end(&self, delegated_work: Duration) {
        self.0.lock().unwrap().push(delegated_work);
    }
}

#[test]
fn charges_each_request_its_share() {
    const HELD: Duration = Duration::from_millis(30);
    let engine = Doubling::default();
    let batcher = engine.batcher(options(2));
    let (first, mates) = (Shares::default(), Shares::default());
    engine.hold(true);
    let released = std::thread::scope(|scope| {
        scope.spawn(|| value(batcher.run(row(0), None, 0, Some(&first))));
        engine.wait_inside();
        let begun = Instant::now();
        for number in 1..=2 {
            let (batcher, mates) = (&batcher, &mates);
            scope.spawn(move || value(batcher.run(row(number), None, 0, Some(mates))));
        }
        while batcher.waiting() < 2 || begun.elapsed() < HELD {
            std::thread::yield_now();
        }
        let released = Instant::now();
        engine.hold(false);
        released
    });
    assert_eq!(engine.runs().len(), 2);
    let (first, mates) = (first.0.into_inner().unwrap(), mates.0.into_inner().unwrap());
    assert!(first[0] >= HELD, "{first:?}");
    // Not the time for which they waited for the first.
    assert_eq!((mates.len(), mates[0] == mates[1]), (2, true), "{mates:?}");
    assert!(!mates[0].is_zero() && mates[0] * 2 <= released.elapsed(), "{mates:?}");
}

#[test]
fn isolates_failing_requests_of_a_batch() {
    let engine = Doubling::default();
    let batcher = engine.batcher(options(8));
    behind_a_long_run(&engine, &batcher, &[(1, 0), (-1, 0), (3, 0)], None, |results| {
        assert_eq!((&results[0], &results[2]), (&Ok(2), &Ok(6)));
        assert_eq!(results[1], Err("it has a -1".to_owned()));
    });
}

#[test]
fn orders_by_priority_and_times_out() {
    let engine = Doubling::default();
    let batcher = engine.batcher(options(2));
    behind_a_long_run(&engine, &batcher, &[(1, 0), (2, 0), (3, 5), (4, 9)], None, drop);
    assert_eq!(engine.runs()[1], [4, 3]);
    let soon = Instant::now() + Duration::from_millis(5);
    behind_a_long_run(&engine, &batcher, &[(1, 0), (2, 0)], Some(soon), |results| {
        assert!(results.iter().all(Result::is_err), "{results:?}");
    });
    assert_eq!(engine.runs(), [[0]], "what nobody waits for is not run");
}

#[test]
fn waits_max_delay_for_more_requests() {
    let engine = Doubling::default();
    let batcher = engine.batcher(BatchOptions { max_delay: Duration::from_mins(10), ..options(4) });
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (batcher, barrier) = (&batcher, &barrier);
            scope.spawn(move || {
                barrier.wait();
                assert_eq!(value(batcher.run(row(number), None, 0, None)), Ok(number * 2));
            });
        }
    });
    let mut runs = engine.runs();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].sort_unstable();
    assert_eq!(runs[0], [0, 1, 2, 3]);
}

#[test]
fn does_not_delay_after_a_single_request() {
    let engine = Doubling::default();
    let batcher = engine.batcher(BatchOptions { max_delay: Duration::from_mins(10), ..options(4) });
    // It waits for company until its deadline, and in vain.
    let soon = Some(Instant::now() + Duration::from_millis(5));
    let _ = batcher.run(row(1), soon, 0, None);
    assert_eq!(value(batcher.run(row(2), None, 0, None)), Ok(4));
}

#[test]
fn abandons_hanging_batches() {
    let engine = Doubling::default();
    let batcher = engine.batcher(options(4));
    engine.hold(true);
    // More rows than the trials have shown to be short.
    let rows = || ModelInputs::from_iter([(0, tensor(&[6, 1], vec![1_i64; 6]))]);
    let soon = || Some(Instant::now() + Duration::from_millis(1));
    assert!(value(batcher.run(rows(), soon(), 0, None)).is_err());
    // The session that replaces it hangs as well, and is not replaced any more.
    assert!(value(batcher.run(rows(), soon(), 0, None)).is_err());
    assert!(value(batcher.run(rows(), soon(), 0, None)).is_err());
    engine.hold(false);
    assert_eq!(value(batcher.run(row(4), None, 0, None)), Ok(8));
}

#[test]
fn returns_each_thread_its_own_results() {
    let engine = Doubling::default();
    let batcher = engine.batcher(options(5));
    std::thread::scope(|scope| {
        for thread in 0..8_i64 {
            let batcher = &batcher;
            scope.spawn(move || {
                for number in 0..200 {
                    let wanted = thread * 1000 + number;
                    let deadline = (number % 3 == 0).then(|| Instant::now() + Duration::from_mins(5));
                    assert_eq!(value(batcher.run(row(wanted), deadline, 0, None)), Ok(wanted * 2));
                }
            });
        }
    });
    assert_eq!(engine.runs().iter().map(Vec::len).sum::<usize>(), 1600);
    assert_eq!(batcher.waiting(), 0);
}

/// A batcher over a model of `tests/models`.
fn over(engine: &Arc<dyn Engine>, name: &str) -> Result<(Batcher, Arc<SessionSet>), String> {
    within(engine, name, 1e-3)
}

/// The same with another tolerance.
fn within(engine: &Arc<dyn Engine>, name: &str, tolerance: f64) -> Result<(Batcher, Arc<SessionSet>), String> {
    let file = model(name);
    let options = SessionOptions::cpu();
    let first = engine.load(&file, &options).unwrap();
    let signature = file.info().signature().unwrap();
    let sessions = Arc::new(SessionSet::new(engine.clone(), file, options, first, Some(1)).unwrap());
    let batch = BatchOptions { max_size: 8, tolerance, ..BatchOptions::default() };
    let verdict = examine(&sessions, &signature, &batch)?;
    Ok((Batcher::new(sessions.clone(), &signature, batch, &verdict)?, sessions))
}

#[test]
fn batches_only_models_with_independent_rows() {
    for engine in engines() {
        let engine_name = engine.name();
        assert!(!over(&engine, "conv").unwrap().0.pads());
        let refused = over(&engine, "center").err().unwrap();
        assert!(refused.contains("changes with what runs beside it"), "{engine_name}: {refused}");
        // Which shows only for some numbers.
        let refused = over(&engine, "sevens").err().unwrap();
        assert!(refused.contains("changes with what runs beside it"), "{engine_name}: {refused}");
        assert!(over(&engine, "embedding").unwrap().0.pads(), "{engine_name}");
        assert!(!over(&engine, "unmasked").unwrap().0.pads(), "{engine_name}");
        let refused = over(&engine, "flip-float32").err().unwrap();
        assert!(refused.contains("output `y` is always 3"), "{engine_name}: {refused}");
    }
}

#[test]
fn verifies_sample_requests() {
    for engine in engines() {
        let (batcher, _) = over(&engine, "conv").unwrap();
        let image = |number: f32| ModelInputs::from_iter([(0, tensor(&[1, 1, 8, 8], vec![number; 64]))]);
        assert_eq!(batcher.verify(&[image(1.0), image(-3.0), image(0.5)]), Ok(()));
    }
    // Its rows look at each other where one is 77, which no trial makes up.
    let batcher = over_numbers(Arc::new(Neighbours), options(8));
    assert_eq!(batcher.verify(&[row(1), row(2)]), Ok(()));
    assert!(batcher.verify(&[row(1), row(1077)]).unwrap_err().contains("changes with what runs beside it"));
}

#[test]
fn fills_runs_up_to_the_sizes_and_counts_others() {
    let engine = Doubling::default();
    let shapes = ShapeLadder::new([], [1, 4]);
    let batcher = engine.batcher(BatchOptions { shapes, ..options(8) });
    let results = behind_a_long_run(&engine, &batcher, &[(1, 0), (2, 0), (3, 0)], None, |results| results);
    assert_eq!(results, [Ok(2), Ok(4), Ok(6)]);
    let runs = engine.runs();
    assert!(runs.iter().all(|run| [1, 4].contains(&run.len())), "{runs:?}");
    assert_eq!(batcher.unrounded_runs(), Some(0));
    let together = ModelInputs::from_iter([(0, tensor(&[5, 1], vec![1_i64, 2, 3, 4, 5]))]);
    assert_eq!(batcher.run(together, None, 0, None).unwrap()[0].shape(), [5, 1]);
    assert_eq!(batcher.unrounded_runs(), Some(1));
    assert_eq!(batcher.sizes().by_rows()[&3], 1, "rows of requests, not those that fill");
    let full = ModelInputs::from_iter([(0, tensor(&[8, 1], vec![7_i64; 8]))]);
    assert_eq!(batcher.run(full.clone(), None, 0, None).unwrap()[0].shape(), [8, 1]);
    assert_eq!(batcher.unrounded_runs(), Some(2));
    let engine = Doubling::default();
    let single = engine.batcher(BatchOptions { shapes: ShapeLadder::new([], [4]), ..options(4) });
    let four = ModelInputs::from_iter([(0, tensor(&[4, 1], vec![7_i64; 4]))]);
    assert_eq!(single.run(four, None, 0, None).unwrap()[0].as_slice::<i64>().unwrap(), [14; 4]);
    assert_eq!(
        (single.run(row(3), None, 0, None).unwrap()[0].shape(), single.unrounded_runs()),
        (&[1, 1][..], Some(0))
    );
    assert_eq!(engine.runs().iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    let lengths = BatchOptions { shapes: ShapeLadder::new([8], []), ..options(8) };
    let refused = try_over_numbers(Arc::new(Doubling::default()), lengths).err().unwrap();
    assert!(refused.contains("`lengths` are for models whose texts can be padded"));
}

/// An engine that adds the number of rows where one is above 1000.
struct Neighbours;

impl Engine for Neighbours {
    fn name(&self) -> &'static str {
        "neighbours"
    }
    fn identity(&self) -> &'static str {
        "neighbours"
    }
    fn providers(&self) -> &[ExecutionProvider] {
        &[ExecutionProvider::Cpu]
    }
    fn load(&self, _: &ModelFile, _: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        Ok(Box::new(Self))
    }
}

impl Session for Neighbours {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let values = inputs[0].1.as_slice::<i64>().unwrap();
        let more = if values.iter().any(|value| *value > 1000) { 100 * values.len() as i64 } else { 0 };
        Ok(vec![tensor(&[values.len(), 1], values.iter().map(|value| value + more).collect())])
    }
}

#[test]
fn rejects_first_axes_of_different_names() {
    let port = |name: &str, axis: &str| {
        let shape = [Dim::Named(axis.into()), Dim::Fixed(1)];
        Port::new(name, Kind::Tensor(TensorKind::shaped(ElementType::Int64, shape)))
    };
    let refused =
        BatchRules::from_signature(&Signature::unary(port("x", "unk__214"), port("y", "unk__215")), true).unwrap_err();
    assert_eq!(refused, "the first axis of output `y` is `unk__215`, not `unk__214`");
}

#[test]
fn pads_texts_and_trims_their_results() {
    for engine in engines() {
        let (batcher, sessions) = over(&engine, "embedding").unwrap();
        let text = |length: usize| {
            let ids = (0..length).map(|at| (at as i64 * 5 + length as i64) % 16).collect();
            let mask = vec![1_i64; length];
            ModelInputs::from_iter([(0, tensor(&[1, length], ids)), (1, tensor(&[1, length], mask))])
        };
        let texts = [text(5), text(8), text(6)];
        let rules = &batcher.shared.rules;
        let profile: Vec<_> = texts.iter().map(|text| rules.profile(text).unwrap()).collect();
        assert!(profile.iter().all(|one| one.key == profile[0].key && one.bytes_per_token == 16));
        assert_eq!(profile.iter().map(|profile| profile.length).collect::<Vec<_>>(), [Some(5), Some(8), Some(6)]);
        for (lengths, sizes, shape) in [
            (vec![], vec![], [3, 8]),
            (vec![16, 4], vec![1, 8, 4], [4, 16]),
            (vec![7], vec![2], [3, 8]),
            (vec![8], vec![32], [32, 8]),
        ] {
            let shapes = ShapeLadder::new(lengths, sizes);
            let mut joined = rules.join(&texts.iter().collect::<Vec<_>>(), &shapes).unwrap();
            assert!(joined.inputs.iter().all(|(_, tensor)| tensor.shape() == shape), "{shapes:?}");
            let outputs = sessions.run(std::mem::take(&mut joined.inputs), None).unwrap();
            for (text, together) in texts.iter().zip(joined.split(rules, &outputs).unwrap()) {
                let alone = sessions.run(text.clone(), None).unwrap();
                for (alone, together) in alone.iter().zip(&together) {
                    assert_eq!(alone.shape(), together.shape());
                    let pairs = alone.as_slice::<f32>().unwrap().iter().zip(together.as_slice::<f32>().unwrap());
                    assert!(pairs.into_iter().all(|(alone, together)| (alone - together).abs() < 1e-6));
                }
            }
        }
    }
}
