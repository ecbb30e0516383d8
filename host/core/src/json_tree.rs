//! JSON as a tree, of a size that has some use: a value is two bytes of text and some hundred in
//! memory, and what takes long to make takes long to drop.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value as Json};

/// Memory that the trees of one text take at most, in bytes.
pub(super) const MAX_MEMORY: usize = 64 << 20;

/// A value where it lies.
const VALUE: usize = size_of::<Json>();

/// A list beside its values.
const LIST: usize = 64;

/// An object beside its fields: its table of names, and room for the first few.
const OBJECT: usize = 256;

/// The name of a field, with its place in the table.
const NAME: usize = 128;

/// A tree that a client's text may become.
#[derive(Debug, Default)]
pub struct JsonTree(
    /// the tree
    pub Json,
);

impl<'de> Deserialize<'de> for JsonTree {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        TreeSeed(&TreeBudget::default()).deserialize(json).map(Self)
    }
}

/// The memory that is left for the trees of a text; `None` once there was too little.
pub(super) struct TreeBudget(Cell<Option<usize>>);

impl Default for TreeBudget {
    fn default() -> Self {
        Self(Cell::new(Some(MAX_MEMORY)))
    }
}

/// A text whose values would take more memory than there is for them.
#[derive(Debug, thiserror::Error)]
#[error("its values would take more than {} MiB; send large tensors as bytes, not as JSON", MAX_MEMORY >> 20)]
pub(super) struct TreeBudgetExceeded;

impl TreeBudget {
    /// Whether something was refused.
    pub(super) fn is_exceeded(&self) -> bool {
        self.0.get().is_none()
    }

    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(bytes)));
        if self.is_exceeded() { Err(E::custom(TreeBudgetExceeded)) } else { Ok(()) }
    }
}

/// Reads a tree, as long as there is room.
pub(super) struct TreeSeed<'a>(pub(super) &'a TreeBudget);

impl TreeSeed<'_> {
    fn leaf<E: Error>(&self, value: impl Into<Json>) -> Result<Json, E> {
        self.0.take(VALUE)?;
        Ok(value.into())
    }
}

impl<'de> DeserializeSeed<'de> for TreeSeed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeSeed<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        self.leaf(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        self.0.take(VALUE)?;
        let Some(first) = items.next_element_seed(TreeSeed(self.0))? else { return Ok(Json::Array(Vec::new())) };
        self.0.take(LIST)?;
        // A list that is pushed to has room for four at once: most of it empty in lists of lists of one.
        let mut list = vec![first];
        while let Some(item) = items.next_element_seed(TreeSeed(self.0))? {
            list.push(item);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        self.0.take(VALUE)?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            self.0.take(if object.is_empty() { OBJECT + NAME } else { NAME })?;
            // Readers differ in which of two they take.
            match object.entry(name) {
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format_args!("duplicate field `{}`", entry.key())));
                }
                Entry::Vacant(entry) => entry.insert(fields.next_value_seed(TreeSeed(self.0))?),
            };
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            ".{0,6}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::vec((".{0,4}", inner), 0..5)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn parses_like_serde_json(json in json()) {
            let text = json.to_string();
            prop_assert_eq!(serde_json::from_str::<JsonTree>(&text).unwrap().0, serde_json::from_str::<Json>(&text).unwrap());
        }
    }

    #[test]
    fn rejects_trees_over_the_memory_budget() {
        let most = MAX_MEMORY / VALUE;
        let list = |values: usize| format!("[{}[]]", "[],".repeat(values - 1));
        assert!(serde_json::from_str::<JsonTree>(&list(most - 2)).is_ok());
        let refused = |text: &str| serde_json::from_str::<JsonTree>(text).unwrap_err().to_string();
        assert!(refused(&list(most)).contains("more than 64 MiB"), "{}", refused(&list(most)));
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        for (value, at_most) in [
            ("1", most),
            ("[1]", MAX_MEMORY / (2 * VALUE + LIST)),
            (&deep, MAX_MEMORY / (100 * VALUE + 99 * LIST)),
            ("{\"a\":1}", MAX_MEMORY / (2 * VALUE + OBJECT + NAME)),
        ] {
            let text = format!("[{}{value}]", format!("{value},").repeat(at_most));
            assert!(refused(&text).contains("send large tensors as bytes"), "{value}");
        }
        assert!(!refused(&"[".repeat(200)).contains("MiB"), "this is wrong otherwise");
        let names: Vec<_> = (0..MAX_MEMORY / NAME).map(|number| format!("\"{number}\":1")).collect();
        assert!(refused(&format!("{{{}}}", names.join(","))).contains("MiB"), "names count");
    }

    #[test]
    fn rejects_duplicate_fields() {
        for text in [r#"{"a":1,"a":2}"#, r#"[{"b":{"a":1,"\u0061":1}}]"#, r#"{"":0,"":0}"#] {
            let error = serde_json::from_str::<JsonTree>(text).unwrap_err().to_string();
            assert!(error.contains("duplicate field"), "{text}: {error}");
        }
        assert!(serde_json::from_str::<JsonTree>(r#"{"a":{"a":1},"A":1}"#).is_ok());
    }

    #[test]
    fn trees_of_one_text_share_the_budget() {
        let budget = TreeBudget::default();
        let text = format!("[{}1]", "1,".repeat(MAX_MEMORY / VALUE / 2));
        let read = || TreeSeed(&budget).deserialize(&mut serde_json::Deserializer::from_str(&text));
        assert!(read().is_ok() && !budget.is_exceeded());
        assert!(read().is_err() && budget.is_exceeded());
    }
}
