//! Helpers for fields of gpux.yml.

use schemars::{Schema, SchemaGenerator};
use serde_json::json;

use super::super::node::Node;

/// The value of `key`, unless it is empty.
pub(super) fn part<'n>(root: &'n Node, key: &str) -> Option<&'n Node> {
    root.get(key).filter(|node| !node.is_null())
}

/// Adds `key` to a JSON object if there is a value.
pub(super) fn put<T: serde::Serialize>(object: &mut serde_json::Value, key: &str, value: Option<&T>) {
    if let Some(value) = value {
        object[key] = serde_json::json!(value);
    }
}

/// `name`, `version`: text, or a number, which is taken as the text it was written as.
pub(super) fn text_or_number(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(json!({ "type": ["string", "number"], "minLength": 1, "maxLength": 64 })).unwrap_or_default()
}
