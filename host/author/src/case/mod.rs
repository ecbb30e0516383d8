//! Golden cases: a folder with a `case.yml`, and the files that it names.
//!
//! `case.yml` → [`Case`] (its shape checked) → values, once the ports are known that they fill.

mod file;
mod folder;
mod metadata;
mod value;
mod write;

pub use folder::{CASES_FOLDER, NoCasesError, cases_in};

pub use file::CASE_FILE;
pub(crate) use file::{Case, ErrorKind, Expectation, ExpectedError, RecordingInfo};
pub(crate) use value::CaseValue;
pub(super) use value::{expected_values, input_values};
pub(super) use write::{Draft, error_text, flow};

#[cfg(test)]
mod tests;
