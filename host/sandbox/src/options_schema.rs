//! The JSON Schema of a component's options. It comes with the component and is not trusted.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::error::{OptionViolation, SandboxError};
use super::log::sanitize;
use gpux_core::{BoundedJsonTree, check_schema_limits};

/// Bytes of a schema's text.
const SIZE: usize = 64 << 10;
/// Nesting of a schema.
const DEPTH: usize = 32;
/// Bytes of a compiled pattern.
const PATTERN: usize = 256 << 10;
/// Bytes of a message about one option.
const MESSAGE: usize = 500;
/// Violations that are reported.
const VIOLATIONS: usize = 20;

fn contract(what: String) -> SandboxError {
    SandboxError::Contract { call: "describe".into(), what }
}

/// The schema in `text`, if its size and shape allow to validate with it.
pub(super) fn parse(text: &str) -> Result<Value, SandboxError> {
    if text.len() > SIZE {
        return Err(contract(format!("an options schema of {} bytes; at most {SIZE} are read", text.len())));
    }
    let (schema, _) = BoundedJsonTree::parse(text, DEPTH, 32 * SIZE)
        .map_err(|error| contract(format!("an options schema that is {error}")))?;
    check_schema_limits(&schema)
        .map_err(|why| contract(format!("an options schema that cannot be used: {}", sanitize(&why, MESSAGE))))?;
    Ok(schema)
}

/// Checks `options` against `schema`; every violation is reported.
pub(super) fn check(schema: &Value, options: &Value) -> Result<(), SandboxError> {
    let validator =
        validator(schema).map_err(|why| contract(format!("an options schema that cannot be used: {why}")))?;
    let faults = violations(&validator, options);
    if faults.is_empty() { Ok(()) } else { Err(SandboxError::Options { faults, schema: schema.clone() }) }
}

/// A validator whose patterns run in linear time, whatever they are.
pub(super) fn validator(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
    let options = jsonschema::options().with_pattern_options(patterns);
    options.build(schema).map_err(|error| sanitize(&error.to_string(), MESSAGE))
}

/// The first errors of `options`.
pub(super) fn violations(validator: &Validator, options: &Value) -> Vec<OptionViolation> {
    let violation = |error: jsonschema::ValidationError<'_>| OptionViolation {
        path: error.instance_path().as_str().split('/').skip(1).map(str::to_owned).collect(),
        message: sanitize(&error.to_string(), MESSAGE),
    };
    validator.iter_errors(options).take(VIOLATIONS).map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_every_fault_with_its_path() {
        let schema = parse(
            r##"{"type":"object","additionalProperties":false,"properties":{
                "margin":{"$ref":"#/$defs/share"},"size":{"type":"array","items":{"type":"integer"}}},
                "$defs":{"share":{"type":"number","maximum":1}}}"##,
        )
        .unwrap();
        assert!(check(&schema, &serde_json::json!({"margin": 0.5, "size": [1, 2]})).is_ok());
        let Err(SandboxError::Options { faults, .. }) =
            check(&schema, &serde_json::json!({"margin": 2, "size": [1, "b"], "c": 0}))
        else {
            unreachable!()
        };
        let mut paths: Vec<_> = faults.iter().map(|fault| fault.path.join(".")).collect();
        paths.sort();
        assert_eq!(paths, ["", "margin", "size.1"]);
    }

    #[test]
    fn rejects_exploding_schemas() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert!(message(r##"{"properties":{"a":{"$ref":"#"}}}"##).contains("does not name a part"));
        let mut doubling = String::from(r##"{"$ref":"#/$defs/d0","$defs":{"d30":{}"##);
        for level in 0..30 {
            let next = level + 1;
            doubling +=
                &format!(r##","d{level}":{{"allOf":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}}"##);
        }
        assert!(message(&(doubling + "}}")).contains("stands for more than"));
        assert!(message(r#"{"$ref":"https://example.com/schema"}"#).contains("does not name a part"));
        assert!(message(&format!("\"{}\"", "x".repeat(SIZE))).contains("at most 65536"));
        assert!(message("{").contains("cannot be read"));
    }
}
