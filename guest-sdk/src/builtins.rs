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

/// A built-in step that [`prepare`] prepared. Keep it in your step: it is a number, which a snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared(u32);

/// Prepares the built-in step `name` with `options`, in [`configure`](crate::Step::configure) only. So wrong options
/// fail when the component is loaded, and long ones (a vocabulary) are passed once. A component prepares at most 64
/// steps, with at most 4 MiB of options together.
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
/// struct Thumbnail {
///     resize: builtins::Prepared,
/// }
///
/// fn configure() -> Result<Thumbnail, gpux_step::Error> {
///     Ok(Thumbnail { resize: builtins::prepare("resize", &Resize { size: [32, 32] })? })
/// }
///
/// fn thumbnail(step: &Thumbnail, image: &Tensor) -> Result<Tensor, gpux_step::Error> {
///     step.resize.run(image)?.take_first_tensor()
/// }
/// ```
///
/// Errors: [`InvalidInput`](Error::InvalidInput) for an unknown step, for options that do not fit, and for more than
/// may be prepared; [`Failed`](Error::Failed) outside of `configure`.
pub fn prepare(name: &str, options: &impl Serialize) -> Result<Prepared, Error> {
    prepare_with(name, &self::options(options)?)
}

/// As [`prepare`], with the options as a JSON object in text, or an empty text for none.
pub fn prepare_with(name: &str, options: &str) -> Result<Prepared, Error> {
    host::prepare_builtin(name, options).map(Prepared)
}

impl Prepared {
    /// Runs the step on `inputs`, which you keep, as [`run`] does.
    pub fn run<'a>(self, inputs: impl Into<Arguments<'a>>) -> Result<Values, Error> {
        host::run_prepared(self.0, inputs.into())
    }
}
