//! The step `{{name}}`: multiplies every number by `factor`, then adds `offset`.

use gpux_step::{Error, Port, Signature, Step, Tensor, Values, stream};
use schemars::JsonSchema;
use serde::Deserialize;

/// What gpux.yml may say under `options:`. `gpux inspect` shows the comments, and gpux refuses what
/// does not fit before the step runs.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// what every number is multiplied by
    factor: f32,
    /// what is added then
    offset: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { factor: 2.0, offset: 0.0 }
    }
}

struct {{TypeName}} {
    options: Options,
}

impl Step for {{TypeName}} {
    type Options = Options;
    const SUMMARY: &str = "multiplies every number and adds to it";

    /// Once, at load. What takes long (tables, patterns) belongs here.
    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        if !options.factor.is_finite() || !options.offset.is_finite() {
            return Err(Error::invalid("`factor` and `offset` must be finite"));
        }
        let signature = Signature::new()
            .input(Port::tensor::<f32>("tensor").about("any numbers"))
            .output(Port::tensor::<f32>("tensor").about("as many, in the same shape"));
        Ok((Self { options }, signature))
    }

    /// One request. What the caller did wrong is `Error::invalid`, what the step cannot do
    /// `Error::failed`.
    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let input = inputs.tensor("tensor")?;
        if input.is_empty() {
            return Err(Error::invalid("the tensor is empty: there is nothing to multiply"));
        }
        let mut output = Tensor::zeros::<f32>(input.shape())?;
        // Through a small buffer: the memory of the step stays small, however large the tensor is.
        stream::map(input, &mut output, |number: f32| number * self.options.factor + self.options.offset)?;
        output.copy_metadata(input);
        Ok(Values::from([("tensor", output)]))
    }
}

gpux_step::export!({{TypeName}});

/// Plain `cargo test`, without WebAssembly. `gpux test` runs the cases in `tests/` on the component.
#[cfg(test)]
mod tests {
    use gpux_step::testing;

    use super::*;

    #[test]
    fn every_number_is_changed() {
        let input = Tensor::of([2], &[1.0_f32, 3.0]).unwrap();
        let results = testing::run::<{{TypeName}}>(r#"{"factor": 10, "offset": 1}"#, [("tensor", input)]).unwrap();
        assert_eq!(results.tensor("tensor").unwrap().view::<f32>().unwrap().to_vec(), [11.0, 31.0]);
    }

    #[test]
    fn nothing_is_an_error() {
        let input = Tensor::of([0], &[] as &[f32]).unwrap();
        let error = testing::run::<{{TypeName}}>("{}", [("tensor", input)]).unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)), "{error}");
    }
}
