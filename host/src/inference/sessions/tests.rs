#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::*;
use crate::inference::providers::ExecutionProvider;
use crate::inference::testing::{model, tensor};

/// An engine whose sessions do what the first number of their input says.
#[derive(Default)]
struct Obedient {
    made: AtomicUsize,
    inside: Arc<AtomicUsize>,
    barrier: Option<Arc<Barrier>>,
}

struct Obey {
    inside: Arc<AtomicUsize>,
    barrier: Option<Arc<Barrier>>,
}

impl Engine for Obedient {
    fn name(&self) -> &'static str {
        "obedient"
    }
    fn identity(&self) -> &'static str {
        "obedient"
    }
    fn providers(&self) -> &[ExecutionProvider] {
        &[ExecutionProvider::Cpu]
    }
    fn load(&self, _: &ModelFile, _: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Obey { inside: self.inside.clone(), barrier: self.barrier.clone() }))
    }
}

impl Session for Obey {
    fn run(&mut self, inputs: &[(usize, &Tensor)], _: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        match inputs[0].1.as_slice::<i64>().unwrap()[0] {
            0 => Ok(vec![inputs[0].1.clone()]),
            1 => panic!("asked to"),
            2 => Err(RunFailure::Failed("bad value".into())),
            _ => {
                self.inside.fetch_add(1, Ordering::SeqCst);
                self.barrier.as_ref().unwrap().wait();
                Ok(Vec::new())
            }
        }
    }
}

fn set(engine: &Arc<Obedient>, instances: usize) -> SessionSet {
    let options = SessionOptions::cpu();
    let first = engine.load(&model("gather"), &options).unwrap();
    SessionSet::new(engine.clone(), model("gather"), options, first, instances).unwrap()
}

fn order(what: i64) -> ModelInputs {
    ModelInputs::from_iter([(0, tensor(&[1], vec![what]))])
}

#[test]
fn a_session_that_panicked_is_replaced() {
    let engine = Arc::new(Obedient::default());
    let set = set(&engine, 1);
    let run = |what| set.run(order(what), None).map_err(|error| error.to_string());
    assert!(run(0).is_ok());
    assert_eq!(run(2).unwrap_err(), "bad value");
    assert_eq!(engine.made.load(Ordering::SeqCst), 1);
    assert!(run(1).unwrap_err().contains("asked to"));
    assert!(run(0).is_ok());
    assert_eq!(engine.made.load(Ordering::SeqCst), 2);
}

#[test]
fn waiting_ends_with_a_session_or_at_the_deadline() {
    let barrier = Arc::new(Barrier::new(2));
    let engine = Arc::new(Obedient { barrier: Some(barrier.clone()), ..Obedient::default() });
    let set = set(&engine, 1);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| set.run(order(3), None).map(|_| ()));
        while engine.inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let late = set.run(order(0), Some(Instant::now() + Duration::from_millis(5)));
        assert!(matches!(late, Err(Unavailable::Timeout)));
        let waiting = scope.spawn(|| set.run(order(0), Some(Instant::now() + Duration::from_mins(1))));
        while set.shared.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        barrier.wait();
        assert!(waiting.join().unwrap().is_ok());
        assert!(busy.join().unwrap().is_ok());
    });
    assert_eq!(engine.made.load(Ordering::SeqCst), 1);
}

#[test]
fn a_run_that_outlives_its_deadline_is_left_behind() {
    // Two kernels that do not return, and who lets them.
    let barrier = Arc::new(Barrier::new(3));
    let engine = Arc::new(Obedient { barrier: Some(barrier.clone()), ..Obedient::default() });
    let set = set(&engine, 1);
    let soon = || Some(Instant::now() + Duration::from_millis(1));
    let far = || Some(Instant::now() + Duration::from_mins(1));
    assert!(matches!(set.run(order(3), soon()), Err(Unavailable::Timeout)));
    assert_eq!((set.retired(), engine.made.load(Ordering::SeqCst)), (1, 1));
    // The next request makes a session of its own; a second runaway gets no replacement.
    assert!(set.run(order(0), far()).is_ok());
    assert_eq!(engine.made.load(Ordering::SeqCst), 2);
    // Larger than what has been short.
    let larger = ModelInputs::from_iter([(0, tensor(&[2], vec![3_i64; 2]))]);
    assert!(matches!(set.run(larger, soon()), Err(Unavailable::Timeout)));
    assert_eq!(set.retired(), 1);
    assert!(matches!(set.run(order(0), soon()), Err(Unavailable::Timeout)), "there is no session left");
    // Both kernels return: one session joins the set, the other goes.
    barrier.wait();
    assert!(set.run(order(0), far()).is_ok());
    while set.retired() > 0 {
        std::thread::yield_now();
    }
    assert_eq!((set.shared.free.len(), engine.made.load(Ordering::SeqCst)), (1, 2));
}

#[test]
fn a_retired_session_takes_the_place_that_is_still_empty() {
    let barrier = Arc::new(Barrier::new(2));
    let engine = Arc::new(Obedient { barrier: Some(barrier.clone()), ..Obedient::default() });
    let set = set(&engine, 1);
    let late = set.run(order(3), Some(Instant::now() + Duration::from_millis(1)));
    assert!(matches!(late, Err(Unavailable::Timeout)));
    barrier.wait();
    while set.retired() > 0 {
        std::thread::yield_now();
    }
    assert!(set.run(order(0), None).is_ok());
    assert_eq!(engine.made.load(Ordering::SeqCst), 1, "nothing was loaded again");
}
