use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Step};

/// The options of a step that has none.
///
/// ```
/// # use gpux_step::{Error, NoOptions, Port, Signature, Step, Values};
/// struct Passes;
///
/// impl Step for Passes {
///     type Options = NoOptions;
///     const SUMMARY: &str = "gives back what it gets";
///
///     fn configure(_: NoOptions) -> Result<(Self, Signature), Error> {
///         Ok((Self, Signature::new().input(Port::any("value")).output(Port::any("value"))))
///     }
///
///     fn process(&self, inputs: Values) -> Result<Values, Error> {
///         Ok(inputs)
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

impl NoOptions {
    /// For [`Step::OPTIONS_SCHEMA`].
    pub const SCHEMA: &str = r#"{"type": "object", "additionalProperties": false}"#;
}

/// The JSON Schema of the step's options.
pub(crate) fn schema_of<S: Step>() -> String {
    match S::OPTIONS_SCHEMA {
        Some(schema) => schema.to_owned(),
        None => derived::<S::Options>(),
    }
}

/// The JSON Schema that schemars derives, without definitions apart: a step's options are small,
/// and whoever reads the schema reads all of it.
pub(crate) fn derived<T: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = T::json_schema(&mut settings.into_generator()).to_value();
    plain(&mut schema);
    schema.to_string()
}

/// Drops the names of Rust's numbers, which JSON Schema has no such formats for.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            if entries.get("type").is_some_and(|of| *of != "string")
                && matches!(entries.get("format"), Some(Value::String(_)))
            {
                entries.remove("format");
            }
            entries.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Reads options: a JSON object as text.
pub(crate) fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    crate::json::read(text).map_err(|why| Error::InvalidInput(["the options do not fit: ", &why].concat()))
}
