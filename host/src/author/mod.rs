//! What an author of steps and pipelines needs: new folders from templates, builds.

mod build;
mod language;
mod scaffold;
mod step_file;
mod template;

pub use build::{BuildError, BuildRequest, Built, Progress, build, save, strip};
pub use language::{Language, Tool};
pub use scaffold::{New, ScaffoldError, Scaffolded, scaffold};
pub use step_file::{STEP_FILE, StepFile};
