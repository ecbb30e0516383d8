//! Small models, run on the calling thread alone where that is faster.
//!
//! ONNX Runtime hands parts of an operator to other threads even where the whole model takes some
//! microseconds, which is less than it takes them to begin. So a small model whose runs are that
//! short gets a second session without other threads, tries both on the requests that come, and
//! keeps it if it is no slower. Inputs that are larger than those still go to the first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::inference::engine::{Engine, RunFailure, Session, SessionOptions};
use crate::inference::model_file::ModelFile;
use crate::inference::providers::ExecutionProvider;
use crate::inference::value::OnnxValue;
use crate::pipeline::Tensor;

/// A run that takes longer is worth other threads.
const SHORT: Duration = Duration::from_micros(100);
/// Runs of one size on each session, before it is decided.
const TRIED: u32 = 32;
/// The largest model that is held twice for it, in bytes.
const SMALL: u64 = 4 << 20;

/// A session that may get a second one beside it.
struct Doubled {
    shared: Box<dyn Session>,
    stage: Stage,
    make: Make,
}

type Make = Box<dyn Fn() -> Option<Box<dyn Session>> + Send>;

enum Stage {
    /// short runs of the same size are counted
    Counting(Seen),
    /// the same number of runs goes to the second session
    Trying { shared: Seen, alone: Box<dyn Session>, seen: Seen },
    /// runs of so many bytes and fewer go to the second session
    Settled { alone: Box<dyn Session>, bytes: usize },
    /// the second session is no faster, or cannot be had
    Never,
}

/// Runs of one size, in a row.
#[derive(Clone, Copy, Default)]
struct Seen {
    runs: u32,
    bytes: usize,
    shortest: Duration,
}

impl Seen {
    /// Counts a run; one of another size begins anew.
    fn note(&mut self, bytes: usize, took: Duration) {
        let same = self.runs > 0 && self.bytes == bytes;
        let (runs, shortest) = if same { (self.runs + 1, self.shortest.min(took)) } else { (1, took) };
        *self = Self { runs, bytes, shortest };
    }
}

/// The session as a set keeps it: with the means to get a second one, where that may help.
pub(super) fn doubled(
    engine: &Arc<dyn Engine>,
    file: &Arc<ModelFile>,
    options: &SessionOptions,
    shared: Box<dyn Session>,
) -> Box<dyn Session> {
    let on_cpu = options.provider == ExecutionProvider::Cpu;
    let small = file.info().size_bytes <= SMALL;
    if options.threads.is_some() || engine.threads(None) < 2 || !on_cpu || !small {
        return shared;
    }
    let (engine, file) = (engine.clone(), file.clone());
    let options = SessionOptions { threads: Some(1), ..options.clone() };
    let make = move || engine.load(&file, &options).ok();
    Box::new(Doubled { shared, stage: Stage::Counting(Seen::default()), make: Box::new(make) })
}

impl Doubled {
    fn on_either<T>(
        &mut self,
        bytes: usize,
        work: impl FnOnce(&mut dyn Session) -> Result<T, RunFailure>,
    ) -> Result<T, RunFailure> {
        let session = match &mut self.stage {
            Stage::Settled { alone, bytes: most } if bytes <= *most => return work(alone.as_mut()),
            Stage::Settled { .. } | Stage::Never => return work(self.shared.as_mut()),
            Stage::Trying { shared, alone, .. } if shared.bytes == bytes => alone.as_mut(),
            Stage::Trying { .. } => return work(self.shared.as_mut()),
            Stage::Counting(_) => self.shared.as_mut(),
        };
        let start = Instant::now();
        let result = work(session)?;
        self.note(bytes, start.elapsed());
        Ok(result)
    }

    fn note(&mut self, bytes: usize, took: Duration) {
        match &mut self.stage {
            // The first runs of a session are longer than all others.
            Stage::Counting(seen) if took < SHORT => {
                seen.note(bytes, took);
                let shared = *seen;
                if shared.runs >= TRIED {
                    self.stage = match (self.make)() {
                        Some(alone) => Stage::Trying { shared, alone, seen: Seen::default() },
                        None => Stage::Never,
                    };
                }
            }
            Stage::Trying { shared, seen, .. } => {
                seen.note(bytes, took);
                if seen.runs < TRIED {
                    return;
                }
                let (faster, bytes) = (seen.shortest <= shared.shortest, shared.bytes);
                self.stage = match std::mem::replace(&mut self.stage, Stage::Never) {
                    Stage::Trying { alone, .. } if faster => Stage::Settled { alone, bytes },
                    _ => Stage::Never,
                };
            }
            _ => {}
        }
    }
}

impl Session for Doubled {
    fn run(&mut self, inputs: &[(usize, &Tensor)], deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
        let bytes = inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum();
        self.on_either(bytes, |session| session.run(inputs, deadline))
    }

    fn run_values(
        &mut self,
        inputs: &[(usize, &OnnxValue)],
        deadline: Option<Instant>,
    ) -> Result<Vec<OnnxValue>, RunFailure> {
        let bytes = inputs.iter().map(|(_, value)| value.byte_len()).sum();
        self.on_either(bytes, |session| session.run_values(inputs, deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says which of the two it is.
    struct Named(&'static str);

    impl Session for Named {
        fn run(&mut self, _: &[(usize, &Tensor)], _: Option<Instant>) -> Result<Vec<Tensor>, RunFailure> {
            Err(RunFailure::Failed(self.0.to_owned()))
        }
    }

    fn two() -> Doubled {
        let make = || Some(Box::new(Named("alone")) as Box<dyn Session>);
        let stage = Stage::Counting(Seen::default());
        Doubled { shared: Box::new(Named("shared")), stage, make: Box::new(make) }
    }

    /// Which session a run of so many bytes goes to.
    fn goes_to(session: &mut Doubled, bytes: usize) -> String {
        let result: Result<(), _> = session.on_either(bytes, |session| session.run(&[], None).map(drop));
        result.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    fn note(session: &mut Doubled, runs: u32, bytes: usize, took: Duration) {
        for _ in 0..runs {
            session.note(bytes, took);
        }
    }

    #[test]
    fn short_runs_go_to_the_session_that_was_faster() {
        for (alone, expected) in [(5, "alone"), (50, "shared")] {
            let mut session = two();
            note(&mut session, TRIED - 1, 64, SHORT / 10);
            assert_eq!(goes_to(&mut session, 64), "shared");
            session.note(64, SHORT / 10);
            assert_eq!(goes_to(&mut session, 64), "alone", "it is tried");
            assert_eq!(goes_to(&mut session, 65), "shared", "with what it is compared on, and nothing else");
            note(&mut session, TRIED, 64, SHORT * alone / 100);
            assert_eq!(goes_to(&mut session, 64), expected);
            assert_eq!(goes_to(&mut session, 65), "shared");
        }
    }

    #[test]
    fn longer_runs_and_runs_of_all_sizes_are_left_as_they_are() {
        let mut session = two();
        note(&mut session, 10 * TRIED, 64, SHORT);
        for bytes in 0..10 * TRIED as usize {
            session.note(bytes, SHORT / 10);
        }
        assert_eq!(goes_to(&mut session, 64), "shared");
        session.make = Box::new(|| None);
        note(&mut session, 3 * TRIED, 64, SHORT / 10);
        assert_eq!(goes_to(&mut session, 64), "shared", "there is no second one");
    }
}
