//! Built-in steps, at native speed: `resize`, `normalize`, `tokenize` and whatever else
//! `gpux steps` lists.

use serde::Serialize;

use crate::{Arguments, Error, Values, host};

/// Runs the built-in step `name` (as in gpux.yml) with `options` on `inputs`, which you keep. The
/// result has one value for each output of the step, in its order.
///
/// Its time counts against this step's `time` limit. Per-element work on large tensors belongs
/// here: a loop in the sandbox pays for its deadline, a native one does not.
///
/// ```
/// use gpux_step::{Tensor, builtins};
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Resize {
///     size: [u32; 2],
/// }
///
/// fn thumbnail(image: &Tensor) -> Result<Tensor, gpux_step::Error> {
///     builtins::run("resize", &Resize { size: [32, 32] }, image)?.take_first_tensor()
/// }
/// ```
///
/// Errors: [`InvalidInput`](Error::InvalidInput) for an unknown step, for options or inputs that do
/// not fit, and for what the step calls invalid; [`Failed`](Error::Failed) otherwise.
pub fn run<'a>(name: &str, options: &impl Serialize, inputs: impl Into<Arguments<'a>>) -> Result<Values, Error> {
    run_with(name, &self::options(options)?, inputs)
}

/// The text of options that stay the same: write it in [`configure`](crate::Step::configure), use
/// it in each [`run_with`].
pub fn options(options: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(options).map_err(|error| Error::Failed(error.to_string()))
}

/// As [`run`], with the options as a JSON object in text, or an empty text for none.
pub fn run_with<'a>(name: &str, options: &str, inputs: impl Into<Arguments<'a>>) -> Result<Values, Error> {
    host::run_builtin(name, options, inputs.into())
}
