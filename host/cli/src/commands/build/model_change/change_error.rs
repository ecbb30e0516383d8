//! The errors of changing a model.

use std::path::Path;

use crate::exit::Exit;
use crate::printer::Printer;
use gpux::GpuxError;
use gpux_core::files;
use gpux_inference::{ConvertError, ModelLoadError, ShapeError};

/// A model cannot be changed.
pub(super) enum ChangeError {
    Convert(ConvertError),
    /// the tools that convert are not there, and cannot be installed
    Tools(String),
    Shape(ShapeError),
    Load(ModelLoadError),
    /// the pipeline with the changed model in it
    Pipeline(GpuxError),
    Output(String),
    Samples(String),
    /// the pipeline has lost its model
    Nothing,
}

impl ChangeError {
    pub(super) fn output(path: &Path, error: &std::io::Error) -> Self {
        Self::Output(format!("`{}` cannot be written: {}", path.display(), files::without_path(error)))
    }

    pub(super) fn print(self, printer: Printer) -> Exit {
        match self {
            Self::Convert(error) => {
                let exit = if error.is_environment() { Exit::Environment } else { Exit::Failed };
                printer.fail("ConversionError", &error.to_string(), exit)
            }
            Self::Tools(message) => printer.fail("ConversionError", &message, Exit::Environment),
            Self::Shape(error) => printer.fail("UsageError", &error.to_string(), Exit::Usage),
            Self::Load(error) => printer.error(&error.into()),
            Self::Pipeline(error) => {
                printer.note("the pipeline does not work with the changed model, so nothing is written");
                printer.error(&error)
            }
            Self::Output(message) => printer.fail("OutputError", &message, Exit::Failed),
            Self::Samples(message) => printer.fail("ConversionError", &message, Exit::Failed),
            Self::Nothing => printer.fail("ConversionError", "the pipeline was changed meanwhile", Exit::Failed),
        }
    }
}

impl From<ModelLoadError> for ChangeError {
    fn from(error: ModelLoadError) -> Self {
        Self::Load(error)
    }
}

impl From<ShapeError> for ChangeError {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}
