//! The pipeline's models. A step that names this module imports them, and gpux.yml must grant each:
//! `grant: { models: [NAME] }`.

use crate::{Arguments, Error, Values, host};

/// Runs the model `name` on `inputs`, which you keep. The result has one value for each output of
/// the model, in its order.
///
/// Its time counts against the request's deadline, not against this step's `time` limit.
///
/// ```
/// use gpux_step::{Tensor, models};
///
/// fn next_scores(tokens: &Tensor) -> Result<Tensor, gpux_step::Error> {
///     models::run("decoder", [("tokens", tokens)])?.take_first_tensor()
/// }
/// ```
///
/// Errors: [`InvalidInput`](Error::InvalidInput) for a model that is not granted and for inputs that
/// do not fit; [`Failed`](Error::Failed) otherwise.
pub fn run<'a>(name: &str, inputs: impl Into<Arguments<'a>>) -> Result<Values, Error> {
    host::run_model(name, inputs.into())
}
