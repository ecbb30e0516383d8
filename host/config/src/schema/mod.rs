//! Checking a value against a JSON Schema, with mistakes that point at the file and read like
//! words: for gpux.yml itself, for the options of built-in steps and of components.

mod location;
mod messages;

use jsonschema::PatternOptions;
use schemars::Schema;

pub(crate) use messages::meant_key;

use super::diagnostic::Diagnostic;
use super::node::Node;
use gpux_core::{Size, TimeSpan, check_schema_limits};

/// Errors of one value that are turned into words.
const MAX_ERRORS: usize = 200;

/// Bytes of a compiled `pattern`.
const MAX_PATTERN: usize = 1 << 20;

/// Every violation of `schema` in `node`. `name` is the node's name in errors
/// about the whole node, for example the step's tag.
///
/// Beyond standard JSON Schema, the formats `gpux-size` (`64MB`) and `gpux-duration` (`50ms`) are
/// checked. Nothing is fetched. The schema may come from a stranger: one that is too large, refers
/// to itself or to elsewhere, or is not a schema, gives one diagnostic with the code `bad-schema`.
pub fn check(node: &Node, name: &str, schema: &Schema) -> Vec<Diagnostic> {
    let bad = |reason: String| {
        let message = format!("the description of what `{name}` takes cannot be used: {reason}");
        let hint = "this is a mistake in the step itself, not in this file; tell its author";
        vec![Diagnostic::new("bad-schema", node.span.clone(), message).hint(hint)]
    };
    let schema = schema.as_value();
    if let Err(reason) = check_schema_limits(schema) {
        return bad(reason);
    }
    let validator = jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN))
        .with_format("gpux-size", |text: &str| text.parse::<Size>().is_ok())
        .with_format("gpux-duration", |text: &str| text.parse::<TimeSpan>().is_ok())
        .should_validate_formats(true)
        .build(schema);
    let validator = match validator {
        Ok(validator) => validator,
        Err(error) => return bad(error.masked().to_string()),
    };
    let instance = node.to_json();
    let context = location::SchemaContext { root: node, name, schema };
    let mut diagnostics = Vec::new();
    for error in validator.iter_errors(&instance).take(MAX_ERRORS) {
        messages::describe(&context, &error, &mut diagnostics);
    }
    diagnostics
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::super::document;
    use super::super::source_file::SourceFile;
    use super::*;

    fn messages(yaml: &str, schema: serde_json::Value) -> Vec<String> {
        let (node, diagnostics) = document::parse(&SourceFile::new("x", yaml), document::FileKind::PIPELINE);
        assert_eq!(diagnostics, vec![]);
        let schema = Schema::try_from(schema).unwrap();
        check(&node.unwrap(), "x", &schema).into_iter().map(|d| format!("{} {}", d.code, d.message)).collect()
    }

    #[test]
    fn rejects_hostile_schemas_quickly() {
        let mut chain = serde_json::Map::new();
        for level in 0..40 {
            let next = serde_json::json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            chain.insert(format!("d{level}"), serde_json::json!({ "anyOf": [next, next] }));
        }
        chain.insert("d40".into(), serde_json::json!({ "type": "string" }));
        let mut deep = serde_json::json!({});
        for _ in 0..100 {
            deep = serde_json::json!({ "not": deep });
        }
        for schema in [
            serde_json::json!({ "$ref": "#" }),
            serde_json::json!({ "allOf": [{ "$ref": "#" }] }),
            serde_json::json!({ "properties": { "a": { "$ref": "#" } } }),
            serde_json::json!({ "$ref": "https://example.com/schema.json" }),
            serde_json::json!({ "$ref": "file:///etc/passwd" }),
            serde_json::json!({ "$schema": "https://example.com/schema.json" }),
            serde_json::json!({ "$ref": "#/$defs/none" }),
            serde_json::json!({ "$ref": 5 }),
            serde_json::json!({ "$id": "https://example.com/x", "$dynamicRef": "#a" }),
            serde_json::json!({ "type": "no-such-type" }),
            serde_json::json!({ "properties": 5 }),
            serde_json::json!({ "properties": { "a": { "pattern": "(" } } }),
            serde_json::json!({ "properties": { "a": { "pattern": "(a{1000}){1000}" } } }),
            serde_json::json!({ "$ref": "#/$defs/d0", "$defs": chain }),
            deep,
        ] {
            let found = messages("a: 1", schema.clone());
            assert!(found.len() == 1 && found[0].starts_with("bad-schema "), "{schema} gave {found:?}");
        }
    }

    /// Schemas that nest keywords within keywords by references: whatever is not refused is checked in no time.
    #[test]
    fn bounds_schema_checking_time() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let (mut checked, mut refused) = (0, 0);
        for round in 0..400 {
            let levels = 1 + random(if round % 2 == 0 { 12 } else { 110 });
            // One shape a level, or the same all the way.
            let fixed = random(12);
            // Values that satisfy the repeating keywords are checked to the end.
            let says = random(4);
            let mut definitions = serde_json::Map::new();
            for level in 0..levels {
                let next = serde_json::json!({ "$ref": format!("#/$defs/d{}", level + 1) });
                let mut schema = match if round % 3 == 0 { random(12) } else { fixed } {
                    0 => next.clone(),
                    1 => serde_json::json!({ "allOf": [next] }),
                    2 => serde_json::json!({ "anyOf": [next, true] }),
                    3 => serde_json::json!({ "oneOf": [next, false] }),
                    4 => serde_json::json!({ "if": next, "then": true, "else": next }),
                    5 => serde_json::json!({ "not": next }),
                    6 => serde_json::json!({ "dependentSchemas": { "a": next } }),
                    7 => serde_json::json!({ "properties": { "a": next, "b": next } }),
                    8 => serde_json::json!({ "items": next, "contains": next }),
                    9 => serde_json::json!({ "additionalProperties": next, "propertyNames": true }),
                    10 => serde_json::json!({ "patternProperties": { ".": next } }),
                    _ => serde_json::json!({ "prefixItems": [next], "unevaluatedItems": next }),
                };
                for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
                    if random(4) < 3 {
                        let value = match says {
                            0 => serde_json::json!(random(2) == 0),
                            1 => serde_json::json!(true),
                            2 => serde_json::json!({ "minimum": 1 }),
                            _ => next.clone(),
                        };
                        schema[keyword] = value;
                    }
                }
                definitions.insert(format!("d{level}"), schema);
            }
            definitions.insert(format!("d{levels}"), serde_json::json!({ "type": "object" }));
            let schema = serde_json::json!({ "$ref": "#/$defs/d0", "$defs": definitions });
            let begin = gpux_core::threads::processor_time();
            let found = messages("a: { a: [1, [2]], b: {} }\nb: [{ a: 1 }, 2]\nc: 3", schema.clone());
            let took = gpux_core::threads::processor_time().saturating_sub(begin);
            assert!(took.as_secs() < 5, "{took:?}: {schema}");
            if found.first().is_some_and(|first| first.starts_with("bad-schema")) { refused += 1 } else { checked += 1 }
        }
        assert!(checked > 50 && refused > 50, "{checked} checked, {refused} refused");
    }

    #[test]
    fn tolerates_malformed_schemas() {
        for schema in [
            serde_json::json!(false),
            serde_json::json!({ "not": {} }),
            serde_json::json!({ "anyOf": [false, false] }),
            serde_json::json!({ "oneOf": [true, true] }),
            serde_json::json!({ "enum": [1, [], {}, "x"] }),
            serde_json::json!({ "propertyNames": { "maxLength": 0 } }),
            serde_json::json!({ "additionalProperties": false, "unevaluatedProperties": false }),
            serde_json::json!({ "required": ["b", "~/c", ""] }),
            serde_json::json!({ "dependentRequired": { "a": ["q"] } }),
            serde_json::json!({ "properties": { "a": { "multipleOf": 0.3 } } }),
            serde_json::json!({ "properties": { "a": { "enum": ["x", "y"] } } }),
            serde_json::json!({ "minProperties": 9 }),
        ] {
            assert!(!messages("a: 1", schema.clone()).is_empty(), "{schema}");
        }
    }

    #[test]
    fn reports_the_matching_branch_of_a_union() {
        let schema = serde_json::json!({ "properties": { "size": { "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "array", "items": { "type": "integer" }, "minItems": 2, "maxItems": 2 },
        ] } } });
        assert_eq!(messages("size: [8, x]", schema.clone()), ["type `size[1]` takes a whole number"]);
        assert_eq!(messages("size: 0", schema.clone()), ["range `size` must be at least 1"]);
        assert_eq!(messages("size: big", schema), ["type `size` takes a whole number or a list"]);
    }
}
