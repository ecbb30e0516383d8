//! What a schema may be, before anything walks or compiles it.

use std::collections::HashMap;

use serde_json::Value;

/// JSON values in a schema.
const MAX_VALUES: usize = 20_000;
/// Nesting of a schema, references followed.
const MAX_DEPTH: usize = 64;
/// Subschemas once every reference is replaced by its target: bounds the time of a check.
const MAX_EXPANDED: usize = 20_000;

/// Keywords that change what a reference means, or that refer to elsewhere.
const REFUSED: [&str; 6] = ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"];
const ONE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const MANY: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
const NAMED: [&str; 3] = ["dependentSchemas", "patternProperties", "properties"];

/// Why `schema` cannot be used, if it cannot.
pub(super) fn usable(schema: &Value) -> Result<(), String> {
    let mut left = MAX_VALUES;
    count(schema, MAX_DEPTH, &mut left)?;
    let mut expansion = Expansion { root: schema, known: HashMap::new() };
    expansion.cost(schema, 0).map(|_| ())
}

fn count(value: &Value, depth: usize, left: &mut usize) -> Result<(), String> {
    if depth == 0 {
        return Err(format!("it is nested more than {MAX_DEPTH} deep"));
    }
    *left = left.checked_sub(1).ok_or_else(|| format!("it has more than {MAX_VALUES} values"))?;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| count(item, depth - 1, left)),
        Value::Object(fields) => fields.values().try_for_each(|field| count(field, depth - 1, left)),
        _ => Ok(()),
    }
}

struct Expansion<'s> {
    root: &'s Value,
    /// cost by reference; `None` while it is being worked out
    known: HashMap<&'s str, Option<usize>>,
}

impl<'s> Expansion<'s> {
    fn cost(&mut self, schema: &'s Value, depth: usize) -> Result<usize, String> {
        let Value::Object(keywords) = schema else { return Ok(1) };
        if depth > MAX_DEPTH {
            return Err(format!("its references are nested more than {MAX_DEPTH} deep"));
        }
        if let Some(refused) = REFUSED.iter().find(|keyword| keywords.contains_key(**keyword)) {
            return Err(format!("it uses `{refused}`, which is not supported"));
        }
        let mut total = 1;
        if let Some(reference) = keywords.get("$ref") {
            total += self.reference(reference, depth)?;
        }
        let one = ONE.iter().filter_map(|keyword| keywords.get(*keyword)).filter(|value| value.is_object());
        let many = MANY.iter().filter_map(|keyword| keywords.get(*keyword)?.as_array()).flatten();
        let named = NAMED.iter().filter_map(|keyword| keywords.get(*keyword)?.as_object()).flat_map(|map| map.values());
        for part in one.chain(many).chain(named) {
            total += self.cost(part, depth + 1)?;
            if total > MAX_EXPANDED {
                return Err(format!("it stands for more than {MAX_EXPANDED} schemas once its references are followed"));
            }
        }
        Ok(total)
    }

    fn reference(&mut self, reference: &'s Value, depth: usize) -> Result<usize, String> {
        let Some(reference) = reference.as_str() else { return Err("its `$ref` is not text".to_owned()) };
        match self.known.get(reference) {
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => return Err(format!("`{reference}` refers to itself")),
            None => {}
        }
        let target = reference.strip_prefix('#').filter(|pointer| !pointer.is_empty());
        let Some(pointer) = target.filter(|pointer| pointer.starts_with('/')) else {
            return Err(format!("`{reference}` does not name a part of the same schema"));
        };
        let Some(target) = self.root.pointer(pointer) else {
            return Err(format!("`{reference}` names nothing"));
        };
        self.known.insert(reference, None);
        let cost = self.cost(target, depth + 1)?;
        self.known.insert(reference, Some(cost));
        Ok(cost)
    }
}
