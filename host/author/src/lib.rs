//! What an author of steps and pipelines needs: new folders from templates, builds, golden cases,
//! records of what crossed a step, and changed models beside their originals.

#![forbid(unsafe_code)]

mod accuracy;
mod batching;
mod bless;
mod build;
mod case;
mod compare;
mod language;
mod record;
mod replay;
mod samples;
mod scaffold;
mod shapes;
mod spread;
mod step_file;
mod subject;
mod template;
mod test;

pub use accuracy::{Accuracy, Beside, Unequal, beside};
pub use batching::prove_batching;
pub use build::{BuildError, BuildRequest, Built, Progress, build, save, strip};
pub use language::Language;
pub use record::{RecordError, Recorder};
pub use replay::Replay;
pub use samples::{ModelSample, Sampler, case_requests};
pub use scaffold::{New, ScaffoldError, Scaffolded, scaffold};
pub use shapes::shapes;
pub use spread::Spread;
pub use step_file::{Recipe, StepFile};
pub use test::{CASES_FOLDER, CaseReport, NoCases, Outcome, Tester, cases_in};
