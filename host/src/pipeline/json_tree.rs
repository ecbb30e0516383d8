//! JSON as a tree, of a size that has some use: each value is at least two bytes of text and some
//! eighty in memory.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

/// Values that a tree has at most; the name of a field counts as one.
pub(super) const MAX_VALUES: usize = 4 << 20;

/// A tree that a client's text may become.
#[derive(Debug, Default)]
pub struct JsonTree(
    /// the tree
    pub Json,
);

/// An object that a client's text may become.
#[derive(Debug, Default)]
pub struct JsonFields(
    /// its fields
    pub Map<String, Json>,
);

impl<'de> Deserialize<'de> for JsonTree {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        Bounded(&Cell::new(MAX_VALUES)).deserialize(json).map(Self)
    }
}

impl<'de> Deserialize<'de> for JsonFields {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        match JsonTree::deserialize(json)? {
            JsonTree(Json::Object(fields)) => Ok(Self(fields)),
            JsonTree(_) => Err(D::Error::custom("this is not an object")),
        }
    }
}

/// Reads a value, as long as there may be more.
struct Bounded<'a>(&'a Cell<usize>);

impl Bounded<'_> {
    fn count<E: Error>(&self) -> Result<(), E> {
        let left = self.0.get().checked_sub(1);
        let left = left.ok_or_else(|| {
            E::custom(format_args!("this is more than {MAX_VALUES} values; send large tensors as bytes, not as JSON"))
        })?;
        self.0.set(left);
        Ok(())
    }

    fn leaf<E: Error>(&self, value: impl Into<Json>) -> Result<Json, E> {
        self.count()?;
        Ok(value.into())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
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
        self.count()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Bounded(self.0))? {
            list.push(item);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        self.count()?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            self.count()?;
            object.insert(name, fields.next_value_seed(Bounded(self.0))?);
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
        fn it_is_read_as_serde_json_reads_it(json in json()) {
            let text = json.to_string();
            prop_assert_eq!(serde_json::from_str::<JsonTree>(&text).unwrap().0, serde_json::from_str::<Json>(&text).unwrap());
        }
    }

    #[test]
    fn a_tree_beyond_use_is_refused() {
        let list = |values: usize| format!("[{}[]]", "[],".repeat(values - 2));
        assert!(serde_json::from_str::<JsonTree>(&list(MAX_VALUES)).is_ok());
        let refused = serde_json::from_str::<JsonTree>(&list(MAX_VALUES + 1)).unwrap_err().to_string();
        assert!(refused.contains("more than 4194304 values"), "{refused}");
        let fields = format!("{{{}\"a\":1}}", "\"a\":1,".repeat(MAX_VALUES / 2));
        assert!(serde_json::from_str::<JsonTree>(&fields).is_err(), "names count");
        assert!(serde_json::from_str::<JsonFields>("[]").is_err());
    }
}
