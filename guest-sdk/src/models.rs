//! The pipeline's models. A step that names this module imports them, and gpux.yml must grant each:
//! `grant: { models: [NAME] }`.
//!
//! A step that runs a model on each picture of a batch, one after the other:
//!
//! ```
//! use gpux_step::builtins::{self, Prepared};
//! use gpux_step::{Dim, Error, Layout, NoOptions, Port, Signature, Step, Tensor, Values, models};
//! use serde::Serialize;
//!
//! #[derive(Serialize)]
//! struct Normalize {
//!     scale: f64,
//! }
//!
//! struct Classify {
//!     normalize: Prepared,
//! }
//!
//! impl Step for Classify {
//!     type Options = NoOptions;
//!     const SUMMARY: &str = "classifies each picture of a batch";
//!
//!     fn configure(_: NoOptions) -> Result<(Self, Signature), Error> {
//!         // A missing grant and wrong options fail when the pipeline is built.
//!         models::require("classifier")?;
//!         let normalize = builtins::prepare("normalize", &Normalize { scale: 1.0 / 255.0 })?;
//!         let signature = Signature::new()
//!             .input(Port::tensor::<u8>("pictures").shape([Dim::Any, Dim::Any, Dim::Any, 3.into()]))
//!             .output(Port::tensor::<i64>("classes").shape([Dim::Any]));
//!         Ok((Self { normalize }, signature))
//!     }
//!
//!     fn process(&self, inputs: Values) -> Result<Values, Error> {
//!         let pictures = inputs.tensor("pictures")?;
//!         let [count, height, width, channels] = pictures.dims()?;
//!         let size = height * width * channels;
//!         let mut classes = Vec::new();
//!         for number in 0..count {
//!             let pixels = pictures.read::<u8>(number * size, size)?;
//!             let mut picture = Tensor::of([height as u32, width as u32, channels as u32], &pixels)?;
//!             picture.set_layout(Some(Layout::Hwc)); // the model is then given the layout that it takes
//!             let input = self.normalize.run(&picture)?.take_first_tensor()?;
//!             let scores = models::run("classifier", &input)?.take_first_tensor()?;
//!             let scores = scores.view::<f32>()?;
//!             let best = scores.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
//!             classes.push(best.map_or(-1, |(class, _)| class as i64));
//!         }
//!         Ok(Values::new().with("classes", Tensor::of([classes.len() as u32], &classes)?))
//!     }
//! }
//!
//! gpux_step::export!(Classify);
//!
//! // The same crate, compiled for your own machine, with stand-ins for the step and the model:
//! use gpux_step::testing;
//! testing::builtin("normalize", |_, mut inputs| Ok(Values::new().with("tensor", inputs.take_first_tensor()?)));
//! testing::model("classifier", |inputs| {
//!     assert_eq!(inputs.len(), 1);
//!     Ok(Values::new().with("scores", Tensor::of([1, 2], &[0.25_f32, 0.75])?))
//! });
//! let pictures = Tensor::of([2, 1, 1, 3], &[0_u8; 6])?;
//! let result = testing::run::<Classify>("{}", [("pictures", pictures)])?;
//! assert_eq!(result.tensor("classes")?.view::<i64>()?.to_vec(), [1, 1]);
//! # Ok::<(), Error>(())
//! ```

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

/// Checks that gpux.yml grants the model `name`. In [`configure`](crate::Step::configure), a missing grant then fails
/// when the component is loaded, instead of with the first request.
///
/// Errors: [`InvalidInput`](Error::InvalidInput) for a model that is not granted.
pub fn require(name: &str) -> Result<(), Error> {
    host::require_model(name)
}
