//! Unit tests of a step, natively and without gpux: plain `cargo test`.
//!
//! Tensors live in memory. Log lines are kept for [`logged`]. Built-in steps and models are what
//! the test says they are: [`builtin`], [`model`]. All of it belongs to the test's own thread.
//! [`run`] checks what gpux would check around a request.
//!
//! ```
//! use gpux_step::{Error, Port, Signature, Step, Tensor, Values, log, testing};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Options {
//!     /// what is added to each number
//!     addend: f32,
//! }
//!
//! struct Add(f32);
//!
//! impl Step for Add {
//!     type Options = Options;
//!     const SUMMARY: &str = "adds a number to each";
//!
//!     fn configure(options: Options) -> Result<(Self, Signature), Error> {
//!         let signature = Signature::new().input(Port::tensor::<f32>("x")).output(Port::tensor::<f32>("y"));
//!         Ok((Self(options.addend), signature))
//!     }
//!
//!     fn process(&self, inputs: Values) -> Result<Values, Error> {
//!         let x = inputs.tensor("x")?;
//!         let mut y = Tensor::zeros::<f32>(x.shape())?;
//!         gpux_step::stream::map(x, &mut y, |x: f32| x + self.0)?;
//!         log::info!("added {}", self.0);
//!         Ok(Values::from([("y", y)]))
//!     }
//! }
//!
//! let x = Tensor::of([2], &[1.0_f32, 2.0])?;
//! let results = testing::run::<Add>(r#"{"addend": 10}"#, [("x", x)])?;
//! assert_eq!(results.tensor("y")?.view::<f32>()?.to_vec(), [11.0, 12.0]);
//! assert_eq!(testing::logged(), [(log::Level::Info, "added 10".to_owned())]);
//!
//! let error = testing::run::<Add>(r#"{"addend": "ten"}"#, Values::new()).unwrap_err();
//! assert_eq!(error.message(), "the options do not fit: `addend`: text, not f32");
//! # Ok::<(), Error>(())
//! ```

mod fit;

use std::path::Path;

use crate::host::native::PROCESS;
use crate::log::Level;
use crate::{Error, Kind, Signature, Step, Value, Values, options};

/// Configures the step with `options` (a JSON object as text) and runs one request, as gpux would:
/// the inputs must be what the signature says, and so must the results.
pub fn run<S: Step>(options: &str, inputs: impl Into<Values>) -> Result<Values, Error> {
    let (step, signature) = configure::<S>(options)?;
    request(&step, &signature, inputs)
}

/// The step configured with `options` (a JSON object as text), and its signature.
pub fn configure<S: Step>(options: &str) -> Result<(S, Signature), Error> {
    S::configure(options::read(options)?)
}

/// Runs one request with a configured step: the inputs must be what the signature says, and so must
/// the results.
pub fn request<S: Step>(step: &S, signature: &Signature, inputs: impl Into<Values>) -> Result<Values, Error> {
    let inputs = fit::inputs(signature, inputs.into()).map_err(Error::InvalidInput)?;
    let results = step.process(inputs)?;
    fit::results(signature, &results).map_err(Error::Failed)?;
    Ok(results)
}

/// Answers the built-in step `name`: `answer` gets its options as text, and its inputs.
///
/// ```
/// # use gpux_step::{Tensor, Values, builtins, testing};
/// testing::builtin("softmax", |_, mut inputs| Ok(Values::from([("scores", inputs.take_first_tensor()?)])));
/// let scores = Tensor::of([2], &[0.5_f32, 0.5])?;
/// assert_eq!(builtins::run_with("softmax", "", &scores)?.take_first_tensor()?.shape(), [2]);
/// # Ok::<(), gpux_step::Error>(())
/// ```
pub fn builtin(name: impl Into<String>, answer: impl FnMut(&str, Values) -> Result<Values, Error> + 'static) {
    PROCESS.with_borrow_mut(|process| process.builtins.insert(name.into(), Box::new(answer)));
}

/// Answers the model `name`, as if it was granted: `answer` gets its inputs.
pub fn model(name: impl Into<String>, mut answer: impl FnMut(Values) -> Result<Values, Error> + 'static) {
    let answer = Box::new(move |_: &str, inputs| answer(inputs));
    PROCESS.with_borrow_mut(|process| process.models.insert(name.into(), answer));
}

/// The lines that were logged since the last call.
pub fn logged() -> Vec<(Level, String)> {
    PROCESS.with_borrow_mut(|process| std::mem::take(&mut process.log))
}

/// The JSON Schema of the step's options, as gpux gets it.
pub fn schema<S: Step>() -> String {
    options::schema_of::<S>()
}

/// For a test that guards [`Step::OPTIONS_SCHEMA`]: that `file` holds the schema that schemars
/// derives from the step's options. With `GPUX_BLESS=1` in the environment it writes the file.
///
/// # Panics
///
/// If it holds another, or cannot be written.
#[expect(clippy::panic, reason = "it is an assertion")]
pub fn check_schema<S: Step>(file: impl AsRef<Path>) {
    let file = file.as_ref();
    let derived = options::derived::<S::Options>();
    let pretty =
        serde_json::from_str::<serde_json::Value>(&derived).and_then(|json| serde_json::to_string_pretty(&json));
    let derived = pretty.unwrap_or(derived) + "\n";
    if std::env::var_os("GPUX_BLESS").is_some_and(|bless| bless == "1")
        && let Err(error) = std::fs::write(file, &derived)
    {
        panic!("cannot write {}: {error}", file.display());
    }
    let written = std::fs::read_to_string(file).unwrap_or_default().replace("\r\n", "\n");
    assert!(
        written == derived,
        "{} is not the schema of the options any more; `GPUX_BLESS=1 cargo test` writes it:\n{derived}",
        file.display()
    );
}

/// What a value is, in the words of a signature.
fn kind(value: &Value) -> Kind {
    match value {
        Value::Tensor(tensor) => Kind::Tensor(crate::TensorKind {
            elements: vec![tensor.element()],
            shape: Some(tensor.shape().into_iter().map(crate::Dim::Fixed).collect()),
            layout: tensor.layout(),
        }),
        Value::Text(_) => Kind::Text,
        Value::Bytes(_) => Kind::Bytes,
        Value::Json(_) => Kind::Json,
    }
}

#[cfg(test)]
mod tests;
