//! The step `pass-through`: gives what it gets. The smallest step there is, and the measure of what a
//! sandbox itself costs.

#![forbid(unsafe_code)]

use gpux_step::{Error, NoOptions, Port, Signature, Step, Values};

struct PassThrough;

impl Step for PassThrough {
    type Options = NoOptions;
    const SUMMARY: &str = "gives what it gets";
    const OPTIONS_SCHEMA: Option<&str> = Some(NoOptions::SCHEMA);

    fn configure(_: NoOptions) -> Result<(Self, Signature), Error> {
        let value = || Port::any("value");
        Ok((Self, Signature::new().input(value()).output(value())))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        Ok(inputs)
    }
}

gpux_step::export!(PassThrough);

#[cfg(test)]
mod tests {
    use super::PassThrough;

    #[test]
    fn what_comes_goes() {
        let given = gpux_step::testing::run::<PassThrough>("{}", [("value", "text")]).unwrap();
        assert_eq!(given.text("value").unwrap(), "text");
    }
}
