//! Limits of a schema, checked before it is walked or compiled.

use std::collections::HashMap;

use serde_json::Value;

/// JSON values in a schema.
const MAX_VALUES: usize = 20_000;
/// Nesting of a schema.
const MAX_DEPTH: usize = 64;
/// The same with references followed.
const MAX_FOLLOWED: usize = 2 * MAX_DEPTH;
/// JSON values once every reference is replaced by its target: bounds the time of a check.
const MAX_EXPANDED: usize = 40_000;
/// Patterns: compiled, each may take as much memory as is allowed for one.
const MAX_PATTERNS: usize = 100;

/// Keywords that look at what every other keyword beside them has looked at, references followed: those are worked
/// through for each of them, once for whether a value fits and once for what of it they have seen.
const REPEATING: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];
/// How many times as much work an object with such a keyword is.
const REPEATED: usize = 4;

/// Keywords that change the meaning of a reference, or refer to other documents.
const REFUSED: [&str; 6] = ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"];

/// Why `schema` cannot be used to validate with, if it cannot: it is too large or too deep, refers
/// to itself or to elsewhere, or stands for too much. A stranger's is checked with this first.
pub fn check_schema_limits(schema: &Value) -> Result<(), String> {
    let mut count = Count { values: 0, patterns: 0 };
    count.walk(schema, 0)?;
    let mut expansion = Expansion { root: schema, known: HashMap::new() };
    expansion.cost(schema, 0).map(|_| ())
}

struct Count {
    values: usize,
    patterns: usize,
}

impl Count {
    fn walk(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        if depth == MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values"));
        }
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.walk(item, depth + 1)),
            Value::Object(fields) => fields.iter().try_for_each(|(key, field)| {
                self.patterns += match (key.as_str(), field) {
                    ("pattern", Value::String(_)) => 1,
                    ("patternProperties", Value::Object(each)) => each.len(),
                    _ => 0,
                };
                if self.patterns > MAX_PATTERNS {
                    return Err(format!("it has more than {MAX_PATTERNS} patterns"));
                }
                self.walk(field, depth + 1)
            }),
            _ => Ok(()),
        }
    }
}

/// The schema with every reference followed, wherever one stands: which keywords hold schemas
/// depends on the draft.
struct Expansion<'s> {
    root: &'s Value,
    /// cost by reference; `None` while it is being worked out
    known: HashMap<&'s str, Option<usize>>,
}

impl<'s> Expansion<'s> {
    fn cost(&mut self, value: &'s Value, depth: usize) -> Result<usize, String> {
        if depth > MAX_FOLLOWED {
            return Err(format!("its references are nested more than {MAX_FOLLOWED} deep"));
        }
        let mut total = 1;
        match value {
            Value::Array(items) => {
                for item in items {
                    total += self.cost(item, depth + 1)?;
                    check(total)?;
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    total += match key.as_str() {
                        "$ref" => self.reference(field, depth)?,
                        refused if REFUSED.contains(&refused) => {
                            return Err(format!("it uses `{refused}`, which is not supported"));
                        }
                        _ => self.cost(field, depth + 1)?,
                    };
                    check(total)?;
                }
                if REPEATING.iter().any(|keyword| fields.contains_key(*keyword)) {
                    total *= REPEATED;
                    check(total)?;
                }
            }
            _ => {}
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

fn check(total: usize) -> Result<(), String> {
    if total > MAX_EXPANDED {
        return Err(format!("it stands for more than {MAX_EXPANDED} values once its references are followed"));
    }
    Ok(())
}
